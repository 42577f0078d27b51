"""numba's cache of compiled code, where it cannot be written, is full, or damaged."""

import ctypes
import shutil
import sys
from pathlib import Path

import pytest
from helpers.child import run_child

import holobind

KERNEL = """
    from holobind._topk import top_k
    import numpy as np
    print(top_k(np.arange(40, dtype=np.float32)[None], 2)[1].tolist())
"""
RESULT = "[[39, 38]]\n"
NOT_CACHED = "compiled code is not cached"


@pytest.fixture
def installed(tmp_path):
    """A copy of the package in a folder that cannot be written."""
    folder = tmp_path / "read-only"
    source = Path(holobind.__file__).parent
    shutil.copytree(source, folder / "holobind", ignore=shutil.ignore_patterns("__pycache__"))
    folders = [folder, *(file for file in folder.rglob("*") if file.is_dir())]
    for each in folders:
        each.chmod(0o555)
    yield folder
    for each in folders:
        each.chmod(0o755)


def let_permissions_bind():
    """Take the right to write everywhere from root; any other user has none."""
    drop_capability, may_override_permissions = 24, 1
    ctypes.CDLL(None).prctl(drop_capability, may_override_permissions)


def compiled_files(folder):
    return sorted(folder.rglob("*.nb[ic]"))


EVERYTHING = """
    import pwd, sys
    if "HOME" not in __import__("os").environ:
        def unknown(*_):
            raise KeyError("no entry of this user")
        pwd.getpwuid = unknown
    import holobind
    from holobind.cli.main import main
    for arguments in (
        "data make synthetic bibtex --scale 0.02 --out data",
        "train data --out m.safetensors --l2 1 --dim 64",
        "predict m.safetensors data/test.txt --out predictions",
        "inspect m.safetensors --json",
    ):
        sys.argv = ["holobind", *arguments.split()]
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, arguments
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the rights of root can be taken on Linux")
@pytest.mark.parametrize("home", [None, "missing", "."])
def test_everything_works_where_neither_the_package_nor_the_home_can_be_written(installed, tmp_path, home):
    child = run_child(
        EVERYTHING, setup=let_permissions_bind, cwd=tmp_path, PYTHONPATH=str(installed),
        HOME=home and str(installed / home), NUMBA_CACHE_DIR=None, XDG_CACHE_HOME=None, HOLOBIND_CACHE=None,
    )  # fmt: skip
    assert child.returncode == 0 and (tmp_path / "predictions").stat().st_size, child.stderr
    assert child.stderr.count(NOT_CACHED) == 1 and "Traceback" not in child.stderr
    assert not (tmp_path / "~").exists()


def test_without_any_place_for_the_cache_code_is_compiled_in_memory(tmp_path):
    child = run_child("""
        from numba.core import caching
        caching.CacheImpl._locator_classes = []
    """ + _twice_indented(KERNEL), NUMBA_CACHE_DIR=str(tmp_path))  # fmt: skip
    assert child.returncode == 0 and child.stdout == RESULT, child.stderr
    assert child.stderr.count("\n") == 1 and NOT_CACHED in child.stderr


def test_a_full_disk_is_no_error(tmp_path):
    child = run_child("""
        from numba.core import caching
        def full(*_):
            raise OSError(28, "No space left on device")
        caching.IndexDataCacheFile._save_data = full
    """ + _twice_indented(KERNEL), NUMBA_CACHE_DIR=str(tmp_path))  # fmt: skip
    assert child.returncode == 0 and child.stdout == RESULT, child.stderr
    assert child.stderr.count("\n") == 1 and "No space left on device" in child.stderr


def emptied(file):
    file.write_bytes(b"")


def truncated(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def other_bytes(file):
    file.write_bytes(b"\x80\x05\x95 not a cache" * 20)


def a_directory(file):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", [emptied, truncated, other_bytes, a_directory])
def test_damaged_files_of_the_cache_are_compiled_again(warm_cache, tmp_path, suffix, damage):
    shutil.copytree(warm_cache, tmp_path / "cache")
    for file in compiled_files(tmp_path / "cache"):
        if file.suffix == suffix:
            damage(file)
    child = run_child(KERNEL, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert child.returncode == 0 and child.stdout == RESULT, child.stderr
    if damage is not a_directory:  # it is replaced
        assert child.stderr == "" and all(file.stat().st_size > 50 for file in compiled_files(tmp_path / "cache"))


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numba")
    assert run_child(KERNEL, NUMBA_CACHE_DIR=str(folder)).returncode == 0 and compiled_files(folder)
    return folder


def _twice_indented(code):
    return "\n".join("    " + line for line in code.splitlines())


def test_no_module_uses_the_cache_of_numba_unguarded():
    for file in Path(holobind.__file__).parent.rglob("*.py"):
        assert "njit" not in file.read_text() or file.name == "_jit.py", file
