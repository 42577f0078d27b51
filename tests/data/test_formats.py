"""Every format is read, written, and read back as the same dataset."""

import contextlib
import gzip
import re

import numpy as np
import pytest
from helpers.twins import csr, identical
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from holobind import data
from holobind.data import Dataset, Split
from holobind.errors import DataError, HolobindError, LabelError, OptionError

NAMES = ["\ufeffred wine", "Öl\u2028", "c++", "a,b", "0:1"]
TEXTS = {"train": ["\ufeffOne fish, two fish", "", " red\u2028fish "], "test": ["blue fish"]}


def sample(names=True, texts=True, test=True):
    def part(rows, seed):
        generator = np.random.default_rng(seed)
        X = sparse.random_array((len(rows), 7), density=0.5, format="csr", dtype=np.float32, rng=generator)
        X.sort_indices()
        side = "train" if seed == 0 else "test"
        return Split(X, csr([[(y, 1) for y in row] for row in rows], 5, np.int32), TEXTS[side] if texts else None)

    words = [f"word {i}" for i in range(7)]
    second = part([[4]], 1) if test else None
    return Dataset(part([[0, 3], [], [1]], 0), second, list(NAMES) if names else None, words if names else None)


def same(a, b, features=True):
    assert a.parts.keys() == b.parts.keys()
    for one, other in zip(a.parts.values(), b.parts.values(), strict=True):
        assert identical(one.Y, other.Y) and one.texts == other.texts
        assert not features or identical(one.X, other.X)
    assert a.label_names == b.label_names and (not features or a.feature_names == b.feature_names)


@pytest.mark.parametrize("packing", ["", "gz", "xz", "bz2"])
@pytest.mark.parametrize("to", data.FORMATS)
def test_what_is_written_is_read_back(tmp_path, to, packing):
    dataset = sample()
    data.write(dataset, tmp_path / "out", to, packing=packing)
    back = data.load(tmp_path / "out")
    same(dataset, back, features=to in ("xml", "svmlight", "npz"))
    assert back.name == "out" and [f.name for f in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("to", ["xml", "svmlight", "npz"])
@pytest.mark.parametrize("test", [True, False])
def test_names_texts_and_test_part_are_optional(tmp_path, to, test):
    dataset = sample(names=False, texts=False, test=test)
    data.write(dataset, tmp_path / "out", to)
    same(dataset, data.load(tmp_path / "out"))


@pytest.mark.parametrize("source", data.FORMATS)
@pytest.mark.parametrize("target", data.FORMATS)
def test_convert_goes_from_every_format_to_every_other(tmp_path, source, target):
    data.write(sample(), tmp_path / "a", source)
    converted = data.convert(tmp_path / "a", tmp_path / "b", target)
    same(converted, data.load(tmp_path / "b"), features=target in ("xml", "svmlight", "npz"))


@pytest.mark.parametrize("name", ["a.txt", "a.svm", "a.txt.gz", "a.jsonl", "a.tsv.xz"])
def test_a_single_file_is_a_dataset_without_a_test_part(tmp_path, name):
    dataset = sample(test=False)
    data.write(dataset, tmp_path / name)
    back = data.load(tmp_path / name)
    assert back.test is None and len(back.train) == 3 and back.train.Y.nnz == 3
    with pytest.raises(OptionError, match="has a test part"):
        data.write(sample(), tmp_path / name)
    with pytest.raises(OptionError, match="not like npz"):
        data.write(dataset, tmp_path / name, "npz")


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), max_size=8), st.sets(st.integers(0, 3))), min_size=1, max_size=6
    ),
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r"), min_size=1),
        min_size=4,
        max_size=4,
        unique=True,
    ),
    st.sampled_from(["text", "tsv", "jsonl"]),
)
def test_texts_come_back_or_are_refused(tmp_path_factory, points, names, to):
    texts = [text for text, _ in points]
    Y = csr([[(y, 1) for y in sorted(ys)] for _, ys in points], 4, np.int32)
    dataset = Dataset(Split(sparse.csr_array((len(texts), 0), dtype=np.float32), Y, texts), None, names)
    place = tmp_path_factory.mktemp("texts", numbered=True) / "out"
    bad = {"text": "\n\r", "tsv": "\n\r\t", "jsonl": ""}[to]
    if any(c in text for c in bad for text in texts):
        with pytest.raises(DataError, match="write it as jsonl"):
            data.write(dataset, place, to)
        assert not list(place.parent.iterdir())
        return
    data.write(dataset, place, to)
    back = data.load(place)
    assert back.train.texts == texts and back.label_names == names and identical(back.train.Y, Y)


def test_files_without_sizes_share_the_larger_space(tmp_path):
    (tmp_path / "train.txt").write_text("0 1:1\n")
    (tmp_path / "test.txt").write_text("4 0:1 6:1\n")
    dataset = data.load(tmp_path)
    assert dataset.n_features == 7 and dataset.n_labels == 5
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\ne\nf\n")
    assert data.load(tmp_path).n_labels == 6
    same(data.load(tmp_path), data.load(tmp_path))
    two = data.load(tmp_path / "train.txt", tmp_path / "test.txt")
    assert two.n_labels == 5 and two.test is not None


def test_the_repository_s_split_files_are_understood(tmp_path):
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
def test_pairs_of_scipy_matrices_are_read_whatever_their_type(tmp_path, names):
    X = sparse.csc_matrix(np.array([[0, 2.0], [1, 0]]))
    Y = sparse.coo_matrix(np.array([[True, False], [False, False]]))
    for name, m in zip(names, (X, Y), strict=True):
        sparse.save_npz(tmp_path / name, m)
    for dataset in (data.load(tmp_path), data.load(tmp_path / names[0])):
        assert dataset.train.X.dtype == np.float32 and dataset.train.Y.dtype == np.int32
        assert dataset.train.X.toarray().tolist() == [[0, 2], [1, 0]]
        assert dataset.train.Y.toarray().tolist() == [[1, 0], [0, 0]]


def files(place, **contents):
    for name, content in contents.items():
        target = place / name.replace("__", ".")
        target.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        ({}, "there is no training part; expected train.txt"),
        ({"test__txt": "0 1:1\n"}, "there is no training part"),
        (
            {"train__txt": "1 2 2\n0 1:1\n", "test__txt": "1 3 2\n0 1:1\n"},
            "train has 2 features and 2 labels, test has 3 and 2",
        ),
        ({"train__txt": "0 1:1\n", "train__svm": "0 1:1\n"}, "both train.svm and train.txt could be the train part"),
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
def test_a_wrong_directory_is_told_in_one_line(tmp_path, contents, says):
    files(tmp_path, **contents)
    with pytest.raises(HolobindError, match=re.escape(says)) as told:
        data.load(tmp_path)
    assert "\n" not in str(told.value) and str(told.value).startswith(str(tmp_path))


def test_a_label_name_that_is_not_listed_is_told(tmp_path):
    files(tmp_path, train__tsv="some text\tx\ty\n", labels__txt="x\n")
    with pytest.raises(LabelError, match=r"label 'y' of point 1 is not among the 1 in labels.txt"):
        data.load(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_scipy_matrices_with_wrong_values_are_refused(tmp_path, value):
    sparse.save_npz(tmp_path / "X.trn.npz", sparse.csr_array(np.array([[1.0, value]])))
    sparse.save_npz(tmp_path / "Y.trn.npz", sparse.csr_array(np.array([[1, 0]])))
    with pytest.raises(DataError, match=r"nan or inf|too large for float32"):
        data.load(tmp_path)


@pytest.mark.parametrize(
    ("indices", "says"), [([0, 0], "the same column twice"), ([0, 9], "not a scipy sparse matrix")]
)
def test_scipy_matrices_with_wrong_indices_are_refused(tmp_path, indices, says):
    arrays = {"indices": indices, "indptr": [0, 2], "data": [1.0, 2.0], "shape": [1, 3], "format": b"csr"}
    np.savez(tmp_path / "X.trn.npz", **arrays)
    sparse.save_npz(tmp_path / "Y.trn.npz", sparse.csr_array(np.array([[1, 0]])))
    with pytest.raises(DataError, match=says):
        data.load(tmp_path)


def test_npz_files_cut_anywhere_are_refused_or_right(tmp_path):
    dataset = sample(names=False, texts=False, test=False)
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
            same(dataset, data.load(tmp_path / "out"))


def test_nothing_is_left_when_writing_fails(tmp_path):
    with pytest.raises(DataError, match="no texts"):
        data.write(sample(texts=False), tmp_path / "out", "jsonl")
    assert not list(tmp_path.iterdir())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(OptionError, match="already exists"):
        data.write(sample(), tmp_path / "full")
    for options, says in (({"to": "csv"}, "format 'csv' is unknown"), ({"packing": "zip"}, "packing 'zip' is unknown")):
        with pytest.raises(OptionError, match=says):
            data.write(sample(), tmp_path / "new", **options)
    (tmp_path / "blocked").write_text("a file")
    with pytest.raises(DataError, match="blocked"):
        data.write(sample(), tmp_path / "blocked" / "out")


@pytest.mark.parametrize("to", ["xml", "npz", "jsonl"])
def test_a_name_with_a_line_break_is_refused(tmp_path, to):
    dataset = sample()
    dataset.label_names[2] = "two\nlines"
    with pytest.raises(DataError, match="line break"):
        data.write(dataset, tmp_path / "out", to)
    assert not list(tmp_path.iterdir())


def test_a_missing_path_and_two_test_parts_are_told(tmp_path):
    with pytest.raises(DataError, match="no such file or directory"):
        data.load(tmp_path / "nothing")
    with pytest.raises(OptionError, match="holds its own test part"):
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
    train, test, features, labels, labels_a_point = REAL[name]
    assert dataset.test is not None and (len(dataset.train), len(dataset.test)) == (train, test)
    assert (dataset.n_features, dataset.n_labels, len(dataset.label_names)) == (features, labels, labels)
    found = data.statistics(dataset)
    assert round(found["labels a point"], 1) == labels_a_point
    assert (dataset.texts is not None) == (name in ("cooking-stackexchange", "tibkat-core-en"))


def test_a_real_dataset_survives_every_matrix_format(shared_data, tmp_path):
    dataset = data.load(shared_data / "bibtex")
    for to in ("xml", "svmlight", "npz"):
        data.write(dataset, tmp_path / to, to)
        same(dataset, data.load(tmp_path / to))
