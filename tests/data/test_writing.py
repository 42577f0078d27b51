"""Every format is written, and read back as the same dataset."""

import numpy as np
import pytest
from helpers.datasets import assert_same, small_dataset
from helpers.twins import csr, identical
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from holobind import data
from holobind.data import Dataset, Split
from holobind.errors import DataError, OptionError


@pytest.mark.parametrize("compression", ["", "gz", "xz", "bz2"])
@pytest.mark.parametrize("to", data.FORMATS)
def test_a_written_dataset_is_read_back(tmp_path, to, compression):
    dataset = small_dataset()
    data.write(dataset, tmp_path / "out", to, compression=compression)
    back = data.load(tmp_path / "out")
    assert_same(dataset, back, features=to in ("xml", "svmlight", "npz"))
    assert back.name == "out" and [f.name for f in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("to", ["xml", "svmlight", "npz"])
@pytest.mark.parametrize("test", [True, False])
def test_names_texts_and_test_split_are_optional(tmp_path, to, test):
    dataset = small_dataset(names=False, texts=False, test=test)
    data.write(dataset, tmp_path / "out", to)
    assert_same(dataset, data.load(tmp_path / "out"))


@pytest.mark.parametrize("source", data.FORMATS)
@pytest.mark.parametrize("target", data.FORMATS)
def test_every_format_is_converted_to_every_other(tmp_path, source, target):
    data.write(small_dataset(), tmp_path / "a", source)
    converted = data.convert(tmp_path / "a", tmp_path / "b", target)
    assert_same(converted, data.load(tmp_path / "b"), features=target in ("xml", "svmlight", "npz"))


@pytest.mark.parametrize("name", ["a.txt", "a.svm", "a.txt.gz", "a.jsonl", "a.tsv.xz"])
def test_a_single_file_is_a_dataset_without_a_test_split(tmp_path, name):
    dataset = small_dataset(test=False)
    data.write(dataset, tmp_path / name)
    back = data.load(tmp_path / name)
    assert back.test is None and len(back.train) == 3 and back.train.Y.nnz == 3
    with pytest.raises(OptionError, match="has a test split"):
        data.write(small_dataset(), tmp_path / name)
    with pytest.raises(OptionError, match="not of npz"):
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
def test_texts_are_read_back_or_refused(tmp_path_factory, points, names, to):
    texts = [text for text, _ in points]
    Y = csr([[(y, 1) for y in sorted(ys)] for _, ys in points], 4, np.int32)
    dataset = Dataset(Split(sparse.csr_array((len(texts), 0), dtype=np.float32), Y, texts), None, names)
    folder = tmp_path_factory.mktemp("texts", numbered=True) / "out"
    bad = {"text": "\n\r", "tsv": "\n\r\t", "jsonl": ""}[to]
    if any(c in text for c in bad for text in texts):
        with pytest.raises(DataError, match="write it as jsonl"):
            data.write(dataset, folder, to)
        assert not list(folder.parent.iterdir())
        return
    data.write(dataset, folder, to)
    back = data.load(folder)
    assert back.train.texts == texts and back.label_names == names and identical(back.train.Y, Y)


def test_nothing_is_left_after_an_error(tmp_path):
    with pytest.raises(DataError, match="no texts"):
        data.write(small_dataset(texts=False), tmp_path / "out", "jsonl")
    assert not list(tmp_path.iterdir())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(OptionError, match="already exists"):
        data.write(small_dataset(), tmp_path / "full")
    for options, message in (
        ({"to": "csv"}, "format 'csv' is unknown"),
        ({"compression": "zip"}, "compression 'zip' is unknown"),
    ):
        with pytest.raises(OptionError, match=message):
            data.write(small_dataset(), tmp_path / "new", **options)
    (tmp_path / "blocked").write_text("a file")
    with pytest.raises(DataError, match="blocked"):
        data.write(small_dataset(), tmp_path / "blocked" / "out")


@pytest.mark.parametrize("to", ["xml", "npz", "jsonl"])
def test_a_name_with_a_line_break_is_refused(tmp_path, to):
    dataset = small_dataset()
    dataset.label_names[2] = "two\nlines"
    with pytest.raises(DataError, match="line break"):
        data.write(dataset, tmp_path / "out", to)
    assert not list(tmp_path.iterdir())


def test_a_real_dataset_is_read_back_from_every_matrix_format(shared_data, tmp_path):
    dataset = data.load(shared_data / "bibtex")
    for to in ("xml", "svmlight", "npz"):
        data.write(dataset, tmp_path / to, to)
        assert_same(dataset, data.load(tmp_path / to))
