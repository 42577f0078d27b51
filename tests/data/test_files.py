"""Compressed files are read like others, and files are replaced atomically."""

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from holobind.data import files
from holobind.errors import DataError

COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_is_decompressed_by_its_suffix(tmp_path, suffix):
    path = tmp_path / f"file.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](b"some text"))
    with files.open_binary(path) as (stream, fraction_read):
        assert stream.read() == b"some text" and fraction_read() == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "text.gz").write_bytes(b"no gzip")
    for name, message in (("nothing", "No such file"), ("text.gz", "not a .gz file")):
        with pytest.raises(DataError, match=f"{name}: {message}"), files.open_binary(tmp_path / name) as (stream, _):
            stream.read()


@pytest.mark.parametrize(
    ("name", "expected"), [("Train.TXT.gz", "train.txt"), ("a.XZ", "a"), ("b.txt", "b.txt"), (".gz", ".gz")]
)
def test_the_uncompressed_name_has_no_suffix_of_a_compression(name, expected):
    assert files.uncompressed_name(Path(name)) == expected


def test_an_excerpt_is_one_short_line():
    assert files.excerpt(b"text") == "'text'"
    for data in (b"x" * 10**6, b"\n\r\0\xff" * 100):
        assert (
            "\n" not in files.excerpt(data) and len(files.excerpt(data)) < 300 and files.excerpt(data).endswith("...'")
        )
