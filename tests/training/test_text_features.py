"""Features of texts in training: analyzers, and an encoder whose weight held-out rows choose."""

import json

import numpy as np
import pytest
from helpers.commands import is_one_line_error, run
from helpers.encoders import DIM, WORDS, write_encoder

import holobind as hb
from holobind.data import Split, Tfidf
from holobind.data.csr import from_arrays, from_label_ids
from holobind.data.sentence_encoder import SentenceEncoder
from holobind.training.text_features import choose_weight

NAMES = WORDS[:6]
DRAW = np.random.default_rng(0)
TEXTS = [" ".join(DRAW.choice(WORDS[:9], size=3)) for _ in range(60)]
LABELS = [[i for i, name in enumerate(NAMES) if name in text.split()] for text in TEXTS]
Y = from_label_ids(LABELS, len(NAMES))
NO_FEATURES = from_arrays(np.empty(0, np.float32), np.empty(0), np.zeros(61), (60, 0))
SPLIT = Split(NO_FEATURES, Y, TEXTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder") / "small")


@pytest.fixture(scope="module")
def model(folder):
    return hb.learn(SPLIT, hb.ModelConfig(encoder=folder, encoder_weight=1.5, l2=0.1), label_names=NAMES)


@pytest.mark.parametrize("analyzer", ["auto", "word", "char"])
def test_the_analyzer_is_that_of_the_config(analyzer):
    tfidf, X = Tfidf.fit(TEXTS)
    model = hb.learn(Split(X, Y, TEXTS), hb.ModelConfig(analyzer=analyzer, l2=0.1), tfidf=tfidf)
    chosen = "word" if analyzer == "auto" else analyzer
    assert model.tfidf.analyzer == model.metadata["text"]["analyzer"] == chosen
    assert (model.tfidf is tfidf) == (chosen == "word")  # made once


@pytest.mark.parametrize("analyzer", ["word", "char", "plain"])
def test_the_analyzer_is_stored(tmp_path, analyzer):
    tfidf = Tfidf(["ab", "紅茶", " ab "], np.ones(3), analyzer)
    X = tfidf.transform([*TEXTS, "ab 紅茶"])
    model = hb.learn(Split(X, Y[[*range(60), 0]]), hb.ModelConfig(l2=0.1), tfidf=tfidf)
    model.save(tmp_path / "m")
    found = hb.load(tmp_path / "m").tfidf
    assert found.analyzer == analyzer and found.words == tfidf.words


def test_features_are_tfidf_and_embeddings(model, folder):
    tfidf, X = Tfidf.fit(TEXTS)
    embeddings = SentenceEncoder.open(folder).embed(TEXTS)
    rows = model.examples(TEXTS).X.toarray()
    np.testing.assert_allclose(rows, np.hstack([X.toarray(), 1.5 * embeddings]), atol=1e-6)
    assert model.network.n_features == len(tfidf.words) + DIM
    alone = hb.learn(Split(model.examples(TEXTS).X, Y), hb.ModelConfig(l2=0.1))
    np.testing.assert_allclose(model.scores(TEXTS), alone.scores(model.examples(TEXTS).X), atol=1e-5)


def test_a_model_with_an_encoder_is_stored_without_it(model, folder, tmp_path):
    model.save(tmp_path / "m")
    found = hb.load(tmp_path / "m")
    assert found.encoder.config() == model.encoder.config()
    assert np.array_equal(found.scores(TEXTS), model.scores(TEXTS))
    with pytest.raises(hb.FileError, match="its embeddings mean something else"):
        hb.load(tmp_path / "m", encoder=write_encoder(tmp_path / "other", seed=3))
    assert hb.load(tmp_path / "m", encoder=write_encoder(tmp_path / "same")).encoder.digest == model.encoder.digest


def test_the_command_line_has_the_encoder_everywhere(folder, tmp_path, capsys, monkeypatch):
    data, out = tmp_path / "data.jsonl", tmp_path / "m"
    records = [{"text": text, "labels": [NAMES[i] for i in ids]} for text, ids in zip(TEXTS, LABELS, strict=True)]
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    moved = write_encoder(tmp_path / "moved")
    code, _, err = run(capsys, "train", data, "--encoder", moved, "--encoder-weight", 1.5, "--l2", 0.1, "--out", out)
    assert code == 0, err
    code, shown, _ = run(capsys, "inspect", out, "--json")
    assert code == 0 and json.loads(shown)["encoder"]["digest"] == SentenceEncoder.open(folder).digest
    assert "the encoder" in run(capsys, "inspect", out)[1]
    lines = b"red apple\nqqq\n\n"
    expected = run(capsys, "predict", out, "-", stdin=lines)
    assert expected[0] == 0 and json.loads(expected[1].split("\n")[0])["labels"][0]["label"] in ("red", "apple")
    assert json.loads(expected[1].split("\n")[2]) == {"labels": [], "unknown": "no known word"}
    moved.rename(tmp_path / "away")
    assert is_one_line_error(run(capsys, "predict", out, "-", stdin=lines), "needs the encoder", "--encoder")
    assert run(capsys, "predict", out, "-", "--encoder", folder, stdin=lines)[1] == expected[1]
    code, shown, _ = run(capsys, "evaluate", out, data, "--encoder", folder, "--json")
    assert code == 0 and json.loads(shown)["unknown"] == 0
    wrong = write_encoder(tmp_path / "wrong", seed=9)
    assert is_one_line_error(run(capsys, "predict", out, "-", "--encoder", wrong, stdin=lines), "of hash", wrong.name)


def test_the_estimator_has_the_encoder(folder, tmp_path):
    names = [{NAMES[i] for i in ids} for ids in LABELS]
    clf = hb.HolographicClassifier(text=True, encoder=folder, encoder_weight=1.0, l2=0.1).fit(TEXTS, names)
    clf.save(tmp_path / "m")
    found = hb.HolographicClassifier.load(tmp_path / "m", encoder=folder)
    assert found.encoder == str(folder) and found.encoder_weight == 1.0
    assert np.array_equal(found.decision_function(TEXTS), clf.decision_function(TEXTS))
    clf.partial_fit(TEXTS[:5], names[:5])
    with pytest.raises(hb.OptionError, match=r"encoder belongs to networks on features of texts.*text=False"):
        hb.HolographicClassifier(encoder=folder).fit(np.eye(3), [0, 1, 1])


def test_the_weight_is_chosen_where_embeddings_help_and_zero_where_they_do_not():
    draw = np.random.default_rng(1)
    classes = draw.integers(0, 4, 300)
    good, noise = (np.eye(4)[classes] + 0.1 * draw.normal(size=(300, 4)), draw.normal(size=(300, 4)))
    labels = from_label_ids([[i] for i in classes], 4)

    def sparse_rows(dense):
        return Split(hb.data.csr.csr_array(dense.astype(np.float32)), labels).X

    unit = good / np.linalg.norm(good, axis=1, keepdims=True), noise / np.linalg.norm(noise, axis=1, keepdims=True)
    weight, tried = choose_weight(sparse_rows(unit[1]), unit[0].astype(np.float32), labels, 0)
    assert weight > 0 and dict(tried)[weight] > dict(tried)[0.0] + 10
    assert choose_weight(sparse_rows(unit[0]), unit[1].astype(np.float32), labels, 0)[0] == 0


def test_an_encoder_that_does_not_help_is_left_out(folder, monkeypatch):
    monkeypatch.setattr("holobind.training.text_features.ENCODER_WEIGHTS", (0.0,))
    monkeypatch.setattr("holobind.training.text_features.MIN_ROWS_TO_CHOOSE", 10)
    model = hb.learn(SPLIT, hb.ModelConfig(encoder=folder, l2=0.1))
    assert model.encoder is None and model.network.n_features == len(model.tfidf.words)
    assert model.metadata["encoder"]["weight"] == 0 and len(model.metadata["encoder"]["validation"]) == 1


def test_an_encoder_needs_texts(folder):
    X = hb.data.synthetic("bibtex", scale=0.01).train
    with pytest.raises(hb.DataError, match="the data has no texts to make features of; leave out --encoder"):
        hb.learn(X, hb.ModelConfig(encoder=folder))
    for options, message in [
        ({"network": "cnn", "encoder": "x"}, "encoder belongs to networks on features of texts.*got network 'cnn'"),
        ({"encoder_weight": 2.0}, "encoder_weight belongs to an encoder; got encoder_weight 2.0 alone"),
        ({"encoder": " "}, "encoder must be the name or the path of a sentence encoder"),
    ]:
        with pytest.raises(hb.OptionError, match=message):
            hb.ModelConfig(**options)
