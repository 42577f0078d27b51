"""Hostile, stale and absent caches: the data is always that of the source, and no cache is no error."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers.twins import identical

from holobind import data
from holobind.data import cache, sparse_text
from holobind.data.tokenizer import Tokenizer

ROWS = b"2 5 4\n0,2 1:0.5 4:1\n1 0:2\n"
ARRAYS = {
    "X_data": np.array([0.5, 1, 2], np.float32),
    "X_indices": np.array([1, 4, 0], np.int32),
    "X_indptr": np.array([0, 2, 3], np.int32),
    "Y_indices": np.array([0, 2, 1], np.int32),
    "Y_indptr": np.array([0, 2, 3], np.int32),
}
METADATA = {"shape": [2, 5, 4], "has_header": True}


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sparse_text, "MIN_BYTES_TO_CACHE", 0)
    monkeypatch.setattr(cache, "_said", False)
    path = tmp_path / "points.txt"
    path.write_bytes(ROWS)
    return path


# Stale caches


def edit_in_place(path, at, content):
    """Change some bytes of a file; its size, and in the end its mtime, stay."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def large_text():
    return b"0 0:1\n" * 1_000_000


@pytest.mark.parametrize("at", [2, 70_000, 2_345_678, 5_999_998])
def test_an_edit_that_keeps_size_and_mtime_is_noticed(source, at):
    source.write_bytes(large_text())
    before = sparse_text.read(source)[0].X.data.copy()
    edit_in_place(source, at // 6 * 6 + 4, b"7")
    after = sparse_text.read(source)[0].X.data
    assert (before != after).sum() == 1 and after[at // 6] == 7


def test_another_file_of_the_same_name_size_time_and_samples_is_noticed(source):
    source.write_bytes(large_text())
    sparse_text.read(source)
    before = source.stat()
    other = source.with_name("other")
    other.write_bytes(large_text())
    edit_in_place(other, 6 * 12_345 + 4, b"7")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(source)
    assert sparse_text.read(source)[0].X.data[12_345] == 7


def test_the_hash_covers_all_of_a_file_up_to_4_mb_and_the_ends_of_a_larger_one(tmp_path):
    for size, places in (
        (4 << 20, range(0, 4 << 20, 199_999)),
        (9 << 20, (0, 65_535, (9 << 20) - 65_536, (9 << 20) - 1)),
    ):
        path = tmp_path / f"file-{size}"
        path.write_bytes(bytes(size))
        samples = {cache.fingerprint(path)["sample"]}
        for n, at in enumerate(places, 2):
            edit_in_place(path, at, b"x")
            samples.add(cache.fingerprint(path)["sample"])
            assert len(samples) == n


# Caches that somebody else wrote


def forge(source, metadata=METADATA, **changed):
    """Write a cache file with a valid digest and any arrays."""
    arrays = {name: array for name, array in (ARRAYS | changed).items() if array is not None}
    cache.write(cache.cache_path(source, one_based=False), cache.fingerprint(source), metadata, arrays)


def ints(*values, dtype=np.int32):
    return np.array(values, dtype)


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize(
    "changed",
    [
        {"X_indices": ints(1, 10**6, 0)},
        {"X_indices": ints(1, -1, 0)},
        {"X_indices": ints(4, 1, 0)},
        {"X_indices": ints(1, 1, 0)},
        {"X_indptr": ints(0, 2**31 - 1, 3)},
        {"X_indptr": ints(0, 2**63 - 1, 3, dtype=np.int64)},
        {"X_indptr": ints(0, -2, 3)},
        {"X_indptr": ints(0, 2, 10**9)},
        {"X_indptr": ints(0, 3)},
        {"Y_indices": ints(0, 4, 1)},
        {"Y_indptr": ints(1, 2, 3)},
        {"X_data": ARRAYS["X_data"].astype(np.float32)[:1]},
        {"X_data": ints(1, 2, 3)},
        {"X_data": np.array([1, np.nan, 1], np.float32)},
        {"Y_indptr": None},
        {"metadata": {"shape": [2, 5], "has_header": True}},
        {"metadata": {"shape": [2, 5, "x"], "has_header": True}},
        {"metadata": {"shape": [2, -5, 4], "has_header": True}},
        {"metadata": {"shape": [2, 5.5, 4], "has_header": True}},
        {"metadata": {"shape": [2, 2**32, 4], "has_header": True}},
        {"metadata": {"shape": [2, 5, 2**26], "has_header": True}},
        {"metadata": {"shape": [2, 5, 2**64], "has_header": True}},
        {"metadata": {"shape": [2**64, 5, 4], "has_header": True}},
        {"metadata": {"shape": None}},
        {"metadata": {}},
        {"metadata": []},
    ],
    ids=str,
)
def test_a_forged_cache_is_ignored_and_rebuilt(source, changed, memory_map):
    expected = sparse_text.read(source, cache=False)[0]
    forge(source, **changed)
    forged = cache.cache_path(source, one_based=False).read_bytes()
    split = sparse_text.read(source, memory_map=memory_map)[0]
    assert identical(split.X, expected.X) and identical(split.Y, expected.Y)
    assert cache.cache_path(source, one_based=False).read_bytes() != forged


def test_a_valid_cache_is_used(source):
    """The attacks above are refused for their arrays: this cache has other values, and is believed."""
    forge(source, X_data=np.array([3, 3, 3], np.float32))
    assert sparse_text.read(source)[0].X.data.tolist() == [3, 3, 3]


def header_bytes(source, arrays, key=None):
    text = json.dumps({"key": key or cache.fingerprint(source), "metadata": METADATA, "arrays": arrays}).encode()
    return cache.MAGIC + bytes(32) + len(text).to_bytes(8, "little") + text


def test_a_header_that_lies_is_ignored_before_anything_is_allocated(source):
    at = cache.cache_path(source, one_based=False)
    at.parent.mkdir(parents=True)
    nested = cache.MAGIC + bytes(32) + (100_000).to_bytes(8, "little") + b"[" * 100_000
    long_header = cache.MAGIC + bytes(32) + (2**63).to_bytes(8, "little")
    for content in (
        header_bytes(source, [["X_data", "<f4", 10**15]]),
        header_bytes(source, [["X_data", "<f4", 10**12], ["X_indices", "<f4", -(10**12)]]),
        header_bytes(source, [["X_data", "|O", 1]]),
        header_bytes(source, [["X_data", "<f4", 1.5]]),
        header_bytes(source, {"a": 1}),
        nested,
        long_header,
    ):
        at.write_bytes(content)
        assert cache.read(at, cache.fingerprint(source)) is None
        assert len(sparse_text.read(source)[0]) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_cache_of_another_user_is_ignored(source):
    forge(source, X_data=np.array([3, 3, 3], np.float32))
    os.chown(cache.cache_path(source, one_based=False), 12345, 12345)
    assert sparse_text.read(source)[0].X.data.tolist() == [0.5, 1, 2]


def test_a_cache_that_everybody_can_write_is_ignored(source):
    forge(source, X_data=np.array([3, 3, 3], np.float32))
    cache.cache_path(source, one_based=False).chmod(0o666)
    assert sparse_text.read(source)[0].X.data.tolist() == [0.5, 1, 2]


def test_a_pipe_in_place_of_the_cache_does_not_wait(source):
    at = cache.cache_path(source, one_based=False)
    at.parent.mkdir(parents=True)
    os.mkfifo(at)
    assert len(sparse_text.read(source)[0]) == 2


@pytest.mark.parametrize(
    "forged",
    [
        {"ids": ints(2, 10**9), "offsets": ints(0, 2, dtype=np.int64)},
        {"ids": ints(2, -1), "offsets": ints(0, 2, dtype=np.int64)},
        {"ids": ints(2, 2), "offsets": ints(0, 10**9, dtype=np.int64)},
        {"ids": ints(2, 2), "offsets": ints(0, 1, 2, dtype=np.int64)},
        {"ids": np.array([2, 2], np.float32), "offsets": ints(0, 2, dtype=np.int64)},
        {"ids": ints(2, 2)},
    ],
    ids=str,
)
def test_forged_tokens_are_ignored(monkeypatch, tmp_path, forged):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path))
    monkeypatch.setattr("holobind.data.tokenizer.MIN_CHARACTERS_TO_CACHE", 0)
    tokenizer = Tokenizer(["[PAD]", "[UNK]", "word"])
    expected = tokenizer.encode(["word word"])
    tokenizer.encode(["word word"], cache=True)
    (at,) = (tmp_path / "tokens").iterdir()
    header = json.loads(at.read_bytes()[56:].split(b"}}")[0].split(b', "metadata"')[0] + b"}")
    cache.write(at, header["key"], {}, forged)
    found = tokenizer.encode(["word word"], cache=True)
    assert np.array_equal(found.ids, expected.ids) and np.array_equal(found.offsets, expected.offsets)


# No cache


def run_without_cache(tmp_path, **environment):
    """Convert a dataset in a process that has no place for a cache."""
    (tmp_path / "points.txt").write_bytes(b"0 0:1\n" * 300_000)
    variables = {k: v for k, v in os.environ.items() if k not in ("HOME", "HOLOBIND_CACHE", "XDG_CACHE_HOME")}
    command = [sys.executable, "-m", "holobind", "data", "stats", str(tmp_path / "points.txt"), "--json"]
    variables |= {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)


def test_without_a_writable_cache_everything_works_with_one_line(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    done = run_without_cache(tmp_path, HOME=str(tmp_path / "file"))
    assert done.returncode == 0 and json.loads(done.stdout)["dataset"]["train points"] == 300_000
    lines = [line for line in done.stderr.splitlines() if " s: reading " not in line]  # progress, on a slow machine
    assert len(lines) == 1 and "so nothing is cached; HOLOBIND_CACHE can name another" in lines[0]


def test_without_a_home_there_is_no_cache(monkeypatch, source):
    monkeypatch.delenv("HOLOBIND_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert len(data.load(source).train) == 2
    assert len(data.load(source, memory_map=True).train) == 2
    assert not (source.parent / "~").exists()


def test_a_read_only_cache_is_said_once(source, monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "file"))
    for _ in range(3):
        assert len(sparse_text.read(source, memory_map=True)[0]) == 2
    assert len(caplog.records) == 1


def test_a_long_name_can_be_cached(source):
    long = source.with_name("ä" * 120 + ".txt")
    long.write_bytes(ROWS)
    sparse_text.read(long)
    assert cache.cache_path(long, one_based=False).is_file()


# Killed converts


KILLED = """
import os, signal, sys
from holobind import data
from holobind.data import writing
writing._write_lines = lambda path, lines: os.kill(os.getpid(), signal.SIGKILL)
dataset = data.synthetic("bibtex", scale=0.05)
data.write(data.Dataset(dataset.train, None, list(map(str, range(dataset.n_labels)))), sys.argv[1], "xml")
"""


def test_what_a_killed_convert_left_is_swept_by_the_next(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out")], timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 1
    data.write(data.synthetic("bibtex", scale=0.05), tmp_path / "next", "xml")
    assert [path.name for path in tmp_path.iterdir()] == ["next"]


def test_files_of_the_user_are_not_swept(tmp_path):
    old = time.time() - 10**7
    for name in (".next.abc123", ".holobind-1-mine.part", "notes.part"):
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (old, old))
    data.write(data.synthetic("bibtex", scale=0.05), tmp_path / "next", "xml")
    assert len(list(tmp_path.iterdir())) == 4
