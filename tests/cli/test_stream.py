"""Labels for streams: every line answered, in order, as soon as it is there; mistakes named by their line."""

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
from holobind.data.sparse_text import features
from holobind.errors import DataError, OptionError

TEXTS = ["red apple", "green apple", "red car", "fast car", "green tree", "old tree", "fast red car", "an old apple"]
NAMES = ["apple", "car", "tree", "red"]


@pytest.fixture(scope="module")
def reader():
    """A model of texts."""
    tfidf, X = Tfidf.fit(TEXTS)
    Y = from_label_ids([[i for i, name in enumerate(NAMES) if name in text.split()] for text in TEXTS], 4)
    return hb.learn(Split(X, Y, TEXTS), hb.ModelConfig(l2=0.1), label_names=NAMES, tfidf=tfidf)


@pytest.fixture(scope="module")
def scorer():
    """A model of features, whose labels have no names."""
    dataset = hb.data.synthetic("bibtex", scale=0.05)
    return hb.learn(dataset.train, hb.ModelConfig(l2=1.0)), dataset.test


def answered(model, text, **options):
    pieces = [text] if isinstance(text, bytes) else text
    return Alike(answer for batch in stream.answers(model, pieces, **options) for answer in batch)


class Alike(list):
    """Answers that equal others with the same labels and errors, and scores that differ by rounding only.

    A transform of several rows may differ from that of one by its last bit.
    """

    __hash__ = None

    def __eq__(self, other):
        return len(self) == len(other) and all(map(self.one, self, other))

    @staticmethod
    def one(a, b):
        if "error" in a or "error" in b:
            return a == b
        pairs = list(zip(a["labels"], b["labels"], strict=False))
        return len(a["labels"]) == len(b["labels"]) and all(
            x["label"] == y["label"] and abs(x["score"] - y["score"]) < 2e-6 for x, y in pairs
        )


def rows(part, n):
    """The first rows as XML-Repository lines and as JSON lines."""
    X = part.X[:n]
    entries = [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
        for a, b in zip(X.indptr, X.indptr[1:], strict=False)
    ]
    xml = [" ".join(f"{f}:{v!r}" for f, v in row) for row in entries]
    records = [json.dumps({"features": {str(f): v for f, v in reversed(row)}}) for row in entries]
    return xml, records


def test_text_and_json_lines_have_the_answers_of_the_model(reader):
    scores, ids = reader.top_k(TEXTS, 3)
    expected = [
        {"labels": [{"label": NAMES[i], "score": round(float(s), 6)} for s, i in zip(*row, strict=True)]}
        for row in zip(scores, ids, strict=True)
    ]
    assert [sorted(answer["labels"], key=str) for answer in expected] != sorted(map(str, expected))
    for text in ("\n".join(TEXTS), "\n".join(TEXTS) + "\n", "\ufeff" + "\r\n".join(TEXTS)):
        assert answered(reader, text.encode(), k=3) == expected
    lines = "\n".join(json.dumps({"text": text, "labels": "?"}) for text in TEXTS)
    assert answered(reader, lines.encode(), k=3) == expected


def test_sparse_and_json_features_have_the_answers_of_the_model(scorer):
    model, part = scorer
    xml, records = rows(part, 40)
    scores, ids = model.top_k(part.X[:40], 5)
    for lines in (xml, records, [f"1,3 {line}" for line in xml], [f"40 {part.X.shape[1]} 8", *xml]):
        found = answered(model, "\n".join(lines).encode())
        assert [[one["label"] for one in answer["labels"]] for answer in found] == ids.tolist()
        np.testing.assert_allclose([[one["score"] for one in a["labels"]] for a in found], scores, atol=2e-6)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_order_and_count_do_not_depend_on_how_the_bytes_arrive(scorer, monkeypatch, size):
    model, part = scorer
    monkeypatch.setattr(stream, "BATCH", 5)
    text = "\n".join(rows(part, 23)[0]).encode()
    whole = answered(model, text)
    assert len(whole) == 23
    assert answered(model, (text[i : i + size] for i in range(0, len(text), size))) == whole


def test_every_line_is_answered_before_more_is_read(reader):
    read = 0

    def endless():
        nonlocal read
        while True:
            read += 1
            yield f"red apple {read}\n".encode() * 3

    batches = stream.answers(reader, endless())
    for n in range(1, 50):
        assert len(next(batches)) == 3 and read == n


def test_a_slow_pipe_is_answered_at_once(reader, monkeypatch):
    out, into = os.pipe()
    with open(out, encoding="utf-8") as asked, open(into, "wb", buffering=0) as asking:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", asked)
        late = threading.Timer(60, asking.close)  # a reader that waits for more must fail, not hang
        late.daemon = True
        late.start()
        batches = stream.answers(reader, stream.chunks(None), k=1)
        for text, label in (("old tree", "tree"), ("fast car", "car")):
            asking.write(f"{text}\n".encode())
            assert [a["labels"][0]["label"] for a in next(batches)] == [label]
        late.cancel()


def test_an_empty_line_is_a_row_without_features(reader, scorer):
    assert len(answered(reader, b"\n\nred\n")) == 3
    model, part = scorer
    xml = rows(part, 3)[0]
    found = answered(model, "\n".join([xml[0], "", " ", xml[1]]).encode())
    assert (
        len(found) == 4 and found[1] == found[2] and Alike(found[::3]) == answered(model, "\n".join(xml[:2]).encode())
    )
    assert answered(model, b"") == []


def test_threshold_and_numbers(reader):
    found = answered(reader, b"old tree\n", threshold=0.5, names=False)
    assert [one["label"] for one in found[0]["labels"]] == [2]
    assert answered(reader, b"old tree\n", threshold=9.0) == [{"labels": []}]
    assert len(answered(reader, b"old tree\n", k=1000)[0]["labels"]) == len(NAMES)


BAD_RECORDS = {
    "[1, 2": "not JSON",
    "[1, 2]": "found [1, 2]",
    '{"text": 3}': 'found {"text": 3}',
    '{"features": {"-1": 1}}': "feature '-1' is not a number from 0 to",
    '{"features": {"01": 1}}': "feature '01' is not",
    '{"features": {"99999": 1}}': "feature '99999' is not",
    '{"features": {"' + "9" * 5000 + '": 1}}': "is not a number from 0 to",
    '{"features": {"1": "x"}}': "has the value x",
    '{"features": {"1": NaN}}': "has the value nan",
    '{"features": {"1": 1e300}}': "has the value 1e+300",
    '{"features": {"1": true}}': "has the value True",
    "[" * 100_000: "not JSON",
}
BAD_ROWS = {
    "1:x": "'1:x' does not end in a finite number",
    "99999:1": "feature '99999' is outside this space of 92 features (0 to 91); the model reads 92",
    "1:1 1:2": "feature 1 occurs twice",
    "words": "is neither labels",
    "# comment": "a comment",
}


@pytest.mark.parametrize("bad", [*BAD_RECORDS, *BAD_ROWS])
@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_bad_line_is_named_after_all_answers_before_it(scorer, bad, at):
    model, part = scorer
    lines = rows(part, 10)[bad in BAD_RECORDS]
    form = "jsonl" if bad in BAD_RECORDS else "xml"
    says = (BAD_RECORDS | BAD_ROWS)[bad]
    good = answered(model, "\n".join(lines).encode())
    text = "\n".join([*lines[:at], bad, *lines[at:]]).encode()
    found = []
    with pytest.raises(DataError) as error:
        for batch in stream.answers(model, [text], form=form, where="new.txt"):
            found += batch
    assert Alike(found) == good[:at] and str(error.value).startswith(f"new.txt:{at + 1}: ") and says in str(error.value)
    told = []
    skipped = answered(model, text, form=form, where="new.txt", on_bad=told.append)
    assert skipped == [*good[:at], {"error": str(error.value)}, *good[at:]] and [str(e) for e in told] == [
        str(error.value)
    ]


def test_many_bad_lines_keep_their_places(scorer):
    model, part = scorer
    xml = rows(part, 30)[0]
    lines = [line if i % 3 else "oops" for i, line in enumerate(xml)]
    found = answered(model, "\n".join(lines).encode(), form="xml", on_bad=lambda error: None)
    whole = answered(model, "\n".join(xml).encode())
    assert ["error" in answer for answer in found] == [i % 3 == 0 for i in range(30)]
    assert all(Alike.one(found[i], whole[i]) for i in range(30) if i % 3)


def test_what_a_model_cannot_read_is_refused(reader, scorer):
    model, _ = scorer
    with pytest.raises(DataError, match=r'stdin:1: found .*; expected {"features"'):
        answered(model, b'{"text": "red"}\n')
    with pytest.raises(OptionError, match="reads 92 features, not texts"):
        answered(model, b"red\n", form="text")
    with pytest.raises(OptionError, match="format 'csv' is unknown"):
        answered(model, b"red\n", form="csv")
    with pytest.raises(DataError, match="the header says 7 features; this model reads 92"):
        answered(model, b"1 7 3\n1 0:1\n")
    with pytest.raises(DataError, match=r"the header says 7 features; .* which it makes of texts: give it those"):
        answered(reader, b"1 7 3\n1 0:1\n")
    with pytest.raises(DataError, match="stdin:1: "):  # features are not taken for a text of numbers
        answered(reader, b"3,5 0:0.5 999:1e-2\n")
    with pytest.raises(DataError, match="stdin:2: not UTF-8"):
        answered(reader, b"red\n\xff\xfe\n")
    with pytest.raises(DataError, match="stdin:1: a line of more than"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "LONGEST_LINE", 100)
        answered(reader, [b"x" * 60, b"y" * 60])


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_files_are_unpacked(tmp_path, ending):
    from holobind.data.sparse_text import PACKED

    path = tmp_path / f"lines.txt{ending}"
    with PACKED.get(ending, open)(path, "wb") as file:
        file.write(b"red\ngreen\n" * 1000)
    assert b"".join(stream.chunks(path)) == b"red\ngreen\n" * 1000
    if ending:
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(DataError, match=r"lines.txt.* ends too early|damaged"):
            list(stream.chunks(path))


def test_features_of_lines_are_those_of_the_reader(tmp_path):
    dataset = hb.data.synthetic("bibtex", scale=0.05)
    hb.data.write(dataset, tmp_path / "toy")
    _, *lines = (tmp_path / "toy" / "test.txt").read_bytes().splitlines()
    found = features(lines, dataset.n_features, "x")
    assert isinstance(found, sparse.csr_array) and (found != dataset.test.X).nnz == 0


def test_a_damaged_packed_stream_keeps_its_answers(reader, tmp_path):
    raw = io.BytesIO()
    rng = np.random.default_rng(0)
    with gzip.GzipFile(fileobj=raw, mode="wb") as file:
        file.writelines(f"{number}\n".encode() for number in rng.integers(10**9, size=300_000))
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(raw.getvalue()[: len(raw.getvalue()) // 2])
    pieces = stream.chunks(path)
    assert next(pieces)
    with pytest.raises(DataError, match="ends too early"):
        list(pieces)
