"""Every format is loaded, and errors name the file and the line."""

import contextlib
import gzip
import re

import numpy as np
import pytest
from helpers.datasets import assert_same, small_dataset
from scipy import sparse

from holobind import data
from holobind.errors import DataError, HolobindError, LabelError, OptionError


def test_splits_without_a_header_get_the_shape_of_the_larger_one(tmp_path):
    (tmp_path / "train.txt").write_text("0 1:1\n")
    (tmp_path / "test.txt").write_text("4 0:1 6:1\n")
    dataset = data.load(tmp_path)
    assert dataset.n_features == 7 and dataset.n_labels == 5
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\ne\nf\n")
    assert data.load(tmp_path).n_labels == 6
    assert_same(data.load(tmp_path), data.load(tmp_path))
    two = data.load(tmp_path / "train.txt", tmp_path / "test.txt")
    assert two.n_labels == 5 and two.test is not None


def test_split_files_of_the_repository_are_read(tmp_path):
    (tmp_path / "Toy_data.txt").write_text("4 3 2\n0 0:1\n1 1:1\n0,1 2:1\n 0:3\n")
    (tmp_path / "toy_trSplit.txt").write_text("1 2\n3 1\n4 3\n")
    (tmp_path / "toy_tstSplit.txt").write_text("2 4\n")
    dataset = data.load(tmp_path)
    assert dataset.train.X.toarray().tolist() == [[1, 0, 0], [0, 0, 1], [3, 0, 0]]
    assert dataset.test is not None and dataset.test.Y.toarray().tolist() == [[0, 1]]
    (tmp_path / "toy_tstSplit.txt").write_text("5 4\n")
    with pytest.raises(DataError, match=r"toy_tstSplit.txt:1: '5' is not the number of a point \(1 to 4\)"):
        data.load(tmp_path)


@pytest.mark.parametrize("names", [("X.trn.npz", "Y.trn.npz"), ("toy_X_train.npz", "toy_Y_train.npz")])
def test_pairs_of_scipy_matrices_of_any_format_and_dtype_are_read(tmp_path, names):
    X = sparse.csc_matrix(np.array([[0, 2.0], [1, 0]]))
    Y = sparse.coo_matrix(np.array([[True, False], [False, False]]))
    for name, m in zip(names, (X, Y), strict=True):
        sparse.save_npz(tmp_path / name, m)
    for dataset in (data.load(tmp_path), data.load(tmp_path / names[0])):
        assert dataset.train.X.dtype == np.float32 and dataset.train.Y.dtype == np.int32
        assert dataset.train.X.toarray().tolist() == [[0, 2], [1, 0]]
        assert dataset.train.Y.toarray().tolist() == [[1, 0], [0, 0]]


def write_files(folder, **contents):
    for name, content in contents.items():
        target = folder / name.replace("__", ".")
        target.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({}, "there is no training split; expected train.txt"),
        ({"test__txt": "0 1:1\n"}, "there is no training split"),
        (
            {"train__txt": "1 2 2\n0 1:1\n", "test__txt": "1 3 2\n0 1:1\n"},
            "train has 2 features and 2 labels, test has 3 and 2",
        ),
        ({"train__txt": "0 1:1\n", "train__svm": "0 1:1\n"}, "both train.svm and train.txt could be the train split"),
        ({"train__txt": "1 2 2\n0 1:1\n", "labels__txt": "a\n"}, "there are 1 label names for 2 labels"),
        (
            {"train__txt": "1 2 2\n0 1:1\n", "train_texts__txt": "a\nb\n"},
            "the features have 1 rows and there are 2 texts",
        ),
        ({"train_texts__txt": "a\nb\n", "train_labels__txt": "x\n"}, "rows"),
        (
            {"train__jsonl": '{"text": "a", "labels": ["x"]}\n{"text": 1}\n'},
            'train.jsonl:2: expected {"text": "...", "labels"',
        ),
        ({"train__jsonl": '{"text": "a", "labels": ["x"]\n'}, "train.jsonl:1: not JSON"),
        ({"train__jsonl": ""}, "there are no training points"),
        ({"train__tsv": ""}, "there are no training points"),
        ({"train__jsonl": "[" * 100_000}, "train.jsonl:1: not JSON"),
        ({"train__jsonl": b'{"text": "\xff"}\n'}, "train.jsonl:1: not UTF-8 text"),
        (
            {"train__jsonl__gz": gzip.compress(b'{"text": "a", "labels": []}\n' * 99)[:-9]},
            "the .gz data is damaged or ends",
        ),
        ({"X__trn__npz": b"PK\x03\x04junk", "Y__trn__npz": b""}, "X.trn.npz: not a scipy sparse matrix"),
    ],
)
def test_an_invalid_directory_is_an_error_of_one_line(tmp_path, contents, message):
    write_files(tmp_path, **contents)
    with pytest.raises(HolobindError, match=re.escape(message)) as caught:
        data.load(tmp_path)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(tmp_path))


def test_a_label_name_that_is_not_in_labels_txt_is_an_error(tmp_path):
    write_files(tmp_path, train__tsv="some text\tx\ty\n", labels__txt="x\n")
    with pytest.raises(LabelError, match=r"label 'y' of point 1 is not among the 1 in labels.txt"):
        data.load(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_scipy_matrices_with_invalid_values_are_refused(tmp_path, value):
    sparse.save_npz(tmp_path / "X.trn.npz", sparse.csr_array(np.array([[1.0, value]])))
    sparse.save_npz(tmp_path / "Y.trn.npz", sparse.csr_array(np.array([[1, 0]])))
    with pytest.raises(DataError, match=r"nan or inf|too large for float32"):
        data.load(tmp_path)


@pytest.mark.parametrize(
    ("indices", "message"), [([0, 0], "the same column twice"), ([0, 9], "column 9 is outside of its 3 columns")]
)
def test_scipy_matrices_with_invalid_indices_are_refused(tmp_path, indices, message):
    arrays = {"indices": indices, "indptr": [0, 2], "data": [1.0, 2.0], "shape": [1, 3], "format": b"csr"}
    np.savez(tmp_path / "X.trn.npz", **arrays)
    sparse.save_npz(tmp_path / "Y.trn.npz", sparse.csr_array(np.array([[1, 0]])))
    with pytest.raises(DataError, match=message):
        data.load(tmp_path)


def test_damaged_npz_files_are_refused_or_read_correctly(tmp_path):
    dataset = small_dataset(names=False, texts=False, test=False)
    data.write(dataset, tmp_path / "out", "npz")
    file = tmp_path / "out" / "X.trn.npz"
    content = file.read_bytes()
    for size in range(0, len(content), 7):
        file.write_bytes(content[:size])
        with pytest.raises(DataError):
            data.load(tmp_path / "out")
    generator = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(content)
        changed[generator.integers(len(content))] ^= 1 << generator.integers(8)
        file.write_bytes(changed)
        with contextlib.suppress(DataError):
            assert_same(dataset, data.load(tmp_path / "out"))


def test_a_missing_path_and_a_second_test_split_are_errors(tmp_path):
    with pytest.raises(DataError, match="no such file or directory"):
        data.load(tmp_path / "nothing")
    with pytest.raises(OptionError, match="a directory with its own test split"):
        data.load(tmp_path, tmp_path)


REAL = {
    "bibtex": (4880, 2515, 1836, 159, 2.4),
    "delicious": (12920, 3185, 500, 983, 19.0),
    "mediamill-reduced": (1500, 500, 120, 101, 4.4),
    "cooking-stackexchange": (12404, 3000, 4201, 736, 2.3),
    "tibkat-core-en": (24164, 4025, 24459, 17569, 2.8),
}


@pytest.mark.parametrize("name", REAL)
def test_real_datasets_load(shared_data, name):
    dataset = data.load(shared_data / name)
    train, test, features, labels, labels_per_point = REAL[name]
    assert dataset.test is not None and (len(dataset.train), len(dataset.test)) == (train, test)
    assert (dataset.n_features, dataset.n_labels, len(dataset.label_names)) == (features, labels, labels)
    found = data.statistics(dataset)
    assert round(found["labels per point"], 1) == labels_per_point
    assert (dataset.texts is not None) == (name in ("cooking-stackexchange", "tibkat-core-en"))
