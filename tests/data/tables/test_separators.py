"""Labels of one field: what separates them is detected from the values, or an error says what to pass."""

import json
import random

import numpy as np
import pytest

from holobind.data.tables.separators import LIST, WHITE_SPACE, LabelCounter, check_single_items, find_separator, split
from holobind.errors import DataError

TAGS = ["sauce", "baking", "bread", "eggs", "meat", "food-safety"]


def rows(separator, n=200, seed=0):
    draw = random.Random(seed)
    return [separator.join(draw.sample(TAGS, draw.choice([1, 2, 3, 4]))) for _ in range(n)]


@pytest.mark.parametrize("separator", ["|", ";", "\t", ",", ", ", "; ", "\n"])
def test_separators_are_found(separator):
    values = rows(separator)
    found = find_separator(values, "t")
    assert found == separator.strip(" ")
    assert [split(value, found) for value in values] == [value.split(separator) for value in values]


def test_uris_are_separated_by_white_space_and_lose_their_brackets():
    values = ["<http://ex.org/a> <http://ex.org/b>", "<http://ex.org/a>", "http://ex.org/c"]
    assert find_separator(values, "t") == WHITE_SPACE
    assert split(values[0], WHITE_SPACE) == ["http://ex.org/a", "http://ex.org/b"]


@pytest.mark.parametrize("labels", [["a", "b c"], ["it's", 'say "x"'], [], ["back\\slash"], ["1", "2"]])
def test_lists_as_json_python_and_numpy_write_them_are_read(labels):
    for written in (json.dumps(labels), repr(labels), str(np.array(labels, dtype=object))):
        assert find_separator([written, "['z']"], "t") == LIST
        assert split(written, LIST) == labels
    with pytest.raises(DataError, match="is not a list of labels"):
        split("['a', __import__('os')]", LIST)


def test_names_with_commas_are_not_split_silently():
    places = [f"{city}, {land}" for city, land in zip("ABCDEFGHIJ", "abcdefghij", strict=True)] * 30
    assert find_separator(places, "t") is None  # each part has its own other part
    inverted = [f"{who}, {of}" for who in ("Authors", "Poets", "Kings", "Wars") for of in ("American", "English")] * 9
    with pytest.raises(DataError, match=r"t has commas, as in .*--label-separator ',' if .* --label-separator none"):
        find_separator(inverted, "t")
    assert find_separator(["red", "green"] * 60 + ["red, dark"], "t") is None  # one in a hundred


def test_words_that_are_labels_themselves_make_it_ask_about_spaces():
    with pytest.raises(DataError, match=r"t has spaces, as in .*--label-separator ' ' if it separates"):
        find_separator(rows(" "), "t")
    assert find_separator(["machine learning", "deep learning", "computer vision"] * 50, "t") is None


def test_labels_that_occur_once_each_stop():
    counter = LabelCounter.empty()
    for i in range(30):
        counter.add([f"a{i} b{i}"])
    with pytest.raises(DataError, match=r"t: 30 of its 30 labels occur once, at 1.00 labels a row, like 'a0 b0'"):
        counter.check("t")
    for i in range(30):
        counter.add([f"a{i} b{i}"])
    counter.check("t")
    few = LabelCounter.empty()
    few.add(["x"])
    few.check("t")


def test_lists_of_one_label_with_a_bar_in_it_stop():
    with pytest.raises(DataError, match=r"lists of one label, like 'a\|b'"):
        check_single_items([["a|b"], ["c"], []], "t")
    check_single_items([["a|b"], ["c", "d"]], "t")
