"""From data to a model: the closed form against scikit-learn's ridge, the warm start, and a real corpus."""

import numpy as np
import pytest
import torch
from helpers.training import configs
from scipy import sparse
from sklearn.linear_model import Ridge
from torch.testing import assert_close

import holobind as hb
from holobind import _checks
from holobind.codebooks._fingerprint import without_fingerprints
from holobind.data import Split, Tfidf
from holobind.data.batches import ragged_labels
from holobind.errors import OptionError
from holobind.heads import frequency_prior
from holobind.ridge_knn.ridge import default_dim
from holobind.training import learning, loop
from holobind.training.learning import learn, partial_fit


def split(n=60, f=20, labels=8, seed=0):
    """Points whose labels follow from their features."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, f)) * (draw.random((n, f)) < 0.4)
    Y = X @ draw.normal(size=(f, labels)) > 1.5
    return Split(sparse.csr_array(X.astype(np.float32)), sparse.csr_array(Y.astype(np.int32)))


def constant(X):
    """The features and the constant feature of `solve_ridge`'s bias."""
    length = np.sqrt((X.toarray() ** 2).sum() / X.shape[0])
    return np.hstack([X.toarray(), np.full((X.shape[0], 1), 0.3 * length)]).astype(np.float64)


@pytest.mark.parametrize("codebook", ["orbit", "random"])
def test_a_solved_model_scores_the_output_of_ridge_regression_by_its_codebook(codebook):
    data = split()
    model = learn(data, *configs(dim=6, l2=0.5, normalise=False, codebook=codebook, rare_label_boost=0, seed=3))
    book = model.head.codebook
    C = book.vectors(torch.arange(8)).numpy().astype(np.float64)
    exact = Ridge(0.5, fit_intercept=False).fit(constant(data.X), data.Y.toarray() @ C)
    wanted = exact.predict(constant(data.X)) @ C.T
    assert_close(model.scores(data.X), wanted.astype(np.float32), atol=1e-3, rtol=1e-3)


def test_with_no_more_labels_than_dim_it_is_one_versus_rest_ridge():
    data = split()
    model = learn(data, *configs(l2=0.5, normalise=False, rare_label_boost=0))
    assert model.head.codebook.dim == 8
    wanted = Ridge(0.5, fit_intercept=False).fit(constant(data.X), data.Y.toarray()).predict(constant(data.X))
    assert_close(model.scores(data.X), wanted.astype(np.float32), atol=1e-3, rtol=1e-3)


def test_a_linear_head_in_closed_form_is_ridge_as_logits():
    """sigmoid(4 y - 2) > 1/2 where the ridge's y > 1/2, so that a threshold of 1/2 decides in the same way."""
    data = split()
    model = learn(data, *configs(head="linear", l2=0.5, normalise=False))
    wanted = Ridge(0.5, fit_intercept=False).fit(constant(data.X), data.Y.toarray()).predict(constant(data.X))
    assert_close((model.scores(data.X) + 2) / 4, wanted.astype(np.float32), atol=1e-3, rtol=1e-3)
    assert np.array_equal(model.labels_above(data.X).toarray() == 1, wanted > 0.5)


STARTS = [
    {"loss": "softmax"},
    {"loss": "softmax", "trainable": ("labels",)},
    {"loss": "query"},
    {"loss": "query", "codebook": "random"},
    {"loss": "query", "trainable": ("present",)},
    {"loss": "query", "trainable": ("present", "missing", "labels")},
    {"loss": "query-abs"},
    {"loss": "regression"},
    {"head": "linear", "loss": "bce"},
    {"head": "linear", "loss": "softmax"},
]


@pytest.mark.parametrize("options", STARTS, ids=str)
@pytest.mark.parametrize(
    "shape", [{"network": "linear"}, {"network": "fc", "linear_skip": True, "hidden": (7, 5)}], ids=str
)
def test_training_starts_from_the_closed_form(options, shape, monkeypatch):
    """What the model scores before its first step is what the ridge on the rows it may see does."""
    data, started = split(), []
    monkeypatch.setattr(loop, "fit", lambda model, *_, **__: started.append(model) or loop.TrainState())
    common = {"l2": 0.5, "seed": 1, **({} if "head" in options else {"dim": 5})}
    learn(data, *configs(**common, **shape, **options))
    kept, _ = loop.validation_split(len(data), 0.1, 1)
    head = {key: options[key] for key in ("head", "codebook") if key in options}
    order = (
        np.arange(8) if started[0].label_order is None else started[0].label_order
    )  # in which the network draws its vectors
    solved = learn(
        Split(data.X[kept], data.Y[kept][:, order]), *configs(**common, **head, knn_weight=0, rare_label_boost=0)
    )
    wanted, found = solved.scores(data.X), started[0].scores(data.X)[:, order]
    if options == {"head": "linear", "loss": "softmax"}:  # sharper, having no temperature
        wanted = (wanted + 2) / 4
        wanted *= np.linalg.norm(found) / np.linalg.norm(wanted)
    if options.get("loss") == "query-abs":
        wanted = abs(wanted)
    assert_close(found, wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("head", ["holographic", "linear"])
def test_the_initial_temperature_of_the_softmax_fits_the_held_out_rows_best(head, monkeypatch):
    data, started = split(n=200), []
    monkeypatch.setattr(loop, "fit", lambda model, *_, **__: started.append(model) or loop.TrainState())
    learn(data, *configs(head=head, loss="softmax", dim=4))
    model = started[0]
    _, held = loop.validation_split(200, 0.1, 0)
    rows, (labels, offsets) = model.examples(data.X).batch(held), ragged_labels(data.Y, held)
    model.train()  # the loss that is trained, with the expected crosstalk
    sharper = (0.1, 0.7, 1, 1.4, 10)
    losses = [model.head.loss(t * model.network(rows), model.head_label_ids(labels), offsets).item() for t in sharper]
    assert min(losses) == losses[2]


def test_the_warm_start_does_not_depend_on_held_out_rows():
    """Held-out rows are replaced, and the start is the same."""
    data, starts = split(), []
    _, held = loop.validation_split(60, 0.1, 0)
    noise = data.X.tolil(copy=True)
    noise[held] = 5
    for X in (data.X, sparse.csr_array(noise)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "fit", lambda model, *_, **__: starts.append(model) or loop.TrainState())
            learn(Split(X, data.Y), *configs(loss="softmax"))
    assert torch.equal(starts[0].network.first.weight, starts[1].network.first.weight)


@pytest.mark.parametrize("normalise", [True, False])
def test_normalised_rows_may_have_any_length(normalise):
    data = split()
    one = learn(data, *configs(l2=0.5, normalise=normalise))
    rescaled = data.X.multiply(np.linspace(1, 9, 60)[:, None]).tocsr().astype(np.float32)
    other = learn(Split(sparse.csr_array(rescaled), data.Y), *configs(l2=0.5, normalise=normalise))
    assert np.allclose(one.scores(data.X), other.scores(rescaled), atol=1e-4) == normalise


def test_the_dimension_is_what_the_labels_need():
    assert learn(split(labels=7), *configs()).head.codebook.dim == 7
    assert learn(split(labels=7), *configs(knn_weight=0)).head.codebook.dim == default_dim(7) == 8
    assert learn(split(labels=7), *configs(dim=3)).head.codebook.dim == 3
    assert learn(split(labels=7), *configs(head="linear")).network.out_features == 7


def test_networks_order_labels_by_frequency_where_there_are_more_than_dim():
    data = split()
    for options in ({"network": "fc", "loss": "query"}, {"network": "fc"}, {"network": "linear", "loss": "softmax"}):
        model = hb.learn(data, *configs(dim=4, epochs=1, **options))
        counts = model.frequencies.counts
        assert np.array_equal(counts, np.asarray(data.Y.sum(0)).ravel())
        assert (np.diff(counts[model.label_order]) <= 0).all() and set(model.label_order) == set(range(8))
    for options in ({}, {"knn_weight": 0}, {"network": "fc", "dim": 8}, {"network": "fc", "codebook": "random"}):
        assert hb.learn(data, *configs(**{"dim": 4, "epochs": 1, **options})).label_order is None


@pytest.mark.parametrize("dim", [4, 8])
def test_a_trained_softmax_has_the_prior_of_the_label_frequencies(dim):
    data = split()
    model = learn(data, *configs(network="fc", loss="softmax", dim=dim, epochs=1))
    order = np.arange(8) if model.label_order is None else model.label_order
    assert torch.equal(model.head.prior, frequency_prior(torch.from_numpy(model.frequencies.counts[order])))
    partial_fit(model, data, *configs(network="fc", loss="softmax"))
    assert torch.equal(model.head.prior, frequency_prior(torch.from_numpy(2 * np.asarray(data.Y.sum(0))[order])))
    # A closed form has learned the label frequencies and gets no prior.
    for options in ({}, {"network": "linear", "loss": "softmax"}, {"network": "fc"}):
        assert learn(data, *configs(dim=dim, epochs=1, **options)).head.prior is None


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        # A feature is in few batches, and so takes larger steps.
        ({"network": "fc", "loss": "softmax"}, (1e-3, 1e-2)),
        ({"network": "fc"}, (1e-3, None)),
        ({"network": "fc", "feature_learning_rate": 0.5}, (1e-3, 0.5)),
        ({"network": "fc", "learning_rate": 0.2}, (0.2, None)),  # a rate that is given holds for all layers
        ({"network": "fc", "learning_rate": 0.2, "feature_learning_rate": 0.5}, (0.2, 0.5)),
        (
            {"network": "fc", "loss": "softmax", "linear_skip": True},
            (3e-3, None),
        ),  # goes on from a solution: no large steps
        ({"network": "cnn"}, (1e-3, None)),
        ({"network": "cnn", "loss": "softmax"}, (3e-3, None)),
        ({"loss": "softmax"}, (3e-3, None)),
    ],
    ids=str,
)
def test_the_first_layer_has_a_learning_rate_of_its_own(options, rates):
    config, train_config = configs(**options)
    config = train_config.resolve(1000, config)
    assert (config.learning_rate, config.feature_learning_rate) == rates


def test_two_runs_with_one_seed_are_the_same_model():
    options = configs(network="fc", hidden=(16,), epochs=2, dropout=0.2, feature_dropout=0.1, dim=6, seed=4)
    one, other = learn(split(), *options), learn(split(), *options)
    for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_the_metadata_has_the_options_and_the_summaries():
    model = learn(split(), *configs(network="fc", hidden=(16,), epochs=2, linear_skip=True), metadata={"data": "toy"})
    about = model.metadata
    assert about["data"] == "toy" and about["rows"] == 60
    assert about["timings"]["training"] >= about["timings"]["ridge"] >= 0
    assert about["config"]["network"] == "fc" and "dim" not in about["config"]
    assert about["ridge"]["converged"] and about["ridge"]["l2"] > 0
    assert len(about["training"]["history"]) == len(about["timings"]["epochs"]) == 2
    assert model.training is False


def test_partial_fit_trains_another_pass_and_counts_labels():
    first, second = split(seed=0), split(seed=1)
    model = learn(first, *configs(network="fc", hidden=(16,), epochs=1))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    learning.partial_fit(model, second, *configs(network="fc", hidden=(16,)))
    trained = without_fingerprints(model.state_dict())
    assert all(not torch.equal(tensor, before[name]) for name, tensor in trained.items())
    assert model.frequencies.n_rows == 120
    assert model.frequencies.counts.tolist() == (first.Y.sum(0) + second.Y.sum(0)).tolist()
    learning.partial_fit(model, Split(first.X[:0], first.Y[:0]), *configs(network="fc", hidden=(16,)))
    assert model.frequencies.n_rows == 120
    with pytest.raises(hb.DataError, match="this model has 8 labels; the data has 7"):
        learning.partial_fit(model, split(labels=7), *configs())


def test_a_pass_of_one_step_changes_the_model():
    """A schedule that has fallen to 0 by the last step would leave a portion of one batch without effect."""
    data, options = split(n=10), configs(network="fc", hidden=(16,), epochs=1)
    model = learn(data, *options)
    before = model.scores(data.X)
    learning.partial_fit(model, data, *options)
    assert np.abs(model.scores(data.X) - before).max() > 1e-4


@pytest.mark.parametrize("options", [{"knn_weight": 0}, {"head": "linear"}, {"dim": 5, "normalise": False}], ids=str)
def test_updates_of_the_closed_form_are_averaged_by_their_rows(options):
    """In any order, with the l2 of the first: the same as the mean of models of each portion."""
    data = split(n=90)
    cuts = [slice(0, 40), slice(40, 80), slice(80, 90)]
    portions = [Split(data.X[cut], data.Y[cut]) for cut in cuts]
    options = options | {"rare_label_boost": 0}  # otherwise labels weigh by their counts so far
    model = learn(portions[0], *configs(**options))
    l2 = model.metadata["ridge"]["l2"]
    for portion in reversed(portions[1:]):
        learning.partial_fit(model, portion, *configs(**options))
    apart = [learn(portion, *configs(l2=l2, **options)).scores(data.X) for portion in portions]
    assert_close(model.scores(data.X), np.average(apart, 0, [40, 40, 10]).astype(np.float32), atol=1e-4, rtol=1e-4)
    assert model.frequencies.n_rows == 90


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "gru"}, "network must be one of linear, fc, cnn, lstm; got 'gru'"),
        ({"network": "cnn"}, "network 'cnn' reads texts, and the data has none; give texts"),
        ({"linear_skip": True}, "linear_skip belongs to networks fc, cnn and lstm; got network 'linear'"),
        ({"network": "cnn", "hidden": (8, 8)}, "network 'cnn' has one hidden layer; got 2 sizes"),
        ({"network": "fc", "hidden": ()}, "hidden must be at least one size"),
        ({"network": "lstm", "loss": "ridge"}, "the ridge loss is solved for network 'linear'; got network 'lstm'"),
        ({"tokenizer": "char"}, "tokenizer must be one of word, bpe; got 'char'"),
        (
            {"network": "cnn", "tokenizer": "bpe", "word_vectors": "v"},
            "word_vectors belong to tokenizer 'word'; got",
        ),
        ({"vocab_size": 2}, "vocab_size must be a whole number from 3 to .*; got 2"),
        ({"rare_label_boost": 1.5}, "rare_label_boost must be a number from 0 to 1; got 1.5"),
        ({"max_tokens": 0}, "max_tokens must be a whole number from 1 to .*; got 0"),
        ({"hidden_size": 1.5}, "hidden_size must be a whole number from 1 to .*; got 1.5"),
        ({"embedding_dim": 0}, "embedding_dim must be a whole number from 1"),
        ({"head": "softmax"}, "head must be one of holographic, linear; got 'softmax'"),
        (
            {"loss": "hinge"},
            "loss must be one of ridge, softmax, squares, query, query-abs, regression, bce, or None to have it chosen",
        ),
        ({"codebook": "dense"}, "codebook must be one of orbit, random, naive; got 'dense'"),
        (
            {"loss": "bce"},
            "a holographic head has the losses ridge, softmax, squares, query, query-abs, regression; got 'bce'",
        ),
        ({"head": "linear", "loss": "query"}, "a linear head has the losses ridge, bce, softmax; got 'query'"),
        ({"network": "fc", "loss": "ridge"}, "the ridge loss is solved for network 'linear'; got network 'fc'"),
        ({"dim": 0}, "dim must be a whole number from 1 to .*, or None to have it chosen; got 0"),
        ({"dim": 2.5}, "dim must be a whole number"),
        ({"epochs": 0}, "epochs must be a whole number from 1"),
        ({"batch_size": "8"}, "batch_size must be a whole number from 1"),
        ({"l2": 0.0}, "l2 must be a positive number, or None to have it chosen; got 0.0"),
        ({"l2": float("nan")}, "l2 must be a positive number"),
        ({"learning_rate": -1.0}, "learning_rate must be a positive number"),
        (
            {"feature_learning_rate": 0},
            "feature_learning_rate must be a positive number, or None to have it chosen; got 0",
        ),
        ({"time_limit": 0}, "time_limit must be a positive number"),
        (
            {"network": "fc", "feature_dropout": "half"},
            "feature_dropout must be a fraction from 0 to below 1, or None to have it chosen; got 'half'",
        ),
        ({"network": "fc", "dropout": 1.5}, "dropout must be a fraction from 0 to below 1"),
        (
            {"network": "fc", "validation_fraction": 1.0},
            "validation_fraction must be a fraction from 0 to below 1; got 1.0",
        ),
        ({"network": "fc", "trainable": ("labels", "all")}, "trainable must be some of present, missing, labels"),
        ({"text": True}, "the data has no texts to make features of"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, message):
    with pytest.raises(hb.HolobindError, match=message) as caught:
        learn(split(), *configs(**options))
    assert "\n" not in str(caught.value)


def test_data_without_anything_to_learn_is_refused():
    for shape in ((0, 5, 4), (5, 0, 4), (5, 5, 0)):
        empty = Split(sparse.csr_array(shape[:2], dtype=np.float32), sparse.csr_array((shape[0], shape[2]), dtype=int))
        with pytest.raises(hb.DataError, match="nothing to learn from {} rows, {} features, {} labels".format(*shape)):
            learn(empty)
    wordless = Split(sparse.csr_array((3, 0), dtype=np.float32), split(n=3).Y, texts=["!", "?", "a"])
    with pytest.raises(hb.DataError, match="nothing to learn from 3 rows, 0 features"):
        learn(wordless, *configs(text=True))


TEXTS = [f"{['sweet', 'sour', 'salty'][i % 3]} number{i}" for i in range(30)]


@pytest.mark.parametrize(
    ("options", "texts", "reads"),
    [
        ({}, TEXTS, True),
        ({"text": False}, TEXTS, False),
        ({"knn_weight": 0}, TEXTS, False),
        ({"knn_weight": 0, "text": True}, TEXTS, True),
        ({"network": "fc", "hidden": (4,), "epochs": 1}, TEXTS, True),
        ({"network": "fc", "hidden": (4,), "epochs": 1, "loss": "softmax"}, TEXTS, False),
        ({}, ["?"] * 30, False),
        ({}, None, False),
    ],
    ids=str,
)
def test_features_are_made_from_texts_with_knn_or_on_request(options, texts, reads):
    data = split(n=30)
    model = learn(Split(data.X, data.Y, texts), *configs(**options))
    assert model.reads_texts == reads
    assert model.network.n_features == (len(model.tfidf.words) if reads else data.X.shape[1])


def test_tfidf_features_of_words_only_are_replaced():
    data = split(n=30)
    for plain in (True, False):
        tfidf, X = Tfidf.fit(TEXTS, words_only=plain)
        model = learn(Split(X, data.Y, TEXTS), tfidf=tfidf)
        assert not model.tfidf.words_only and (model.tfidf is tfidf) == (not plain)


def test_a_linear_head_that_would_not_fit_is_refused_at_once():
    large = Split(sparse.csr_array((3, 100_000), dtype=np.float32), sparse.csr_array((3, 100_000), dtype=np.int32))
    with pytest.raises(hb.OptionError, match="100000 x 100000 weights would take 37 GB; take head 'holographic'"):
        learn(large, *configs(head="linear"))


@pytest.fixture(scope="module")
def calls():
    """Functions of the json, email and http packages and the names that they call."""
    return hb.data.python_calls(["email", "http", "json", "logging", "unittest", "asyncio"], cache=False)


def frequent(dataset):
    """The baseline: the same labels for every point, those that are most frequent in training."""
    order = np.argsort(-np.asarray(dataset.train.Y.sum(0)), kind="stable")[:5]
    top = np.broadcast_to(order, (len(dataset.test), 5))
    return hb.metrics.evaluate(dataset.test.Y, top, dataset.train.Y)


@pytest.mark.parametrize("options", [{}, {"network": "fc", "hidden": (64,), "linear_skip": True, "epochs": 3}], ids=str)
def test_it_reads_python_code_far_better_than_by_label_frequency(calls, options):
    model = learn(calls.train, *configs(**options), label_names=calls.label_names, tfidf=calls.tfidf)
    found, baseline = model.evaluate(calls.test), frequent(calls)
    assert found["P@1"] > 1.35 * baseline["P@1"]
    assert found["nDCG@5"] > 1.35 * baseline["nDCG@5"]
    assert found["PSP@5"] > 1.7 * baseline["PSP@5"]


def test_memory_is_refused_for_the_copies_that_training_keeps_of_a_weight(monkeypatch):
    """Of a dense weight: itself, its gradient and two moments; of a sparse one: itself and a moment; then the best."""
    data = split()
    options = {"network": "fc", "loss": "softmax", "hidden": (50,), "dim": 8, "epochs": 1}
    model = learn(data, *configs(**options, validation_fraction=0.2))
    sparse_numbers = data.X.shape[1] * 50
    dense_numbers = sum(p.numel() for p in model.parameters()) - sparse_numbers
    # The check does not know the biases of the head, which are few.
    for validation_fraction, best in ((0.0, 0), (0.2, 1)):
        needed = 4 * ((4 + best) * dense_numbers + (2 + best) * sparse_numbers)
        monkeypatch.setattr(_checks, "_memory_bytes", lambda needed=needed: needed)
        learn(data, *configs(**options, validation_fraction=validation_fraction))
        monkeypatch.setattr(_checks, "_memory_bytes", lambda needed=needed: needed - 4 * 100)
        with pytest.raises(OptionError, match="and the optimiser's state take"):
            learn(data, *configs(**options, validation_fraction=validation_fraction))
