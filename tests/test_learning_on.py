"""`Model.update` and `Model.forget`: names, ids, files and the estimator; the equations are tested in ridge_knn."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.paths import real_data
from scipy.sparse import csr_array

import holobind as hb
from holobind.data import Split
from holobind.data.csr import label_id_sets, normalise_rows
from holobind.errors import LabelError, OptionError
from holobind.ridge_knn.update import keep_learning, prediction_weights

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = ["apple", "pear", "car", "bike", "red", "green", "fast", "slow", "sweet", "loud"]
NAMES = ["fruit", "vehicle", "colour"]
CONFIG = hb.ModelConfig(l2=0.3, knn_weight=0.5, update=True, text=True)


def texts(n=60, seed=0):
    """Texts of four words; their labels follow from the words."""
    draw = np.random.default_rng(seed)
    found = [" ".join(draw.choice(WORDS, 4, replace=False)) for _ in range(n)]
    return found, [
        [
            name
            for name, words in zip(NAMES, ("apple pear", "car bike", "red green"), strict=True)
            if set(words.split()) & set(text.split())
        ]
        for text in found
    ]


def learned(n=60, config=CONFIG):
    documents, labels = texts(n)
    Y = csr_array(np.array([[name in row for name in NAMES] for row in labels], np.int32))
    return hb.learn(Split(csr_array((n, 0), dtype=np.float32), Y, documents), config, label_names=NAMES)


def regression(model):
    """The kept weights of the labels of `NAMES`."""
    return model.network.learning_on.weights()[:, : len(NAMES)]


def solved_from_zero(network, X, l2):
    """The kept weights of a fit to rows X with the network's label sets."""
    zero = np.zeros((network.n_features + 1, network.out_features), np.float32)
    weights = network.learning_on.label_weights.numpy()
    return keep_learning(zero, X, network.training_rows()[1], network.codebook(), weights, l2)


def test_an_update_returns_a_new_model_with_new_names_and_leaves_the_old_one():
    model = learned()
    before = model.scores(["loud bike"])
    after = model.update(["loud bike", "loud car"], [["vehicle", "noise"], ["noise", "vehicle", "noise"]])
    assert after.label_names == [*NAMES, "noise"] and model.label_names == NAMES
    assert after.frequencies.counts[-1] == 2 and after.frequencies.n_rows == 62 == after.metadata["rows"]
    assert after.metadata["learning on"] == {"rows added": 2, "labels added": 1}
    assert np.array_equal(model.scores(["loud bike"]), before)
    of_noise = after.scores(["loud bike", "sweet apple"])[:, 3]
    assert of_noise[0] > of_noise[1] + 0.02
    assert after.calibration == model.calibration and after.tfidf is model.tfidf


def test_rejected_labels_fall_for_the_text_and_for_similar_ones():
    model, text = learned(), "sweet pear slow loud"
    after = model.update([text], [[]], rejected=[["fruit"]])
    for similar in (text, "sweet pear slow fast"):
        assert after.scores([similar])[0, 0] < model.scores([similar])[0, 0] - 0.05
    assert after.frequencies.counts.tolist() == model.frequencies.counts.tolist()


def test_forgotten_rows_are_found_by_number_and_by_text():
    model = learned()
    text = "apple apple loud loud loud"
    after = model.update([text, "bike"], [["fruit"], ["vehicle"]])
    by_text, by_number = after.forget(inputs=[text]), after.forget(rows=[60])
    assert by_text.network.n_training_rows == by_number.network.n_training_rows == 61
    np.testing.assert_allclose(regression(by_text), regression(by_number), atol=1e-5)
    again = by_text.forget(inputs=["bike"])
    np.testing.assert_allclose(regression(again), regression(model), atol=1e-4)
    assert again.frequencies.counts.tolist() == model.frequencies.counts.tolist()


def test_a_forgotten_label_is_never_predicted_and_its_id_is_used_again():
    model = learned().forget(labels=["vehicle"])
    assert model.label_names == ["fruit", "", "colour"] and model.network.free_labels() == [1]
    assert sorted(model.top_k(["car bike"], 2)[1][0].tolist()) == [0, 2]
    model.restrict()
    assert model.allowed.tolist() == [True, False, True]
    with pytest.raises(hb.LabelError, match="no label 'vehicle'"):
        model.forget(labels=["vehicle"])
    again = model.update(["car", "bike"], [["machine"], ["machine"]])
    assert again.label_names == ["fruit", "machine", "colour"] and again.allowed is None


@pytest.mark.parametrize("update", [True, None])
def test_a_file_keeps_all_that_updates_need(tmp_path, update):
    model = (
        learned(config=replace(CONFIG, update=update))
        .update(["car loud"], [["vehicle"]], rejected=[["fruit"]])
        .forget(labels=["colour"])
    )
    model.save(tmp_path / "m")
    again = hb.load(tmp_path / "m")
    documents, labels = texts(10, seed=5)
    known = [[name for name in row if name != "colour"] for row in labels]
    one, other = (each.update(documents, known).scores(documents) for each in (model, again))
    assert np.array_equal(one, other)
    assert again.network.free_labels() == [2] and again.network.config() == model.network.config()
    assert again.network.learning_on.keeps_weights is bool(update)


def test_models_that_keep_nothing_and_wrong_arguments_are_refused_in_one_line():
    model = learned()
    for without in (
        learned(config=hb.ModelConfig(l2=0.3, update=False, text=True)),
        learned(config=hb.ModelConfig(network="fc", hidden=(4,), text=True)),
    ):
        assert not without.can_learn_on
        with pytest.raises(hb.OptionError, match="updated"):
            without.update(["car"], [["vehicle"]])
    for labels, error in (
        ([["a"], ["b"]], "labels has 2 rows, and the inputs have 1"),
        (["fruit"], "labels has a list of labels for each row; got one text, 'fruit', for a row"),
        ("fruit", "labels has a list of labels for each row; got one text"),
        ([["a\nb"]], "contains a line break"),
        ([[""]], "a label has an empty name"),
        ([[7]], "this model has no label '7'"),
    ):
        with pytest.raises(hb.HolobindError, match=error):
            model.update(["car"], labels)
    with pytest.raises(hb.LabelError, match="rejected: this model has no label 'unheard'"):
        model.update(["car"], [["vehicle"]], rejected=[["unheard"]])
    with pytest.raises(hb.OptionError, match="both right and rejected"):
        model.update(["car"], [["vehicle"]], rejected=[["vehicle"]])
    with pytest.raises(hb.OptionError, match="give rows, inputs or labels, one of them"):
        model.forget()
    for row in (60, -1, 1.5, True):
        with pytest.raises(hb.DataError, match="this model has the training rows 0 to 59"):
            model.forget(rows=[row])
    with pytest.raises(hb.DataError, match="1 of 1 inputs are no training rows"):
        model.forget(inputs=["car car car"])


def test_labels_without_names_grow_by_the_next_ids():
    labels = texts()[1]
    X = csr_array(np.random.default_rng(0).random((60, 9)).astype(np.float32))
    Y = csr_array(np.array([[name in row for name in NAMES] for row in labels], np.int32))
    model = hb.learn(Split(X, Y), hb.ModelConfig(l2=0.3, knn_weight=0.5, update=True))
    assert model.update(X[:2], [[0, 3], [4]]).n_labels == 5
    with pytest.raises(hb.LabelError, match="from 3 on without a gap, but 1000000 to 1000000 came"):
        model.update(X[:1], [[10**6]])


def test_partial_fit_is_a_fit_to_all_rows_and_learns_new_classes():
    documents, labels = texts()
    clf = hb.HolographicClassifier(text=True, l2=0.3, knn_weight=0.5)
    clf.partial_fit(documents[:40], labels[:40]).partial_fit(documents[40:], labels[40:])
    model = clf.model_
    state = solved_from_zero(model.network, normalise_rows(model.examples(documents).X), 0.3)
    np.testing.assert_allclose(state.weights(), model.network.learning_on.weights(), atol=1e-4)
    clf.partial_fit(["loud bike"], [["noise"]])
    assert clf.classes_.tolist() == [*sorted(NAMES), "noise"] and clf.predict_names(["loud bike loud"], 4)
    assert clf.model_.label_names == clf.classes_.tolist() and clf.model_.frequencies.n_rows == 61


def test_on_real_texts_an_update_gives_the_scores_of_a_fit_to_all(shared_data):
    dataset = hb.data.load(real_data() / "cooking-stackexchange")
    n, new = 2000, 50
    split = Split(dataset.train.X[:n], dataset.train.Y[:n], dataset.train.texts[:n])
    names, config = dataset.label_names, hb.ModelConfig(l2=1.0, knn_weight=0.5, update=True)
    model = hb.learn(split, config, label_names=names)
    Y = dataset.train.Y[n : n + new]
    after = model.update(dataset.train.texts[n : n + new], [[names[i] for i in ids] for ids in label_id_sets(Y)])
    network = after.network
    X = normalise_rows(after.examples(dataset.train.texts[: n + new]).X)
    state = solved_from_zero(network, X, 1.0)
    test = normalise_rows(after.examples(dataset.test.texts[:300]).X)
    found, wanted = (
        test @ W.numpy() + b.numpy()
        for W, b in (prediction_weights(each, network.out_features) for each in (network.learning_on, state))
    )
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_forgotten_labels_are_not_counted_and_cannot_be_forgotten_again():
    model = learned().forget(labels=["fruit"])
    for label, error in (("fruit", "2 names, such as 'vehicle'"), ("", "2 names, such as"), (0, "forgotten before")):
        with pytest.raises(LabelError, match=f"this model has no label .*{error}"):
            model.forget(labels=[label])
    with pytest.raises(OptionError, match="these are all 2 labels"):
        model.forget(labels=["vehicle", "colour"])
