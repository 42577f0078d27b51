"""Tables in the formats that people have, read by content, described in one line; misreadings stop."""

import bz2
import gzip
import itertools
import json

import pytest

from holobind import data
from holobind.data import files
from holobind.errors import DataError, HolobindError, OptionError

TEXTS = ["red apple", 'green, "sour" apple', "a red car", "fast car", "old tree\twith a tab"]
LABELS = [["fruit", "red"], ["fruit"], ["car", "red"], ["car"], []]


def label_sets(dataset):
    ids, ends = dataset.train.Y.indices.tolist(), dataset.train.Y.indptr.tolist()
    return [sorted(dataset.label_names[i] for i in ids[a:b]) for a, b in itertools.pairwise(ends)]


def assert_read(path, description, texts=TEXTS, labels=LABELS, **options):
    dataset = data.load(path, **options)
    assert (dataset.train.texts, label_sets(dataset)) == (list(texts), [sorted(row) for row in labels])
    assert dataset.description == description


def refused(path, **options):
    with pytest.raises(HolobindError) as caught:
        data.load(path, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500 + len(str(path))
    return message


# Written by hand


def test_csv_with_every_delimiter_and_compression(tmp_path):
    for delimiter, kind in ((",", "CSV"), (";", "CSV with ';'"), ("\t", "TSV")):
        rows = [
            ["id", "title", "tags"],
            *([str(i), t, "|".join(y)] for i, (t, y) in enumerate(zip(TEXTS, LABELS, strict=True))),
        ]
        text = "".join(delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n" for row in rows)
        for suffix, compress in (("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)):
            path = tmp_path / f"books.csv{suffix}"
            path.write_bytes(compress(b"\xef\xbb\xbf" + text.encode()))
            assert_read(path, f"{kind}: 5 rows, text in 'title', labels in 'tags', separated by '|', ids in 'id'")


def test_columns_by_number_where_there_is_no_header(tmp_path):
    (tmp_path / "a.csv").write_text('"3","Wall St.","Bears"\n"1","Oil","Prices"\n')
    assert "has no usual name of a field" in refused(tmp_path / "a.csv")
    description = "CSV without a header: 2 rows, text in '2' (twice) and '3', labels in '1', one a row"
    texts = ["Wall St. Wall St. Bears", "Oil Oil Prices"]
    assert_read(tmp_path / "a.csv", description, texts, [["3"], ["1"]], text_field="2^2,3", label_field="1")


def test_json_lines_with_any_names(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [{"nr": i, "q": t, "meta": {"z": y}} for i, (t, y) in enumerate(zip(TEXTS, LABELS, strict=True))]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert "which of its fields 'nr', 'q', 'meta' holds the texts? pass --text-field NAME" in refused(path)
    description = "JSON lines: 5 rows, text in 'q', labels in 'meta.z', in lists"
    assert_read(path, description.replace(", in lists", ", one a row"), text_field="q", label_field="meta.z")
    path.write_text('{"text": "a", "labels": "x|y"}\n{"text": "b", "labels": "y"}\n')
    description = "JSON lines: 2 rows, text in 'text', labels in 'labels', separated by '|'"
    assert_read(path, description, ["a", "b"], [["x", "y"], ["y"]])
    path.write_text('{"text": "a", "labels": ["x|y"]}\n{"text": "b", "labels": ["y"]}\n')
    assert "--label-separator '|'" in refused(path)
    assert label_sets(data.load(path, label_separator="none")) == [["x|y"], ["y"]]
    annif = {
        "document_id": "d",
        "text": "a",
        "subjects": [{"uri": "http://x", "label": "X"}],
        "metadata": {"title": "t"},
    }
    path.write_text(json.dumps(annif) + "\n")
    assert label_sets(data.load(path)) == [["http://x"]]


def test_annifs_tsv_has_as_many_labels_as_uris(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_text('A "quoted" title\t<http://ex.org/a> <http://ex.org/b>\nAnother\t<http://ex.org/a>\n')
    description = "Annif's TSV: 2 rows, text in 'text', labels in 'subjects', separated by white space"
    labels = [["http://ex.org/a", "http://ex.org/b"], ["http://ex.org/a"]]
    assert_read(path, description, ['A "quoted" title', "Another"], labels)


def test_annifs_folder_has_a_text_and_its_subjects_in_two_files(tmp_path):
    for split in ("train", "test"):
        folder = tmp_path / split
        folder.mkdir()
        (folder / "a.txt").write_text("first line\nsecond line\n")
        (folder / "a.tsv").write_text("<http://ex.org/a>\tnetworking\n<http://ex.org/b>\tcomputers\n")
        (folder / "b.txt").write_text("\ufeffbook")
        (folder / "b.key").write_text("http://ex.org/b\n\n")
        (folder / "c.txt").write_text("without subjects")
    description = (
        "Annif's folder of texts: 2 rows, text in 'text', labels in 'subjects', in lists, ids in 'id', 1 texts "
    )
    labels = [["http://ex.org/a", "http://ex.org/b"], ["http://ex.org/b"]]
    texts = ["first line\nsecond line", "book"]
    assert_read(tmp_path / "train", description + "without subjects left out", texts, labels)
    both = data.load(tmp_path)
    assert both.test is not None and len(both.test) == 2 and both.train.texts == texts


def test_fasttexts_labels_are_not_words(tmp_path):
    path = tmp_path / "cooking.train"
    path.write_text(
        "__label__sauce __label__cheese How much starch ?\n__label__bread rise __label__flour dough\n\nplain\n"
    )
    description = "fastText: 3 rows, text in 'text', labels in '__label__', in lists"
    labels = [["sauce", "cheese"], ["bread", "flour"], []]
    assert_read(path, description, ["How much starch ?", "rise dough", "plain"], labels)


def test_the_format_overrules_the_content(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("text,labels\nred,x\n")
    assert "neither labels" in refused(path)  # a .txt file is one of features, unless its content shows another format
    assert_read(path, "CSV: 1 rows, text in 'text', labels in 'labels', one a row", ["red"], [["x"]], format="csv")
    path.write_text("title\ttags\nred\tx\n")
    assert_read(path, "TSV: 1 rows, text in 'title', labels in 'tags', one a row", ["red"], [["x"]])
    description = "TSV without a header: 2 rows, text in 'text', labels in 'labels', one a row"
    assert_read(path, description, ["title", "red"], [["tags"], ["x"]], format="tsv")
    with pytest.raises(OptionError, match=r"format 'docx' is unknown; choose one of xml, .*parquet"):
        data.load(path, format="docx")
    path.write_text("0 1:1\n")
    assert "is no table with fields" in refused(path, text_field="a")


def test_the_test_split_is_read_as_the_training_split(tmp_path):
    (tmp_path / "train.csv").write_text("title,abstract,tags\na,b,x|y\nc,d,y\n")
    (tmp_path / "test.csv").write_text("abstract,title,text,tags\nd,c,other,x\n")
    dataset = data.load(tmp_path)
    assert dataset.test.texts == ["c d"] and dataset.train.texts == ["a b", "c d"] and dataset.n_labels == 2
    assert dataset.description.endswith("separated by '|'; 1 test rows")
    again = data.load(tmp_path / "test.csv", preferred_text_field=dataset.layout.fields.text)
    assert again.train.texts == ["c d"]


# Misreadings


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.tsv", ["Thema\tlabels", *(f"text {i}\tx{i % 3}" for i in range(30))], "seems to be a header"),
        (
            "a.tsv",
            ["Titel\tThema", *(f"a text of some words, {i}\tx{i % 3}" for i in range(30))],
            "seems to be a header",
        ),
        ("a.tsv", [f"some text\tx{i} y{i} z{i}" for i in range(30)], "30 of its 30 labels occur once, at 1.00 labels"),
        ("a.tsv", [f"some text\t{y}" for y in ("a", "b", "c", "a b", "b c", "a c")] * 4, "--label-separator"),
        ("a.csv", ["Titel,Thema", "a,b"], "pass --text-field and --label-field with names of that row"),
        ("a.csv", ["text,text,labels", "a,b,c"], "the field 'text' is twice in its header"),
        ("a.csv", ["text,labels", "a,b,c"], "a.csv:2: the row has 3 fields, and 2 are expected"),
        ("a.csv", ["text,labels", "a"], "a.csv:2: the row has 1 fields"),
        ("a.csv", ["text,labels", "x\0y,b"], "a.csv:2: it has a NUL byte"),
        ("a.csv", ["text,labels", '"x,b'], "a.csv:2: a quote that is opened in this row is never closed"),
        ("a.csv", [], "there are no training points"),
        ("a.csv", ["text,labels"], "there are no training points"),
        ("a.json", ['[{"text": "a"}]'], "a JSON array; write one object a line"),
        (
            "a.jsonl",
            ['{"text": "a", "labels": ["x"]}', '{"text": "b"}'],
            'a.jsonl:2: expected {"text": "...", "labels"',
        ),
    ],
)
def test_a_misreading_stops_with_one_line_that_says_what_to_pass(tmp_path, name, lines, message):
    (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    assert message in refused(tmp_path / name)


def test_labels_that_are_unique_are_accepted_where_the_caller_says_so(tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"some text\tx{i} y{i}\n" for i in range(30)))
    assert data.load(tmp_path / "a.tsv", label_separator="none").n_labels == 30
    assert data.load(tmp_path / "a.tsv", label_separator=" ").n_labels == 60
    assert data.load(tmp_path / "a.tsv", label_separator="space").n_labels == 60


def test_a_compressed_file_of_empty_rows_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MIN_ROW_LIMIT", 2000)
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\n" + b"\n" * 2005))
    assert "it expands to more than 2,000 rows" in refused(path)


def test_a_field_larger_than_python_s_csv_allows_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f'text,labels\n"{"word " * 40_000}",x\n')
    assert len(data.load(path).train.texts[0]) == 200_000
    with pytest.raises(DataError):
        data.load(path, text_field="labels,nothing")
