"""The cache is used if it is intact and belongs to the file, and only then."""

import io
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.twins import identical
from hypothesis import given
from hypothesis import strategies as st

from holobind.data import cache, load, sparse_text
from holobind.data.batches import SparseExamples, ragged_labels
from holobind.data.csr import take_rows
from holobind.errors import OptionError


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sparse_text, "MIN_BYTES_TO_CACHE", 0)
    path = tmp_path / "points.txt"
    path.write_bytes(b"2 5 4\n0,2 1:0.5 4:1\n1 0:2\n")
    return path


@pytest.fixture
def parses(monkeypatch):
    """One entry for each time that a file is parsed."""
    calls = []
    parse = sparse_text.parse_file
    monkeypatch.setattr(sparse_text, "parse_file", lambda *a, **k: calls.append(a) or parse(*a, **k))
    return calls


def test_a_second_read_comes_from_the_cache_and_is_the_same(source, parses):
    first, declared = sparse_text.read(source)
    second, again = sparse_text.read(source)
    assert len(parses) == 1 and declared is again is True
    assert identical(first.X, second.X) and identical(first.Y, second.Y)
    sparse_text.read(source, cache=False)
    assert len(parses) == 2


def test_each_option_has_its_own_cache_file(source, parses):
    source.write_bytes(b"1 5 4\n1 1:1\n")
    assert sparse_text.read(source)[0].X.indices.tolist() == [1]
    assert sparse_text.read(source, one_based=True)[0].X.indices.tolist() == [0]
    assert len(parses) == 2


@pytest.mark.parametrize("change", ["content of the same size and time", "time", "size"])
def test_a_stale_cache_is_rebuilt(source, parses, change):
    before = source.stat()
    sparse_text.read(source)
    if change == "time":
        os.utime(source, ns=(0, before.st_mtime_ns + 1))
    elif change == "size":
        source.write_bytes(source.read_bytes() + b"\n")
        os.utime(source, ns=(0, before.st_mtime_ns))
    else:
        source.write_bytes(source.read_bytes().replace(b"0.5", b"0.7"))
        os.utime(source, ns=(0, before.st_mtime_ns))
    split, _ = sparse_text.read(source)
    assert len(parses) == 2
    assert split.X.data[0] == np.float32(0.7 if change.startswith("content") else 0.5)


def test_every_damaged_byte_is_detected(source, parses):
    expected, _ = sparse_text.read(source)
    at = cache.cache_path(source, one_based=False)
    stored = at.read_bytes()
    for position in range(len(stored)):
        damaged = bytearray(stored)
        damaged[position] ^= 1 << (position % 8)
        at.write_bytes(damaged)
        split, _ = sparse_text.read(source)
        assert identical(split.X, expected.X) and identical(split.Y, expected.Y)
    assert len(parses) == 1 + len(stored)  # parsed and stored again each time


@pytest.mark.parametrize("content", [b"", b"holobind cache 2", b"\x80\x04\x95", None])
def test_a_truncated_or_foreign_cache_file_is_rebuilt(source, parses, content):
    sparse_text.read(source)
    at = cache.cache_path(source, one_based=False)
    at.write_bytes(at.read_bytes()[:-1] if content is None else content)
    sparse_text.read(source)
    sparse_text.read(source)
    assert len(parses) == 2


def is_mapped(matrix):
    """Whether the entries of a matrix lie in a file."""
    return all(isinstance(base_of(array), mmap.mmap) for array in (matrix.indices, matrix.indptr))


def base_of(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return array


def test_a_memory_mapped_split_stays_in_the_cache_file_and_is_the_same(source, parses):
    expected, _ = sparse_text.read(source, cache=False)
    for _ in range(2):  # parsed into the cache, then found there
        split, declared = sparse_text.read(source, memory_map=True)
        assert is_mapped(split.X) and is_mapped(split.Y) and isinstance(base_of(split.X.data), mmap.mmap) and declared
        assert identical(split.X, expected.X) and identical(split.Y, expected.Y)
        assert not split.X.data.flags.writeable and split.Y.data.strides == (0,)  # the ones take no memory
        assert split.Y[[1, 0]].sum() == expected.Y.sum() and (split.Y.T @ split.X != expected.Y.T @ expected.X).nnz == 0
    assert len(parses) == 2


def test_rows_of_memory_mapped_matrices_are_those_of_matrices_in_memory(source):
    expected, split = sparse_text.read(source, cache=False)[0], sparse_text.read(source, memory_map=True)[0]
    index = np.array([1, 0, 1])
    for a, b in zip(SparseExamples(split.X).batch(index), SparseExamples(expected.X).batch(index), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(ragged_labels(split.Y, index), ragged_labels(expected.Y, index), strict=True):
        assert torch.equal(a, b)
    assert identical(take_rows(split.Y, index), expected.Y[index])


def test_every_damaged_byte_of_a_memory_mapped_cache_is_detected(source, parses):
    expected, _ = sparse_text.read(source, memory_map=True)
    at = cache.cache_path(source, one_based=False)
    stored = at.read_bytes()
    for position in range(0, len(stored), 3):
        damaged = bytearray(stored)
        damaged[position] ^= 1 << (position % 8)
        at.unlink()  # a mapped file must not be changed in place
        at.write_bytes(damaged)
        split, _ = sparse_text.read(source, memory_map=True)
        assert identical(split.X, expected.X) and identical(split.Y, expected.Y)
    assert len(parses) == 1 + len(range(0, len(stored), 3))


@given(st.integers(0, 40_000), st.integers(0, 2**32 - 1))
def test_a_checksum_in_chunks_is_that_of_the_whole(size, seed):
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    whole = cache._checksum(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "CHECKSUM_CHUNK_BYTES", 2 * cache.CHECKSUM_ROW_BYTES)
        assert cache._checksum(data) == whole
        assert cache._checksum_of(cache._file_chunks(io.BytesIO(data.tobytes()), size)) == whole


def test_a_text_is_parsed_into_temporary_files_as_into_memory(source):
    generator = np.random.default_rng(0)
    lines = (
        f"{','.join(map(str, generator.integers(0, 50, 3)))} {generator.integers(0, 99)}:0.5 {100 + i % 7}:{i}"
        for i in range(60_000)  # more than one block
    )
    source.write_text("\n".join(lines) + "\n")
    expected, split = sparse_text.read(source, cache=False)[0], sparse_text.read(source, memory_map=True)[0]
    assert identical(split.X, expected.X) and identical(split.Y, expected.Y) and is_mapped(split.X)


def test_memory_map_accepts_no_entries_but_needs_the_cache(source):
    source.write_bytes(b"2 5 4\n \n \n")
    assert sparse_text.read(source, memory_map=True)[0].X.shape == (2, 5)
    with pytest.raises(OptionError, match="memory_map maps the cache's files, so it needs cache=True"):
        load(source, cache=False, memory_map=True)
    assert load(source, memory_map=True).train.Y.shape == (2, 4)


LIMITED = """
import resource, sys
import numpy as np
import holobind as hb

source, points, each = sys.argv[1], int(sys.argv[2]), 64
def used():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
config = hb.ModelConfig(network="fc", loss="softmax", hidden=(4,), dim=8)
configs = config, hb.TrainConfig(epochs=1, batch_size=2048, patience=0)
hb.learn(hb.data.synthetic("bibtex", scale=0.1).train, *configs)  # loads every library that training needs
for size in (2, 64, 512):  # OpenBLAS allocates its buffers, of up to 64 MB on some processors, at a first product
    for dtype in (np.float32, np.float64):
        np.ones((size, size), dtype) @ np.ones((size, size), dtype) @ np.ones(size, dtype)
size = points * each * 8
resource.setrlimit(resource.RLIMIT_DATA, (used() + size // 2,) * 2)
try:
    np.ones(size // 8)
    raise SystemExit("there is no limit")
except MemoryError:
    pass
split = hb.data.load(source, memory_map=True).train
assert split.X.nnz == points * each
model = hb.learn(split, *configs)
assert model.evaluate(hb.data.Split(split.X[:100], split.Y[:100])).n_rows == 100
"""


def test_an_epoch_over_a_memory_mapped_file_fits_into_less_memory_than_the_file(source):
    """The matrices have 51 MB, and the process may allocate at most 26 MB more than it has before training."""
    points, each = 100_000, 64
    arrays = {
        "X_data": np.ones(points * each, np.float32),
        "X_indices": np.tile(np.arange(each, dtype=np.int32) * 3, points),
        "X_indptr": np.arange(points + 1, dtype=np.int32) * each,
        "Y_indices": (np.arange(points, dtype=np.int32) * 7) % 100,
        "Y_indptr": np.arange(points + 1, dtype=np.int32),
    }
    metadata = {"shape": [points, 200, 100], "has_header": True}
    cache.write(cache.cache_path(source, one_based=False), cache.fingerprint(source), metadata, arrays)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LIMITED, str(source), str(points)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@given(st.integers(1, 40_000), st.integers(0, 2**32 - 1))
def test_the_checksum_detects_a_change_and_an_exchange(size, seed):
    generator = np.random.default_rng(seed)
    data = generator.integers(0, 256, size, dtype=np.uint8)
    checksum = cache._checksum(data)
    a, b = generator.integers(0, size, 2)
    changed = data.copy()
    changed[a] ^= 1 << generator.integers(8)
    assert cache._checksum(changed) != checksum
    exchanged = data.copy()
    exchanged[[a, b]] = exchanged[[b, a]]
    assert (cache._checksum(exchanged) == checksum) == np.array_equal(exchanged, data)


def test_the_checksum_detects_exchanged_rows_and_columns():
    words = np.random.default_rng(0).integers(0, 2**63, (4, cache.CHECKSUM_COLUMNS), dtype=np.uint64)
    checksum = cache._checksum(words.view(np.uint8).ravel())
    for other in (words[[1, 0, 2, 3]], np.roll(words, 1, axis=1)):
        assert cache._checksum(np.ascontiguousarray(other).view(np.uint8).ravel()) != checksum


def test_a_cache_that_cannot_be_written_is_not_an_error(source, monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "file" / "below"))
    assert len(sparse_text.read(source)[0]) == 2


def test_small_files_are_not_cached(source, monkeypatch):
    monkeypatch.undo()
    sparse_text.read(source)
    assert not cache.cache_path(source, one_based=False).exists()


def test_the_cache_directory_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.delenv("HOLOBIND_CACHE")
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_dir() == tmp_path / "holobind"
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "own"))
    assert cache.cache_dir() == tmp_path / "own"
