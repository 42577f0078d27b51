"""Rows of delimited text are those of Python's csv; what csv reads leniently or wrongly is an error of one line."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holobind.data import files
from holobind.data.tables.delimited import find_delimiter, split_rows, split_tabs
from holobind.data.tables.lines import Lines
from holobind.errors import DataError

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


def rows_of(text, delimiter=",", size=7):
    data = text.encode()
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    return [row for _, row in split_rows(Lines(chunks, "t.csv"), delimiter)]


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=1, max_size=5),
    st.sampled_from(",;\t|"),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 50),
)
def test_what_csv_writes_is_read_back(rows, delimiter, quoting, end, size):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
    written = file.getvalue()
    if not written.startswith("\ufeff"):  # the mark of UTF-8 is not part of the first cell
        assert rows_of(written, delimiter, size) == rows


def test_a_quote_inside_a_plain_field_is_a_character():
    assert rows_of('a 5" pipe,tools\n') == [['a 5" pipe', "tools"]]
    assert [row for _, row in split_tabs(Lines([b'"a"\tb\n'], "t.tsv"))] == [['"a"', "b"]]


def test_rows_have_the_number_of_their_first_line():
    lines = Lines([b'a,b\n\n"x\ny",z\nlast,row\n'], "t.csv")
    assert list(split_rows(lines, ",")) == [(1, ["a", "b"]), (3, ["x\ny", "z"]), (5, ["last", "row"])]


def test_invalid_rows_are_errors_in_their_place():
    first, second, third = rows_of('"a"b,c\nx\0y,z\nfine,row\n')
    assert "t.csv:1: field 1 goes on after its closing quote" in str(first)
    assert "t.csv:2: it has a NUL byte" in str(second) and third == ["fine", "row"]
    assert "more than 10,000 fields" in str(rows_of("," * 10_000)[0])


@pytest.mark.parametrize("rest", ["", "more\n" * 2000])
def test_a_quote_that_is_never_closed_names_its_row(monkeypatch, rest):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 4096)
    with pytest.raises(DataError, match=r"t.csv:2: a quote that is opened in this row is never closed"):
        rows_of(f'a,b\nx,"y\n{rest}', size=1000)


def test_the_delimiter_is_the_most_frequent_one_outside_of_quotes():
    assert [find_delimiter(h) for h in ("a,b", "a;b,c;d", "a\tb", '"a,b,c";d', "text")] == [",", ";", "\t", ";", ","]
