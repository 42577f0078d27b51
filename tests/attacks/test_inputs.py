"""Hostile data files: each gets one clear line, in bounded memory and time."""

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
from helpers.child import run_child
from helpers.commands import is_one_line_error, run
from helpers.twins import nearest
from scipy import sparse

import holobind as hb
from holobind import data
from holobind.cli import stream
from holobind.data import _block_reader, files, sparse_text
from holobind.data._block_reader import nearest_float32
from holobind.data.label_texts import read_label_texts
from holobind.data.npz import read_npz
from holobind.errors import DataError, HolobindError
from holobind.training.config import split_options

MEMORY_BYTES = 3 << 30  # address space of a process that reads a hostile file; the libraries alone take half of it


def refused(path, **options):
    """The message of the error that reading a file gives; it has one line."""
    with pytest.raises(HolobindError) as caught:
        data.load(path, cache=False, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500 + len(str(path))
    return message


# Files that expand


def bomb(compress, n_bytes):
    """A text of `n_bytes` that is one repeated row, compressed."""
    row = b"0 0:1\n"
    return compress(row * (n_bytes // len(row)))


def bz2_bomb():
    """Some kilobytes that expand to 5 GB: streams of bzip2 may follow each other."""
    return bz2.compress(b"0 0:1\n") + bz2.compress(b"\n" * 10_000_000) * 500


BOMBS = ("train.txt.bz2", "train.jsonl.bz2", "train_texts.txt.bz2", "train.tsv.bz2")


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """What a process with little memory says to each file."""
    folder = tmp_path_factory.mktemp("bombs")
    (folder / "train_labels.txt.bz2").write_bytes(bz2.compress(b"a\n"))
    for name in BOMBS:
        (folder / name).write_bytes(bz2_bomb())
        assert (folder / name).stat().st_size < 50_000
    code = f"""
        import sys
        from holobind.cli.main import main
        for name in {BOMBS!r}:
            sys.argv = ["holobind", "data", "stats", name, "--quiet"]
            try:
                main()
            except SystemExit as ended:
                print(name, ended.code)
    """
    child = run_child(code, max_bytes=MEMORY_BYTES, cwd=folder)
    assert child.returncode == 0, child.stderr
    return dict(line.split() for line in child.stdout.splitlines()), child.stderr.splitlines()


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_expands_to_gigabytes_is_refused(bombs, name):
    codes, (*lines,) = bombs
    (line,) = (line for line in lines if line.startswith(f"holobind: {name}: "))
    assert codes[name] == "2" and len(lines) == len(BOMBS)
    assert "it expands to more than" in line and "--max-uncompressed 20GB" in line


@pytest.mark.parametrize("limit", [None, 10**8])
def test_the_option_reaches_the_word_vectors(tmp_path, monkeypatch, limit):
    """A model of texts reads two compressed files: the data, here a small one, and the word vectors."""
    monkeypatch.setattr(files, "MIN_EXPANSION_BYTES", 1000)
    (tmp_path / "words.vec.gz").write_bytes(gzip.compress(b"read 1 2\n" + b"other 3 4\n" * 10_000))
    (tmp_path / "texts.jsonl").write_text('{"text": "read", "labels": ["a"]}\n' * 20)
    options = {"network": "cnn", "filters": 2, "hidden": (4,), "epochs": 1}
    split = data.load(tmp_path / "texts.jsonl", cache=False).train
    config = split_options({**options, "word_vectors": tmp_path / "words.vec.gz"})
    if limit is None:
        with pytest.raises(DataError, match=r"words.vec.gz.*expands to more than"):
            hb.learn(split, *config)
    else:
        network = hb.learn(split, *config, max_uncompressed=limit).network
        assert network.config()["deep"]["embedding_dim"] == 2


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_the_limit_follows_from_the_size_and_an_option_raises_it(tmp_path, monkeypatch, suffix, compress):
    monkeypatch.setattr(files, "MIN_EXPANSION_BYTES", 10_000)
    path = tmp_path / f"points.txt{suffix}"
    path.write_bytes(bomb(compress, 10**6))
    limit = max(10_000, 100 * path.stat().st_size)
    assert limit < 10**6 and f"it expands to more than {limit:,} bytes" in refused(path)
    assert len(data.load(path, cache=False, max_uncompressed=10**6).train) == 166_666
    assert "more than 999,000 bytes" in refused(path, max_uncompressed=999_000)
    with pytest.raises(DataError, match="more than 500 bytes"):
        list(stream.read_chunks(path, 500))
    assert sum(map(len, stream.read_chunks(path, 10**6))) == 999_996


def test_a_compression_ratio_of_real_data_is_accepted(tmp_path):
    path = tmp_path / "points.txt.gz"
    path.write_bytes(bomb(gzip.compress, 10**6))  # 300 times smaller, but not large
    assert len(data.load(path, cache=False).train) == 166_666


# Counts that are lies


@pytest.mark.parametrize(
    "content",
    [
        b"2 2147483647 2147483647\n0 0:1\n1 1:1\n",
        b"2 5 2147483647\n0 0:1\n1 1:1\n",
        b"# 2 2147483647 5\n0 0:1\n1 1:1\n",
        b"0 0:1\n2147483646 1:1\n",
        b"0 0:1\n1 2147483646:1\n",
    ],
    ids=["header", "labels", "features", "label id", "feature id"],
)
def test_a_small_file_cannot_have_billions_of_features_or_labels(tmp_path, content):
    for path in (tmp_path / "points.txt", tmp_path / "points.txt.gz"):
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        began = time.perf_counter()
        message = refused(path)
        assert "a file of this size may have 16777216; --max-uncompressed 2GB" in message
        assert message.startswith(str(path)) and time.perf_counter() - began < 5
        found = data.load(path, cache=False, max_uncompressed=2**31)
        assert max(found.n_features, found.n_labels) == 2**31 - 1


def test_the_line_of_an_id_that_is_too_large_is_named(tmp_path):
    (tmp_path / "points.txt").write_bytes(b"0 0:1\n1 2147483646:1\n")
    assert "points.txt:2: feature '2147483646' is outside" in refused(tmp_path / "points.txt")


def test_a_larger_file_may_have_as_many_labels_as_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MIN_ID_LIMIT", 10)
    (tmp_path / "points.txt").write_bytes(b"13 0:1\n11 1:1\n")
    assert data.load(tmp_path / "points.txt", cache=False).n_labels == 14
    (tmp_path / "points.txt").write_bytes(b"14 0:1\n11 1:1\n")
    refused(tmp_path / "points.txt")


# Numbers of many digits: Python converts none of more than 4,300


LONG = b"9" * 5000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LONG + b" 3 3\n0 0:1\n", "points.txt:1: the header has 9999"),
        (b"1 " + LONG + b" 3\n0 0:1\n", "points.txt:1: the header has 9999"),
        (LONG + b" 0:1\n", "points.txt:1: label '9999"),
        (b"0 " + LONG + b":1\n", "points.txt:1: feature '9999"),
        (b"0 0:" + LONG + b"\n", "is too large for float32"),
        (b"0 0:1e" + LONG + b"\n", "is too large for float32"),
        (b"0 " + b"0" * 5000 + b"1:1 1:2\n", "feature 1 occurs twice"),
    ],
)
def test_numbers_of_thousands_of_digits_are_refused(tmp_path, content, message):
    (tmp_path / "points.txt").write_bytes(content)
    assert message in refused(tmp_path / "points.txt")


@pytest.mark.parametrize(
    "text",
    [
        "0." + "1" * 5000,
        "1" + "0" * 5000 + "e-5000",
        "0." + "0" * 9000 + "1e9001",
        "1e-" + "0" * 5000 + "5",
        "1.000000059604644775390625" + "0" * 5000 + "1",  # just above the mean of two float32
        "1.000000059604644775390625" + "0" * 5000,  # the mean
        "1.000000059604644775390624" + "9" * 5000,
        "1e-" + "9" * 5000,
    ],
    ids=lambda text: f"{text[:12]}-{len(text)}",
)
def test_a_value_of_thousands_of_digits_is_still_the_nearest_float32(text, tmp_path):
    (tmp_path / "points.txt").write_text(f"0 0:{text}\n")
    found = data.load(tmp_path / "points.txt", cache=False).train.X.data[0]
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        expected = nearest(text) if "9" * 5000 not in text or text[1] == "." else np.float32(0)
    finally:
        sys.set_int_max_str_digits(limit)
    assert found == expected == nearest_float32(text)


def test_split_files_with_long_numbers_are_refused(tmp_path):
    (tmp_path / "Toy_data.txt").write_text("2 3 2\n0 0:1\n1 1:1\n")
    (tmp_path / "toy_trSplit.txt").write_text("1\n" + "9" * 5000 + "\n")
    (tmp_path / "toy_tstSplit.txt").write_text("2\n")
    assert "toy_trSplit.txt:2" in refused(tmp_path)


# Lines


@pytest.mark.parametrize("name", ["points.txt", "points.jsonl", "points.tsv"])
def test_a_line_that_is_too_long_is_refused(tmp_path, monkeypatch, name):
    for module in (files, _block_reader):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 4096)
    monkeypatch.setattr("holobind.data.text_files.MAX_LINE_BYTES", 4096)
    monkeypatch.setattr(_block_reader, "BLOCK_BYTES", 1024)
    (tmp_path / name).write_bytes(b"0 0:1\n" * (name == "points.txt") + b"a" * 20_000 + b"\n")
    assert "the line has more than 4096 bytes; is this the right file?" in refused(tmp_path / name)


def worst_order(n):
    """Ids that make a Shell sort with halved gaps compare O(n^2) pairs: large and small ones in turn."""
    return np.stack([np.arange(n // 2, n), np.arange(n // 2)], 1).ravel()


def test_no_order_of_features_makes_a_row_slow(tmp_path):
    ids = worst_order(1 << 20)
    (tmp_path / "points.txt").write_text("0 " + " ".join(f"{i}:1" for i in ids.tolist()) + "\n")
    sparse_text.parse_features([b"1:1 0:1"], 2, "warm")  # compiles
    began = time.perf_counter()
    X = data.load(tmp_path / "points.txt", cache=False).train.X
    assert time.perf_counter() - began < 10  # a minute and more with halved gaps
    assert np.array_equal(X.indices, np.arange(1 << 20))


# What is not a file


def test_pipes_and_devices_are_refused_as_data(tmp_path):
    os.mkfifo(tmp_path / "points.txt")
    for name in ("points.txt", "points.jsonl", "X.trn.npz", "train_texts.txt"):
        if not (tmp_path / name).exists():
            os.mkfifo(tmp_path / name)
        assert "a pipe or a device, not a file; save the data to a file, or pipe lines to" in refused(tmp_path / name)
    assert "a pipe or a device" in refused("/dev/zero")


@pytest.mark.parametrize("verb", [["data", "stats"], ["train", "--out", "/tmp/none"]])
def test_standard_input_as_data_is_refused(capsys, verb):
    first, last = os.pipe()
    try:
        assert is_one_line_error(run(capsys, *verb, f"/dev/fd/{first}"), "save the data to a file")
    finally:
        os.close(first)
        os.close(last)


def test_a_pipe_can_be_predicted_from(tmp_path):
    os.mkfifo(tmp_path / "lines")
    writer = subprocess.Popen(["sh", "-c", f"echo text > {tmp_path / 'lines'}"])
    assert b"".join(stream.read_chunks(tmp_path / "lines")) == b"text\n"
    assert writer.wait() == 0


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "\udcff"])
def test_a_name_that_no_file_can_have_is_an_error(path):
    refused(path)


# Characters


@pytest.mark.parametrize("record", [{"text": "\ud800", "labels": ["a"]}, {"text": "a", "labels": ["b\udfff"]}])
def test_half_a_surrogate_pair_is_refused_with_its_line(tmp_path, record):
    (tmp_path / "points.jsonl").write_text('{"text": "a", "labels": ["a"]}\n' + json.dumps(record) + "\n")
    assert "points.jsonl:2: it has half a surrogate pair" in refused(tmp_path / "points.jsonl")


def test_a_label_with_a_line_break_is_refused_before_training(tmp_path):
    (tmp_path / "points.jsonl").write_text(json.dumps({"text": "a", "labels": ["a\nb"]}) + "\n")
    assert "points.jsonl:1: the label 'a\\nb' contains a line break" in refused(tmp_path / "points.jsonl")
    dataset = hb.data.synthetic("bibtex", scale=0.02)
    others = list(map(str, range(dataset.n_labels - 1)))
    for name in ("two\nlines", "\ud800", "x" * 10**6):
        with pytest.raises(DataError, match=r"line break|surrogate|too long"):
            hb.learn(dataset.train, label_names=[name, *others])
    with pytest.raises(DataError, match="line break"):
        hb.data.Dataset(dataset.train, None, ["two\nlines", *others])


# Damaged archives


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
@pytest.mark.parametrize("name", ["points.txt", "points.jsonl"])
def test_every_truncated_or_damaged_file_is_one_line(tmp_path, name, suffix, compress):
    line = b"0 0:1\n" if name == "points.txt" else b'{"text": "a b", "labels": ["x"]}\n'
    content = compress(line * 200)
    path = tmp_path / f"{name}{suffix}"
    generator = np.random.default_rng(0)
    for size in range(0, len(content) - 1, 5):
        path.write_bytes(content[:size])
        refused(path)
    for _ in range(60):
        changed = bytearray(content)
        changed[generator.integers(len(content))] ^= 1 << generator.integers(8)
        path.write_bytes(changed)
        try:
            data.load(path, cache=False)
        except DataError as error:
            assert "\n" not in str(error)


# Matrices


def npz(path, compress_type=zipfile.ZIP_STORED, **arrays):
    """A file like scipy's, with any arrays, or bytes in place of an array."""
    with zipfile.ZipFile(path, "w", compress_type) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            if isinstance(array, bytes):
                content.write(array)
            else:
                np.lib.format.write_array(content, np.asanyarray(array))
            archive.writestr(f"{name}.npy", content.getvalue())
    return path


def claim(shape, dtype="<f4"):
    """The header of an array that has no content."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"shape": shape, "fortran_order": False, "descr": dtype})
    return content.getvalue()


VALID = {"indices": [0, 1], "indptr": [0, 1, 2], "data": [1.0, 2.0], "shape": [2, 3], "format": b"csr"}


@pytest.mark.parametrize(
    "changed",
    [
        {"data": claim((10**12,))},
        {"indices": claim((2**40, 2**20), "<i8")},
        {"data": claim((2,), "|O")},
        {"shape": [2, 2**31]},
        {"shape": [2**40, 3]},
        {"shape": [2, -3]},
        {"shape": [2.5, 3]},
        {"shape": [2, 3, 4]},
        {"indptr": np.array([0, 2**63 - 1, -2], np.int64)},
        {"indptr": [0, 2**62, 2]},
        {"indptr": [0, -1, 2]},
        {"indices": [0, 10**6]},
        {"indices": [0, -1]},
        {"format": b"csc", "indptr": [0, 2**40, 1, 2], "shape": [2, 3]},
        {"format": b"csc", "indptr": [0, 1, 2, 2], "indices": [0, 10**9]},
        {"format": b"coo", "row": [0, 10**9], "col": [0, 1]},
        {"format": b"coo", "row": [0, -5], "col": [0, 1]},
        {"format": b"bsr", "data": np.ones((2, 1, 1)), "indices": [0, 10**9]},
        {"format": b"exec"},
        {"data": [1.0, np.nan]},
        {"data": ["a", "b"]},
        {"data": [1j, 2]},
        {"data": b"no array"},
    ],
    ids=lambda changed: "-".join(f"{k}={str(v)[:20]}" for k, v in changed.items()),
)
def test_a_hostile_matrix_is_refused(tmp_path, changed):
    path = npz(tmp_path / "X.trn.npz", **{**VALID, **changed})
    with pytest.raises(DataError) as caught:
        read_npz(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_valid_matrices_of_all_formats_are_read(tmp_path):
    dense = np.array([[0, 2, 0, 1], [1, 0, 0, 0]], np.float32)
    for kind in ("csr", "csc", "coo", "bsr", "dia"):
        sparse.save_npz(tmp_path / "X.trn.npz", sparse.coo_array(dense).asformat(kind))
        assert np.array_equal(read_npz(tmp_path / "X.trn.npz").toarray(), dense)


def test_a_zip_bomb_of_arrays_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MIN_EXPANSION_BYTES", 10_000)
    path = npz(tmp_path / "X.trn.npz", zipfile.ZIP_DEFLATED, **{**VALID, "data": np.zeros(10**6)})
    with pytest.raises(DataError, match="it expands to more than"):
        read_npz(path)


def test_compressions_without_a_limit_and_encryption_are_refused(tmp_path):
    path = npz(tmp_path / "X.trn.npz", zipfile.ZIP_BZIP2, **VALID)
    with pytest.raises(DataError, match="a compression other than deflate"):
        read_npz(path)
    content = bytearray(npz(path, **VALID).read_bytes())
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # local and central headers
        at = content.find(magic)
        while at >= 0:
            content[at + flags] |= 1
            at = content.find(magic, at + 1)
    path.write_bytes(content)
    with pytest.raises(DataError, match="is encrypted"):
        read_npz(path)


# Options


@pytest.mark.parametrize(("text", "size"), [("20GB", 20 * 10**9), ("5m", 5 * 10**6), ("7", 7), ("1kb", 1000)])
def test_sizes_are_read(text, size):
    from holobind.cli.arguments import byte_size

    assert byte_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1e9", "9" * 5000, "1.5GB", "٣"])
def test_other_sizes_are_one_line(capsys, text, tmp_path):
    (tmp_path / "points.txt").write_text("0 0:1\n")
    result = run(capsys, "data", "stats", tmp_path / "points.txt", f"--max-uncompressed={text}")
    assert is_one_line_error(result, "write it like 500MB or 20GB")


# Label texts


@pytest.mark.parametrize("depth", [9, 100, 600, 100_000])
@pytest.mark.parametrize(("before", "after"), [("[", "]"), ('{"name": ', "}")], ids=["lists", "objects"])
def test_label_texts_in_lists_without_end_are_refused_in_one_line(tmp_path, depth, before, after):
    path = tmp_path / "names.json"
    path.write_text('{"a": ' + before * depth + '"x"' + after * depth + "}")
    with pytest.raises(DataError, match=r"names.json: ('a': lists of label texts are nested|not JSON)") as refused:
        read_label_texts(path)
    assert "\n" not in str(refused.value)
    path.write_text('{"a": ' + before * 8 + '"x"' + after * 8 + "}")
    assert read_label_texts(path).by_label == {"a": ["x"]}
