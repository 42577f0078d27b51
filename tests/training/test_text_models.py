"""Text networks from raw lines to predictions: they learn, are saved, interrupted and resumed, and predict."""

import json
import signal
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.commands import interrupt_training, run
from helpers.hostile import bomb, hostile, replacing, setting, without
from helpers.training import configs

import holobind as hb
from holobind.data import Split
from holobind.data.batches import SparseExamples, TokenExamples, prediction_batches
from holobind.data.tokenizer import Tokenizer
from holobind.networks import AttentionLstm, XmlCnn
from holobind.training import loop
from holobind.training.learning import Callbacks, learn

SMALL = {"embedding_dim": 32, "hidden": (64,), "max_tokens": 40, "dropout": 0.2, "learning_rate": 1e-2}
CONFIGS = {
    "cnn": configs(network="cnn", filters=16, epochs=12, **SMALL),
    "lstm": configs(network="lstm", hidden_size=32, epochs=12, **SMALL),
}
TINY = {
    "embedding_dim": 6,
    "hidden": (5,),
    "batch_size": 16,
    "epochs": 3,
    "patience": 0,
}
SIZE = {"cnn": {"filters": 3}, "lstm": {"hidden_size": 4}}
every_network = pytest.mark.parametrize("network", ["cnn", "lstm"])
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def calls():
    """Functions of six packages and the names they call; every fifth is held out."""
    found = hb.data.python_calls(["email", "http", "json", "logging", "unittest", "asyncio"], cache=False).train
    held = np.arange(len(found)) % 5 == 0
    return tuple(Split(found.X[m], found.Y[m], [found.texts[i] for i in np.flatnonzero(m)]) for m in (~held, held))


@pytest.fixture(scope="module")
def few(calls):
    """A split too small to learn much from, for tests of equality."""
    return Split(calls[0].X[:120], calls[0].Y[:120], calls[0].texts[:120])


def tiny(few, network, **options):
    return learn(few, *configs(network=network, **TINY | SIZE[network] | options))


def same(one, other):
    weights, others = one.state_dict(), other.state_dict()
    return weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)


@every_network
def test_it_reads_python_code_far_better_than_by_label_frequency(calls, network):
    split, test = calls
    frequent = np.argsort(-np.asarray(split.Y.sum(0)), kind="stable")[:5]
    baseline = hb.metrics.evaluate(test.Y, np.broadcast_to(frequent, (len(test), 5)), split.Y)
    found = learn(split, *CONFIGS[network]).evaluate(test)
    assert found["P@1"] > 1.6 * baseline["P@1"]
    assert found["nDCG@5"] > 1.4 * baseline["nDCG@5"]
    assert found["PSP@5"] > 1.4 * baseline["PSP@5"]


@every_network
@pytest.mark.parametrize(
    "options", [{}, {"loss": "softmax"}, {"loss": "query"}, {"head": "linear"}, {"tokenizer": "bpe"}], ids=str
)
def test_a_loaded_model_is_the_saved_one(few, tmp_path, network, options):
    model = tiny(few, network, max_tokens=7, epochs=1, **options)
    model.save(tmp_path / "m")
    found = hb.load(tmp_path / "m")
    assert same(found, model) and found.network.config() == model.network.config() and found.max_tokens == 7
    assert found.tokenizer.to_json() == model.tokenizer.to_json()
    unseen = ["read the file", "", "naïve ☃ ⅷ", *few.texts[:9]]
    assert np.array_equal(found.scores(unseen), model.scores(unseen))
    assert found.top_k([], 2)[1].shape == (0, 2)


@every_network
def test_an_interrupted_and_resumed_run_has_the_weights_of_an_uninterrupted_one(few, tmp_path, network):
    config = configs(network=network, **TINY, **SIZE[network])
    whole, stops = learn(few, *config), [(0, 2), (1, 1), (1, 4), (2, 3)]

    def stopping(state, config):
        if stops and (state.epoch, state.step) == stops[0]:
            stops.pop(0)
            signal.raise_signal(signal.SIGINT)

    options = {"callbacks": Callbacks(on_train=stopping), "checkpoint": tmp_path / "c", "resume": True}
    for _ in range(4):
        with pytest.raises(loop.TrainingInterrupted):
            learn(few, *config, **options)
    assert same(learn(few, *config, **options), whole)


@pytest.mark.parametrize("change", [{"max_tokens": 9}, {"vocab_size": 99}, {"filters": 4}], ids=str)
def test_a_run_with_other_tokens_is_not_continued(few, tmp_path, change):
    options = {"network": "cnn", **TINY, **SIZE["cnn"]}
    learn(few, *configs(**options), checkpoint=tmp_path / "c")
    with pytest.raises(hb.FileError, match="a run with other data or options"):
        learn(few, *configs(**options | change), checkpoint=tmp_path / "c", resume=True)


def test_batches_are_of_like_length_and_every_text_is_in_one(few, monkeypatch):
    """The epochs differ in which texts share a batch and in the order of the batches."""
    steps, step = [], loop._Run.step
    monkeypatch.setattr(loop._Run, "step", lambda run, index: steps.append(index) or step(run, index))
    model = tiny(few, "cnn", validation_fraction=0.0)
    sizes = model.tokenizer.encode(few.texts).sizes
    epochs = [steps[i : i + 8] for i in (0, 8, 16)]
    for batches in epochs:
        assert sorted(np.concatenate(batches)) == list(range(120))
        ends = sorted((sizes[b].min(), sizes[b].max()) for b in batches)
        assert all(first[1] <= then[0] for first, then in pairwise(ends))
    assert len({tuple(len(b) and b[0] for b in batches) for batches in epochs}) == 3


@pytest.mark.parametrize("max_rows", [1, 3, 100])
def test_prediction_batches_are_within_the_bound_of_padded_tokens(max_rows):
    lengths = np.random.default_rng(0).integers(0, 40, 200)
    texts = TokenExamples(np.ones(lengths.sum(), np.int32), np.cumsum([0, *lengths]))
    rows = np.arange(0, 200, 2)
    found = list(prediction_batches(texts, rows, max_rows, max_padded_tokens=64))
    assert sorted(np.concatenate(found)) == rows.tolist()
    assert all(len(b) <= max_rows and (len(b) * lengths[b].max() <= 64 or len(b) == 1) for b in found)
    assert max_rows < 100 or len(found) < 60
    matrix = SparseExamples(hb.data.synthetic("bibtex", scale=0.02).train.X)
    assert [len(b) for b in prediction_batches(matrix, np.arange(len(matrix))[:10], 4)] == [4, 4, 2]


def test_word_vectors_are_where_training_starts(few, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "fit", lambda *_, **__: loop.TrainState())
    (tmp_path / "v").write_text("return 1 2 3 4\nthe 5 6 7 8\n")
    model = tiny(few, "cnn", word_vectors=tmp_path / "v", embedding_dim=None)
    at = model.tokenizer.tokens.index("the")
    assert model.network.deep.embedding.weight[at].tolist() == [5, 6, 7, 8]
    assert model.metadata["config"]["word_vectors"] == str(tmp_path / "v")
    json.dumps(model.metadata)
    with pytest.raises(hb.DataError, match=r"v:1: expected a word and 6 numbers"):
        tiny(few, "cnn", word_vectors=tmp_path / "v")


REFUSED = [
    (without("tokenizer"), "KeyError: 'tokenizer'"),
    (lambda header, tensors: tensors.pop("tokens"), "KeyError: 'tokens'"),
    (lambda header, tensors: tensors.pop("merges"), "KeyError: 'merges'"),
    (replacing("tokens", bomb(10**8)), "its tokens are damaged, or not"),
    (replacing("tokens", lambda t: t[:-3]), "its tokens are damaged, or not"),
    (replacing("merges", bomb(10)), "its merges are damaged, or not"),
    (setting("tokenizer", "kind", to="char"), "kind must be one of"),
    (setting("tokenizer", "kind", to="word"), "kind 'word' has no merges"),
    (setting("tokenizer", "lowercase", to="no"), "lowercase must be one of"),
    (setting("tokenizer", "max_tokens", to=0), "its tokenizer does not fit"),
    (setting("tokenizer", "max_tokens", to="9"), "its tokenizer does not fit"),
    (setting("tokenizer", "merges", to=10**9), "its tokenizer has 1000000000 merges"),
    (setting("tokenizer", "merges", to=0), "it holds 'merges', which no model has"),
    (setting("network", "vocab_size", to=10**12), "does not fit a network of 1000000000000 tokens"),
    (setting("network", "widths", to=[2, 4, 10**12]), "shape"),
    (setting("network", "widths", to=[]), "at least one width"),
    (setting("network", "dropout", to=2), "dropout"),
    (setting("network", "sparse", to=1), "sparse must be one of True, False; got 1"),
    (setting("network", "vectors", to=[1]), "AttributeError"),
    (setting("network", "seed", to="x"), "TypeError|ValueError|RuntimeError"),
]


@pytest.fixture(scope="module")
def subword_model(few):
    return tiny(few, "cnn", loss="softmax", tokenizer="bpe", vocab_size=400, epochs=1)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_a_hostile_tokenizer_is_refused_in_one_line(subword_model, tmp_path, number):
    change, message = REFUSED[number]
    with pytest.raises(hb.FileError, match=message) as caught:
        hb.load(hostile(tmp_path / "m", subword_model, change))
    assert "\n" not in str(caught.value)


REFUSED_BESIDE = [
    (setting("network", "deep", "class", to="fc"), "deep is one of cnn, lstm; got 'fc'"),
    (setting("network", "deep", "class", to="wide_and_deep"), "deep is one of cnn, lstm"),
    (setting("network", "deep", to=3), "AttributeError|TypeError"),
    (setting("network", "deep", "vocab_size", to=10**12), "does not fit a network of 1000000000000 tokens"),
    (setting("network", "deep", "widths", to=[2] * 999), "more layers than it has weights"),
    (setting("network", "n_features", to=10**12), "words for a network of 1000000000000 features"),
    (setting("network", "out_features", to=10**12), "shape"),
    (setting("network", "n_features", to=None), "words for a network of None features"),
    (without("tfidf"), None),  # of a file of 0.1: prefixes of words tell the analyzer
    (lambda header, tensors: (tensors.pop("words"), tensors.pop("idf")), "features of texts|has no words"),
]


@pytest.mark.parametrize("number", range(len(REFUSED_BESIDE)))
def test_a_hostile_network_on_features_and_tokens_is_refused_in_one_line(few, tmp_path, number):
    change, message = REFUSED_BESIDE[number]
    model = tiny(few, "cnn", epochs=1, knn_weight=0, label_trees=0)
    path = hostile(tmp_path / "m", model, change)
    if message is None:
        hb.load(path)
        return
    with pytest.raises(hb.FileError, match=message) as caught:
        hb.load(path)
    assert "\n" not in str(caught.value)


def test_a_text_network_is_not_saved_without_its_tokenizer(few, tmp_path):
    model = tiny(few, "lstm", epochs=1)
    model.tokenizer = None
    with pytest.raises(hb.OptionError, match="saved with its tokenizer"):
        model.save(tmp_path / "m")


@every_network
def test_the_estimator_reads_texts_and_comes_back_from_its_file(few, tmp_path, network):
    labels = [set(np.flatnonzero(row).tolist()) or {0} for row in few.Y.toarray()]
    clf = hb.HolographicClassifier(network=network, text=True, **TINY | {"validation_fraction": 0.2})
    clf.fit(few.texts, labels)
    assert isinstance(clf.model_.network.deep, XmlCnn if network == "cnn" else AttentionLstm)
    clf.save(tmp_path / "m")
    found = hb.HolographicClassifier.load(tmp_path / "m")
    assert found.get_params() == clf.get_params() and found.predict(few.texts) == clf.predict(few.texts)
    tokens = found.model_.tokenizer.tokens
    found.partial_fit(few.texts[:30], labels[:30])
    assert found.model_.tokenizer.tokens == tokens and found.model_.frequencies.n_rows == 150
    with pytest.raises(hb.DataError, match="reads texts, and the data has none"):
        hb.HolographicClassifier(network=network).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(hb.DataError, match="this model reads texts; got features"):
        clf.model_.top_k(np.eye(4), 1)


def test_a_tokenizer_is_the_same_whatever_order_its_training_took(few):
    """A run that is continued trains its tokenizer again."""
    for kind in ("word", "bpe"):
        first, again = (Tokenizer.train(few.texts, kind, 500).to_json() for _ in range(2))
        assert first == again == Tokenizer.train(few.texts[::-1], kind, 500).to_json()


@every_network
def test_the_command_line_predicts_labels_of_raw_lines(capsys, few, tmp_path, network):
    names = [f"label {i}" for i in range(few.Y.shape[1])]
    rows = few.Y.tolil().rows
    lines = [{"text": few.texts[i], "labels": [names[j] for j in row]} for i, row in enumerate(rows)]
    (tmp_path / "few.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    size = {"cnn": ("--filters", 3), "lstm": ("--hidden-size", 4)}[network]
    options = ("--network", network, "--embedding-dim", 6, "--hidden", 5, "--max-tokens", 30, "--epochs", 2, *size)
    model = tmp_path / "m.safetensors"
    command = ("train", tmp_path / "few.jsonl", *options, "--batch-size", 16)
    assert run(capsys, *command, "--out", tmp_path / "whole.safetensors")[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        interrupt_training(patch, 1, 3)
        assert run(capsys, *command, "--out", model)[0] == 130
    code, out, err = run(capsys, *command, "--out", model, "--resume")
    assert code == 0 and err == "" and {"cnn": "XML-CNN", "lstm": "LSTM of hidden size 4"}[network] in out
    loaded = hb.load(model)
    assert same(loaded, hb.load(tmp_path / "whole.safetensors")) and loaded.max_tokens == 30

    queries = ["read a file", "", *few.texts[:5]]
    code, out, err = run(capsys, "predict", model, "-", "-k", 2, stdin="\n".join(queries).encode())
    best = loaded.top_k(queries, 2)[1]
    predicted = [[label["label"] for label in json.loads(line)["labels"]] for line in out.splitlines()]
    assert code == 0 and err == "" and predicted[1] == []  # an empty line says nothing
    assert [*predicted[:1], *predicted[2:]] == [[loaded.label_names[i] for i in row] for row in best[[0, *range(2, 7)]]]
    code, _, err = run(capsys, "predict", model, "-", "--format", "xml", stdin=b"0:1\n")
    assert code == 2 and "this model reads texts, not features" in err and err.count("\n") == 1
    code, out, _ = run(capsys, "inspect", model)
    assert code == 0 and f"{loaded.tokenizer.vocab_size:,} tokens" in out
    code, out, _ = run(capsys, "evaluate", model, tmp_path / "few.jsonl", "--json")
    assert code == 0 and json.loads(out)["P"][0] >= 0
