"""Label texts and the labels of a dataset: found by name, URI or order; new labels come after the others."""

import numpy as np
import pytest
from helpers.label_texts import split

import holobind as hb
from holobind.data.label_texts import LabelTexts, match_labels, with_label_texts
from holobind.errors import DataError


def test_labels_are_found_by_their_key_with_or_without_brackets():
    found = match_labels(LabelTexts({"u:1": ["cats"], "u:2": ["dogs"], "u:3": ["birds"]}), ["<u:2>", "u:1", "u:9"], 3)
    assert found.texts == [["dogs"], ["cats"], ["u:9"], ["birds"]]  # a label without a text is called by its name
    assert found.names == ["<u:2>", "u:1", "u:9", "u:3"] and found.n_matched == 2


def test_labels_are_found_by_their_name_and_new_ones_are_called_by_theirs():
    texts = LabelTexts(
        {"u:1": ["cats", "felines"], "u:2": ["dogs"], "u:3": ["birds"], "u:4": ["bats"], "u:5": ["bats"]}
    )
    found = match_labels(texts, ["dogs <u:2>", "cats"], 2)  # as `--label-names` calls labels whose names occur twice
    assert found.texts == [["dogs"], ["cats", "felines"], ["birds"], ["bats"], ["bats"]]
    assert found.names == ["dogs <u:2>", "cats", "birds", "bats <u:4>", "bats <u:5>"]


def test_lines_are_the_texts_of_labels_in_order():
    found = match_labels(LabelTexts(in_order=[["a"], ["b"], ["c"]]), None, 2)
    assert found.texts == [["a"], ["b"], ["c"]] and found.names is None
    assert match_labels(LabelTexts(in_order=[["a"], ["b"], ["c"]]), ["x", "c"], 2).names == ["x", "c", "c <label 2>"]


def test_a_dataset_gets_the_labels_that_it_does_not_have():
    data = hb.data.Dataset(split(), split(), [f"label {i}" for i in range(30)])
    wider, matched = with_label_texts(data, LabelTexts({"label 3": ["three"], "new": ["something new"]}))
    assert wider.n_labels == 31 and wider.test.Y.shape[1] == 31 and len(matched.texts) == 31
    assert wider.label_names[-1] == "new" and np.array_equal(wider.train.Y.indices, data.train.Y.indices)


@pytest.mark.parametrize(
    ("texts", "names", "message"),
    [
        (LabelTexts({"a": ["b"]}), None, "2 labels have no names to find their texts by"),
        (LabelTexts({"a": ["b"]}), ["x", "y"], "none of the data's 2 labels, such as 'x', is among the 1 with a text"),
        (LabelTexts(in_order=[["a"]]), None, "1 lines for 2 labels"),
    ],
)
def test_texts_that_belong_to_no_label_are_refused(texts, names, message):
    with pytest.raises(DataError, match=message):
        match_labels(texts, names, 2)
