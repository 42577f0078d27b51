"""numba's cache of compiled code, where it cannot be written, is full, or damaged."""

import ctypes
import shutil
import sys
import textwrap
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


COMMANDS = (
    "data make synthetic bibtex --scale 0.02 --out data",
    "train data --out m.safetensors --l2 1 --dim 64",
    "predict m.safetensors data/test.txt --out predictions",
    "inspect m.safetensors --json",
)
EVERYTHING = """
    import pwd, sys
    if "HOME" not in __import__("os").environ:
        def unknown(*_):
            raise KeyError("no entry of this user")
        pwd.getpwuid = unknown
    import holobind
    from holobind.cli.main import main
    for arguments in {commands!r}:
        sys.argv = ["holobind", *arguments.split()]
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, arguments
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the rights of root can be taken on Linux")
@pytest.mark.parametrize(("home", "commands"), [(None, COMMANDS), ("missing", COMMANDS[:1]), (".", COMMANDS[:1])])
def test_everything_works_where_neither_the_package_nor_the_home_can_be_written(installed, tmp_path, home, commands):
    """Which home there is matters to the place of the cache alone: without any, all verbs are tried."""
    child = run_child(
        EVERYTHING.format(commands=commands) + KERNEL,
        setup=let_permissions_bind, cwd=tmp_path, PYTHONPATH=str(installed),
        HOME=home and str(installed / home), NUMBA_CACHE_DIR=None, XDG_CACHE_HOME=None, HOLOBIND_CACHE=None,
    )  # fmt: skip
    assert child.returncode == 0 and child.stdout.endswith(RESULT), child.stderr
    assert (tmp_path / "data" / "test.txt").stat().st_size
    assert (tmp_path / "predictions").exists() == (len(commands) > 1)
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


DAMAGES = [(suffix, damage) for suffix in (".nbi", ".nbc") for damage in (emptied, truncated, other_bytes, a_directory)]
FORKS = """
    import os, sys
    import numba
    import holobind  # which imports no kernel yet
    for folder in {folders!r}:
        sys.stdout.flush()
        if os.fork() == 0:
            os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = folder
            sys.stdout = open(folder + ".out", "w")
            os.dup2(os.open(folder + ".err", os.O_CREAT | os.O_WRONLY), 2)
{kernel}
            sys.stdout.flush()
            os._exit(0)
        os.wait()
"""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A copy of a filled cache for each damage, after a process has used it. All are forks of one interpreter."""
    place = tmp_path_factory.mktemp("numba")
    assert run_child(KERNEL, NUMBA_CACHE_DIR=str(place / "warm")).returncode == 0 and compiled_files(place / "warm")
    folders = [place / str(number) for number in range(len(DAMAGES))]
    for folder, (suffix, damage) in zip(folders, DAMAGES, strict=True):
        shutil.copytree(place / "warm", folder)
        for file in compiled_files(folder):
            if file.suffix == suffix:
                damage(file)
    kernel = textwrap.indent(textwrap.dedent(KERNEL), " " * 12)
    child = run_child(
        FORKS.format(folders=list(map(str, folders)), kernel=kernel), NUMBA_CACHE_DIR=str(place / "unused")
    )
    assert child.returncode == 0, child.stderr
    return folders


@pytest.mark.parametrize("number", range(len(DAMAGES)), ids=[f"{suffix} {d.__name__}" for suffix, d in DAMAGES])
def test_damaged_files_of_the_cache_are_compiled_again(damaged, number):
    folder, (_, damage) = damaged[number], DAMAGES[number]
    assert folder.with_suffix(".out").read_text() == RESULT, folder.with_suffix(".err").read_text()
    if damage is not a_directory:  # it is replaced
        assert folder.with_suffix(".err").read_text() == ""
        assert all(file.stat().st_size > 50 for file in compiled_files(folder))


def _twice_indented(code):
    return "\n".join("    " + line for line in code.splitlines())


def test_no_module_uses_the_cache_of_numba_unguarded():
    for file in Path(holobind.__file__).parent.rglob("*.py"):
        assert "njit" not in file.read_text() or file.name == "_jit.py", file
