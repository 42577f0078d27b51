"""Predictions for streams: one for every line, in order, as soon as the line arrives; errors name their line."""

import gzip
import io
import json
import os
import sys
import threading

import numpy as np
import pytest
from scipy import sparse

import holobind as hb
from holobind.cli import stream
from holobind.data import Split, Tfidf
from holobind.data.csr import from_label_ids
from holobind.data.sparse_text import parse_features
from holobind.errors import DataError, OptionError

TEXTS = ["red apple", "green apple", "red car", "fast car", "green tree", "old tree", "fast red car", "an old apple"]
NAMES = ["apple", "car", "tree", "red"]


@pytest.fixture(scope="module")
def text_model():
    """A model that reads texts."""
    tfidf, X = Tfidf.fit(TEXTS)
    Y = from_label_ids([[i for i, name in enumerate(NAMES) if name in text.split()] for text in TEXTS], 4)
    return hb.learn(Split(X, Y, TEXTS), hb.ModelConfig(l2=0.1), label_names=NAMES, tfidf=tfidf)


@pytest.fixture(scope="module")
def feature_model():
    """A model that reads features, whose labels have no names, and its test split."""
    dataset = hb.data.synthetic("bibtex", scale=0.05)
    return hb.learn(dataset.train, hb.ModelConfig(l2=1.0)), dataset.test


def predict(model, text, **options):
    chunks = [text] if isinstance(text, bytes) else text
    return Predictions(one for batch in stream.predictions(model, chunks, **options) for one in batch)


class Predictions(list):
    """Predictions that equal others with the same labels and errors, and scores that differ by rounding only.

    The FFT of several rows may differ from that of one row by its last bit.
    """

    __hash__ = None

    def __eq__(self, other):
        return len(self) == len(other) and all(map(self.same, self, other))

    @staticmethod
    def same(a, b):
        if "error" in a or "error" in b:
            return a == b
        pairs = list(zip(a["labels"], b["labels"], strict=False))
        return len(a["labels"]) == len(b["labels"]) and all(
            x["label"] == y["label"] and abs(x["score"] - y["score"]) < 2e-6 for x, y in pairs
        )


def lines_of(split, n):
    """The first n rows as XML-Repository lines and as JSON lines."""
    X = split.X[:n]
    entries = [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
        for a, b in zip(X.indptr, X.indptr[1:], strict=False)
    ]
    xml = [" ".join(f"{f}:{v!r}" for f, v in row) for row in entries]
    records = [json.dumps({"features": {str(f): v for f, v in reversed(row)}}) for row in entries]
    return xml, records


def test_predictions_of_text_and_json_lines_are_those_of_the_model(text_model):
    scores, ids = text_model.top_k(TEXTS, 3)
    expected = [
        {"labels": [{"label": NAMES[i], "score": round(float(s), 6)} for s, i in zip(*row, strict=True)]}
        for row in zip(scores, ids, strict=True)
    ]
    assert [sorted(one["labels"], key=str) for one in expected] != sorted(map(str, expected))
    for text in ("\n".join(TEXTS), "\n".join(TEXTS) + "\n", "\ufeff" + "\r\n".join(TEXTS)):
        assert predict(text_model, text.encode(), k=3) == expected
    lines = "\n".join(json.dumps({"text": text, "labels": "?"}) for text in TEXTS)
    assert predict(text_model, lines.encode(), k=3) == expected


def test_predictions_of_sparse_and_json_features_are_those_of_the_model(feature_model):
    model, split = feature_model
    xml, records = lines_of(split, 40)
    scores, ids = model.top_k(split.X[:40], 5)
    for lines in (xml, records, [f"1,3 {line}" for line in xml], [f"40 {split.X.shape[1]} 8", *xml]):
        found = predict(model, "\n".join(lines).encode())
        assert [[one["label"] for one in prediction["labels"]] for prediction in found] == ids.tolist()
        np.testing.assert_allclose([[one["score"] for one in a["labels"]] for a in found], scores, atol=2e-6)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_predictions_do_not_depend_on_the_sizes_of_chunks(feature_model, monkeypatch, size):
    model, split = feature_model
    monkeypatch.setattr(stream, "MAX_BATCH_LINES", 5)
    text = "\n".join(lines_of(split, 23)[0]).encode()
    whole = predict(model, text)
    assert len(whole) == 23
    assert predict(model, (text[i : i + size] for i in range(0, len(text), size))) == whole


def test_every_line_has_its_prediction_before_more_is_read(text_model):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield f"red apple {read}\n".encode() * 3

    batches = stream.predictions(text_model, endless())
    for n in range(1, 50):
        assert len(next(batches)) == 3 and read == n


def test_lines_of_a_slow_pipe_get_their_predictions_at_once(text_model, monkeypatch):
    out, into = os.pipe()
    with open(out, encoding="utf-8") as reading, open(into, "wb", buffering=0) as writing:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", reading)
        timeout = threading.Timer(60, writing.close)  # a reader that waits for a full chunk must fail, not hang
        timeout.daemon = True
        timeout.start()
        batches = stream.predictions(text_model, stream.read_chunks(None), k=1)
        for text, label in (("old tree", "tree"), ("fast car", "car")):
            writing.write(f"{text}\n".encode())
            assert [a["labels"][0]["label"] for a in next(batches)] == [label]
        timeout.cancel()


def test_a_line_that_says_nothing_is_marked_and_not_answered(text_model, feature_model):
    found = predict(text_model, b'{"text": "red"}\n{"text": "qwertz"}\n{"text": ""}\n')
    assert found[0]["labels"] and "unknown" not in found[0]
    assert list(found[1:]) == [{"labels": [], "unknown": "no known word"}] * 2
    model, split = feature_model
    found = predict(model, "\n".join([lines_of(split, 3)[0][0], "", "0:0"]).encode())
    assert found[0]["labels"] and list(found[1:]) == [{"labels": [], "unknown": "no features"}] * 2


def test_an_empty_line_is_a_row_without_features(text_model, feature_model):
    assert len(predict(text_model, b"\n\nred\n")) == 3
    model, split = feature_model
    xml = lines_of(split, 3)[0]
    found = predict(model, "\n".join([xml[0], "", " ", xml[1]]).encode())
    assert (
        len(found) == 4
        and found[1] == found[2]
        and Predictions(found[::3]) == predict(model, "\n".join(xml[:2]).encode())
    )
    assert predict(model, b"") == []


def test_threshold_and_label_ids(text_model):
    found = predict(text_model, b"old tree\n", threshold=0.5, names=False)
    assert [one["label"] for one in found[0]["labels"]] == [2]
    assert predict(text_model, b"old tree\n", threshold=9.0) == [{"labels": []}]
    assert len(predict(text_model, b"old tree\n", k=1000)[0]["labels"]) == len(NAMES)


INVALID_RECORDS = {
    "[1, 2": "not JSON",
    "[1, 2]": "found [1, 2]",
    '{"text": 3}': 'found {"text": 3}',
    '{"features": {"-1": 1}}': "feature '-1' is not an id from 0 to",
    '{"features": {"01": 1}}': "feature '01' is not",
    '{"features": {"99999": 1}}': "feature '99999' is not",
    '{"features": {"' + "9" * 5000 + '": 1}}': "is not an id from 0 to",
    '{"features": {"1": "x"}}': "has the value x",
    '{"features": {"1": NaN}}': "has the value nan",
    '{"features": {"1": 1e300}}': "has the value 1e+300",
    '{"features": {"1": true}}': "has the value True",
    "[" * 100_000: "not JSON",
}
INVALID_ROWS = {
    "1:x": "'1:x' does not end in a finite number",
    "99999:1": "feature '99999' is outside this space of 92 features (0 to 91); the model reads 92",
    "1:1 1:2": "feature 1 occurs twice",
    "words": "is neither labels",
    "# comment": "a comment",
}


@pytest.mark.parametrize("invalid", [*INVALID_RECORDS, *INVALID_ROWS])
@pytest.mark.parametrize("at", [0, 3, 9])
def test_the_error_of_an_invalid_line_comes_after_all_predictions_before_it(feature_model, invalid, at):
    model, split = feature_model
    lines = lines_of(split, 10)[invalid in INVALID_RECORDS]
    format_name = "jsonl" if invalid in INVALID_RECORDS else "xml"
    message = (INVALID_RECORDS | INVALID_ROWS)[invalid]
    good = predict(model, "\n".join(lines).encode())
    text = "\n".join([*lines[:at], invalid, *lines[at:]]).encode()
    found = []
    with pytest.raises(DataError) as error:
        for batch in stream.predictions(model, [text], format=format_name, source="new.txt"):
            found += batch
    assert (
        Predictions(found) == good[:at]
        and str(error.value).startswith(f"new.txt:{at + 1}: ")
        and message in str(error.value)
    )
    errors = []
    skipped = predict(model, text, format=format_name, source="new.txt", on_error=errors.append)
    assert skipped == [*good[:at], {"error": str(error.value)}, *good[at:]] and [str(e) for e in errors] == [
        str(error.value)
    ]


def test_many_invalid_lines_keep_their_places(feature_model):
    model, split = feature_model
    xml = lines_of(split, 30)[0]
    lines = [line if i % 3 else "oops" for i, line in enumerate(xml)]
    found = predict(model, "\n".join(lines).encode(), format="xml", on_error=lambda error: None)
    whole = predict(model, "\n".join(xml).encode())
    assert ["error" in prediction for prediction in found] == [i % 3 == 0 for i in range(30)]
    assert all(Predictions.same(found[i], whole[i]) for i in range(30) if i % 3)


def test_input_that_a_model_cannot_read_is_an_error(text_model, feature_model):
    model, _ = feature_model
    with pytest.raises(DataError, match=r'stdin:1: found .*; expected {"features"'):
        predict(model, b'{"text": "red"}\n')
    with pytest.raises(OptionError, match="reads 92 features, not texts"):
        predict(model, b"red\n", format="text")
    with pytest.raises(OptionError, match="format 'docx' is unknown"):
        predict(model, b"red\n", format="docx")
    with pytest.raises(OptionError, match="reads 92 features, not texts"):
        predict(model, b"id,text\n1,red\n", format="csv")
    with pytest.raises(DataError, match="the header declares 7 features; this model reads 92"):
        predict(model, b"1 7 3\n1 0:1\n")
    with pytest.raises(DataError, match=r"the header declares 7 features; .* made from texts; give it the texts"):
        predict(text_model, b"1 7 3\n1 0:1\n")
    with pytest.raises(DataError, match="stdin:1: "):  # features are not taken for a text of numbers
        predict(text_model, b"3,5 0:0.5 999:1e-2\n")
    with pytest.raises(DataError, match="stdin:2: the line is not UTF-8"):
        predict(text_model, b"red\n\xff\xfe\n")
    with pytest.raises(DataError, match="stdin:1: the line has more than"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "MAX_LINE_BYTES", 100)
        predict(text_model, [b"x" * 60, b"y" * 60])


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_files_are_decompressed(tmp_path, ending):
    from holobind.data.files import OPEN_COMPRESSED

    path = tmp_path / f"lines.txt{ending}"
    with OPEN_COMPRESSED.get(ending, open)(path, "wb") as file:
        file.write(b"red\ngreen\n" * 1000)
    assert b"".join(stream.read_chunks(path)) == b"red\ngreen\n" * 1000
    if ending:
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(DataError, match=r"lines.txt.* ends too early|damaged"):
            list(stream.read_chunks(path))


def test_features_of_lines_are_those_of_the_file_reader(tmp_path):
    dataset = hb.data.synthetic("bibtex", scale=0.05)
    hb.data.write(dataset, tmp_path / "toy")
    _, *lines = (tmp_path / "toy" / "test.txt").read_bytes().splitlines()
    found = parse_features(lines, dataset.n_features, "x")
    assert isinstance(found, sparse.csr_array) and (found != dataset.test.X).nnz == 0


def test_a_damaged_compressed_stream_yields_what_comes_before_the_damage(text_model, tmp_path):
    raw = io.BytesIO()
    rng = np.random.default_rng(0)
    with gzip.GzipFile(fileobj=raw, mode="wb") as file:
        file.writelines(f"{number}\n".encode() for number in rng.integers(10**9, size=300_000))
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(raw.getvalue()[: len(raw.getvalue()) // 2])
    chunks = stream.read_chunks(path)
    assert next(chunks)
    with pytest.raises(DataError, match="ends too early"):
        list(chunks)


def test_tables_are_read_by_their_fields_and_ids_come_back(text_model):
    plain = predict(text_model, "\n".join(TEXTS[:3]).encode(), k=1)
    csv = "id,text,tags\n" + "".join(f"q{i},{text},x\n" for i, text in enumerate(TEXTS[:3]))
    fasttext = "".join(f"__label__x {text}\n" for text in TEXTS[:3])
    annif = "".join(f"{text}\t<http://ex.org/a>\n" for text in TEXTS[:3])
    records = "".join(json.dumps({"id": i, "title": text}) + "\n" for i, text in enumerate(TEXTS[:3]))
    layouts = []
    found = predict(text_model, csv.encode(), k=1, on_layout=layouts.append)
    assert found == plain and [one["id"] for one in found] == ["q0", "q1", "q2"]
    assert [layout.describe() for layout in layouts] == ["CSV: text in 'text', ids in 'id'"]
    assert predict(text_model, fasttext.encode(), k=1) == plain and predict(text_model, annif.encode(), k=1) == plain
    found = predict(text_model, records.encode(), k=1)
    assert found == plain and [one["id"] for one in found] == [0, 1, 2]


def test_a_csv_file_without_usual_names_does_not_get_a_prediction_for_its_header(text_model):
    with pytest.raises(DataError, match="has no usual name of a field"):
        predict(text_model, b"Titel,Nummer\nred apple,1\n", source="x.csv")
    fields = stream.TableOptions.of(text_field="Titel", id_field="Nummer")
    assert [one["id"] for one in predict(text_model, b"Titel,Nummer\nred,1\n", source="x.csv", fields=fields)] == ["1"]
    found = predict(text_model, b"text,id\nred,1\nred\ngreen,3\n", source="x.csv", on_error=lambda error: None)
    assert ["error" in one for one in found] == [False, True, False]
