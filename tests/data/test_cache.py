"""The cache is used when it is right, and only then."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import identical

from holobind.data import cache, sparse_text


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sparse_text, "WORTH_CACHING", 0)
    path = tmp_path / "points.txt"
    path.write_bytes(b"2 5 4\n0,2 1:0.5 4:1\n1 0:2\n")
    return path


@pytest.fixture
def parses(monkeypatch):
    """How often a file was parsed."""
    calls = []
    parse = sparse_text._read
    monkeypatch.setattr(sparse_text, "_read", lambda *a, **k: calls.append(a) or parse(*a, **k))
    return calls


def test_a_second_read_comes_from_the_cache_and_is_the_same(source, parses):
    first, declared = sparse_text.read(source)
    second, again = sparse_text.read(source)
    assert len(parses) == 1 and declared is again is True
    assert identical(first.X, second.X) and identical(first.Y, second.Y)
    sparse_text.read(source, cache=False)
    assert len(parses) == 2


def test_other_options_are_another_cache(source, parses):
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
    part, _ = sparse_text.read(source)
    assert len(parses) == 2
    assert part.X.data[0] == np.float32(0.7 if change.startswith("content") else 0.5)


def test_every_damaged_byte_is_noticed(source, parses):
    right, _ = sparse_text.read(source)
    at = cache.location(source, one_based=False)
    stored = at.read_bytes()
    for place in range(len(stored)):
        damaged = bytearray(stored)
        damaged[place] ^= 1 << (place % 8)
        at.write_bytes(damaged)
        part, _ = sparse_text.read(source)
        assert identical(part.X, right.X) and identical(part.Y, right.Y)
    assert len(parses) == 1 + len(stored)  # parsed again each time, and stored again


@pytest.mark.parametrize("content", [b"", b"holobind cache 1", b"\x80\x04\x95", None])
def test_a_cut_or_foreign_cache_is_rebuilt(source, parses, content):
    sparse_text.read(source)
    at = cache.location(source, one_based=False)
    at.write_bytes(at.read_bytes()[:-1] if content is None else content)
    sparse_text.read(source)
    sparse_text.read(source)
    assert len(parses) == 2


@given(st.integers(1, 40_000), st.integers(0, 2**32 - 1))
def test_the_checksum_sees_a_change_and_an_exchange(size, seed):
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


def test_a_cache_that_cannot_be_written_is_no_reason_to_fail(source, monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "file" / "below"))
    assert len(sparse_text.read(source)[0]) == 2


def test_small_files_are_not_cached(source, monkeypatch):
    monkeypatch.undo()
    sparse_text.read(source)
    assert not cache.location(source, one_based=False).exists()


def test_the_place_of_the_cache_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.delenv("HOLOBIND_CACHE")
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory() == tmp_path / "holobind"
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "own"))
    assert cache.directory() == tmp_path / "own"


def test_a_file_takes_its_place_whole_or_not_at_all(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(KeyError), cache.replacing(target) as file:
        file.write(b"half")
        raise KeyError
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]
