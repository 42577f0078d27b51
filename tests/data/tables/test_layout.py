"""Fields of a table: the caller's, those with usual names, or a question; a record becomes a text and labels."""

import pytest

from holobind.data.tables.layout import Fields, Layout, choose_fields
from holobind.data.tables.options import TableOptions
from holobind.errors import DataError, OptionError


def choose(names, labelled=True, **options):
    return choose_fields("t.csv", names, TableOptions.of(**options), labelled=labelled)


@pytest.mark.parametrize(
    ("names", "text", "label", "id_"),
    [
        (["text", "labels"], [("text", 1)], "labels", None),
        (["id", "Title", "Tags"], [("Title", 1)], "Tags", "id"),
        (["title", "abstract", "subjects"], [("title", 1), ("abstract", 1)], "subjects", None),
        (["title", "text", "topic"], [("text", 1)], "topic", None),
        (["document_id", "text", "subject_uris"], [("text", 1)], "subject_uris", "document_id"),
        (["Frage", "labels"], [("Frage", 1)], "labels", None),
        (["text", "Thema"], [("text", 1)], "Thema", None),
    ],
)
def test_usual_names_are_known(names, text, label, id_):
    assert choose(names) == Fields(tuple(text), label, id_)


def test_the_caller_overrules_names():
    found = choose(["text", "labels", "a", "b"], text_field="a^3,b", label_field="b", id_field="text")
    assert found == Fields((("a", 3), ("b", 1)), "b", "text")
    assert choose(["Title", "x"], labelled=False, text_field=["title"]).text == (("Title", 1),)


def test_preferred_fields_are_taken_where_the_table_has_them():
    preferred = [["title", 2], ["text", 1]]
    assert choose(["title", "text", "label"], preferred=preferred).text == (("title", 2), ("text", 1))
    assert choose(["text", "label"], preferred=preferred).text == (("text", 1),)
    for invalid in ([["title", 0]], [["title", True]], "title", [[1, 1]], [], [["a", 1]] * 99):
        assert TableOptions.of(preferred=invalid).preferred is None


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["a", "b", "c"], {}, "t.csv: which of its fields 'a', 'b', 'c' holds the texts? pass --text-field NAME"),
        (["text", "b", "c"], {}, "holds the labels? pass --label-field NAME"),
        (["text", "b"], {"text_field": "c"}, "it has no field 'c'; its fields are 'text', 'b'"),
        ([f"f{i}" for i in range(99)], {}, "'f11' and 87 more holds the texts?"),
    ],
)
def test_what_cannot_be_told_is_asked_in_one_line(names, options, message):
    with pytest.raises(DataError) as caught:
        choose(names, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text_field", ["", "a,,b", "a^0", "a^x", [], ["x"] * 30])
def test_invalid_text_fields_are_refused(text_field):
    with pytest.raises(OptionError, match="--text-field"):
        TableOptions.of(text_field=text_field)


def test_fields_are_joined_in_order_as_often_as_they_weigh():
    layout = Layout("CSV", Fields((("title", 2), ("abstract", 1), ("year", 1)), None, "meta.id"))
    record = {"title": "T", "abstract": None, "year": 1999, "meta": {"id": 7}}
    assert layout.text_of(record) == "T T 1999" and layout.id_of(record) == 7
    assert layout.describe() == "CSV: text in 'title' (twice) and 'abstract' and 'year', ids in 'meta.id'"


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        ("a|b", ["a", "b"]),
        (" a | | b ", ["a", "b"]),
        ("", []),
        (None, []),
        (3, ["3"]),
        (3.0, ["3"]),
        (["a", 2], ["a", "2"]),
        ([{"uri": "http://a", "label": "A"}, {"label": "B"}], ["http://a", "B"]),
    ],
)
def test_labels_of_every_type(value, labels):
    layout = Layout("x", Fields((("t", 1),), "y", None), separator="|")
    assert layout.labels_of({"t": "", "y": value}) == labels


@pytest.mark.parametrize("value", [1.5, ["a", None], [["a"]], {"a": 1}, ["\ud800"], ["a\nb"]])
def test_what_is_no_label_is_refused(value):
    with pytest.raises(DataError):
        Layout("x", Fields((("t", 1),), "y", None)).labels_of({"y": value})
