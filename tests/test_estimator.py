"""The estimator keeps scikit-learn's contract, and gives back labels in the form in which it got them."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.estimator_checks import parametrize_with_checks

import holobind as hb
from holobind._targets import Targets

Classifier = hb.HolographicClassifier
EXEMPTIONS = {}  # none; the docstring of the class would have to give the reasons


def points(n=80, f=15, labels=6, seed=0):
    """Features, and labels that follow from them: at least one a row."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, f)) * (draw.random((n, f)) < 0.6)
    scores = X @ draw.normal(size=(f, labels))
    Y = (scores > 1.5) | (scores == scores.max(1, keepdims=True))
    return X, Y.astype(int)


WORDS = ["apple", "pear", "plum", "fig", "lemon", "lime"]
NAMES = np.array(["citrus ëß", "core", "pip", "red", "stone", "tree"])


def sets_of(Y, names=NAMES):
    return [set(names[row == 1].tolist()) for row in Y]


def texts(n=80, seed=0):
    """Texts with one word for each of their labels."""
    _, Y = points(n, seed=seed)
    return [" ".join(WORDS[i] for i in np.flatnonzero(row)) for row in Y], sets_of(Y)


# Rows that say nothing


@pytest.mark.parametrize("threshold", [None, -10.0])
def test_a_row_that_says_nothing_gets_no_labels_and_one_warning(threshold):
    X, y = texts()
    clf = Classifier(text=True, l2=0.1, threshold=threshold).fit(X, y)
    with pytest.warns(UserWarning, match="2 of 4 rows have no word or feature that the model knows"):
        found = clf.predict([X[0], "qwertz", "", X[1]])
    assert found[1] == found[2] == () and found[0] and found[3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clf.predict(["qwertz"]) == [()]  # said once
        assert clf.predict([X[0]]) == [found[0]]


def test_an_empty_row_of_an_indicator_has_no_labels_and_a_class_is_some_class():
    X, Y = points()
    rows = np.vstack([X[:2], np.zeros((1, X.shape[1]))])
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        found = Classifier(l2=0.1).fit(X, Y).predict(rows)
    assert found[:2].sum(1).min() > 0 and found[2].sum() == 0
    classes = Y.argmax(1)
    with pytest.warns(UserWarning, match="the most likely class"):
        assert Classifier(l2=0.1).fit(X, classes).predict(rows)[2] in classes


@pytest.mark.parametrize("vectoriser", [TfidfVectorizer(analyzer="char", ngram_range=(1, 2)), CountVectorizer()])
def test_a_vectoriser_of_scikit_learn_makes_the_features(tmp_path, vectoriser):
    X, y = texts()
    clf = clone(Classifier(text=True, l2=0.1, vectorizer=vectoriser)).fit(X, y)
    alone = Classifier(l2=0.1).fit(vectoriser.fit_transform(X), y)
    np.testing.assert_allclose(clf.decision_function(X), alone.decision_function(vectoriser.transform(X)), atol=1e-4)
    clf.save(tmp_path / "m")
    found = Classifier.load(tmp_path / "m")
    assert np.array_equal(found.decision_function(X), clf.decision_function(X))
    assert type(found.vectorizer) is type(vectoriser) and found.vectorizer.analyzer == vectoriser.analyzer


def test_a_vectoriser_that_cannot_be_stored_is_refused_before_training():
    X, y = texts()
    with pytest.raises(hb.OptionError, match="tokenizer is a function, which no model file can store"):
        Classifier(text=True, vectorizer=CountVectorizer(tokenizer=str.split)).fit(X, y)
    with pytest.raises(hb.OptionError, match="vectorizer makes features of texts: give text=True"):
        Classifier(vectorizer=CountVectorizer()).fit(*points())


# scikit-learn's contract


@parametrize_with_checks([Classifier()], expected_failed_checks=lambda _: EXEMPTIONS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_options_may_be_numpy_scalars(tmp_path):
    X, Y = points()
    options = {"dim": np.int64(4), "l2": np.float32(0.5), "hidden": np.array([8]), "seed": np.int64(1)}
    clf = clone(Classifier(**options)).fit(X, Y)
    clf.save(tmp_path / "m")
    assert clf.model_.metadata["config"]["dim"] == 4


@pytest.mark.parametrize("options", [{"dim": 0}, {"network": "tree"}, {"loss": "bce"}, {"l2": "x"}], ids=str)
def test_wrong_parameters_are_refused_by_fit(options):
    with pytest.raises(hb.OptionError, match=f"{next(iter(options))} |losses"):
        Classifier(**options).fit(*points())


def test_only_fit_works_before_fit(tmp_path):
    X, Y = points()
    for call in (
        lambda c: c.predict(X),
        lambda c: c.top_k(X, 1),
        lambda c: c.predict_names(X),
        lambda c: c.decision_function(X),
        lambda c: c.score(X, Y),
        lambda c: c.save(tmp_path / "m"),
    ):
        with pytest.raises(NotFittedError):
            call(Classifier())


def test_it_follows_tfidf_in_a_pipeline():
    documents, sets = texts()
    Y = MultiLabelBinarizer().fit_transform(sets)
    pipeline = make_pipeline(TfidfVectorizer(), Classifier()).fit(documents[:60], Y[:60])
    assert pipeline.score(documents[60:], Y[60:]) == 1
    assert pipeline.predict(documents[60:]).shape == (20, 6)


def test_grids_are_searched_over_its_parameters():
    X, Y = points()
    search = GridSearchCV(Classifier(), {"l2": np.array([1e-2, 1e4]), "dim": np.array([1, 6])}, cv=3).fit(X, Y)
    assert search.best_params_ == {"l2": 1e-2, "dim": 6}
    documents, sets = texts()
    search = GridSearchCV(Classifier(text=True), {"l2": [1.0, 0.1]}, cv=KFold(3)).fit(documents, sets)
    assert search.best_score_ > 0.9
    assert cross_val_score(Classifier(), X, Y.argmax(1), cv=3).mean() > 0.5


# Forms of X and y


def test_features_may_be_sparse_dense_or_a_table():
    pandas = pytest.importorskip("pandas")
    X, Y = points()
    wanted = Classifier(l2=1.0).fit(X, Y).decision_function(X)
    for inputs in (sparse.csr_array(X), sparse.csr_matrix(X), sparse.coo_array(X), X.tolist(), pandas.DataFrame(X)):
        assert np.allclose(Classifier(l2=1.0).fit(inputs, Y).decision_function(inputs), wanted, atol=1e-5)
    table = pandas.DataFrame(X, columns=[f"f{i}" for i in range(15)])
    assert Classifier().fit(table, Y).feature_names_in_.tolist() == list(table.columns)


def test_a_feature_or_label_stored_twice_counts_once_and_nothing_given_is_changed():
    X, Y = points()
    twice = sparse.csr_matrix(
        (np.repeat(X.ravel() / 2, 2), np.repeat(np.tile(np.arange(15), 80), 2), np.arange(81) * 30)
    )
    labels = sparse.csr_matrix((np.repeat(Y.ravel(), 2), np.repeat(np.tile(np.arange(6), 80), 2), np.arange(81) * 12))
    for normalise in (True, False):
        clf = Classifier(l2=1.0, normalise=normalise).fit(twice, labels)
        wanted = Classifier(l2=1.0, normalise=normalise).fit(X, Y)
        assert np.allclose(clf.decision_function(twice), wanted.decision_function(X), atol=1e-5)
    assert twice.nnz == X.size * 2 and labels.nnz == Y.size * 2


FORMS = {
    "sparse": sparse.csr_array,
    "sparse matrix": sparse.coo_matrix,
    "dense": lambda Y: Y,
    "truth values": lambda Y: Y.astype(bool),
    "lists of 0 and 1": lambda Y: Y.tolist(),
    "sets": sets_of,
    "lists of names": lambda Y: [sorted(s) for s in sets_of(Y)],
    "tuples in an array": lambda Y: np.array([*(tuple(s) for s in sets_of(Y)), None], object)[:-1],
    "sets of ids": lambda Y: [set(np.flatnonzero(row).tolist()) for row in Y],
}


@pytest.mark.parametrize("form", FORMS)
def test_labels_come_back_in_the_form_in_which_they_came(form):
    X, Y = points()
    y = FORMS[form](Y)
    clf = Classifier(l2=0.1).fit(X, y)
    wanted = Classifier(l2=0.1).fit(X, Y)
    assert np.allclose(clf.decision_function(X), wanted.decision_function(X), atol=1e-5)
    assert clf.score(X, y) == wanted.score(X, Y)
    found, plain = clf.predict(X), wanted.predict(X)
    if form.startswith("sparse"):
        assert sparse.issparse(found) and found.format == "csr"
        assert np.array_equal(found.toarray(), plain)
    elif form in ("dense", "truth values", "lists of 0 and 1"):
        assert found.dtype == np.asarray(y).dtype
        assert np.array_equal(found, plain)
    else:
        names = np.arange(6) if form == "sets of ids" else NAMES
        assert clf.classes_.tolist() == names.tolist()
        assert found == [tuple(names[row == 1].tolist()) for row in plain]


@pytest.mark.parametrize(
    "classes", [np.array([7, 3, 30]), np.array(["b", "a", "ccc"]), np.array(["b", "a", "ccc"], object), [True, False]]
)
def test_one_class_a_row_is_scored_by_accuracy(classes):
    X, Y = points()
    y = np.asarray(classes)[Y.argmax(1) % len(classes)]
    clf = Classifier().fit(X, y)
    found = clf.predict(X)
    assert found.dtype == y.dtype and found.shape == y.shape
    assert clf.score(X, y) == accuracy_score(y, found) > 0.6
    weights = np.linspace(0, 1, 80)
    assert clf.score(X, y, weights) == pytest.approx(accuracy_score(y, found, sample_weight=weights))
    assert set(clf.classes_) == set(np.asarray(classes).tolist())
    scores = clf.decision_function(X)
    assert scores.shape == ((80,) if len(classes) == 2 else (80, 3))
    best = (scores > 0).astype(int) if len(classes) == 2 else scores.argmax(1)
    assert np.array_equal(clf.classes_[best], found)
    assert clf.score(X, np.full(80, 9999)) == 0  # a class that it does not know is no error, but wrong


def test_it_classifies_as_the_ridge_classifier_does():
    X, Y = points(300)
    y = Y.argmax(1)
    ours, theirs = Classifier(normalise=False).fit(X[:200], y[:200]), RidgeClassifier().fit(X[:200], y[:200])
    assert ours.score(X[200:], y[200:]) > theirs.score(X[200:], y[200:]) - 0.05


def test_a_column_of_classes_is_a_vector_of_them_with_a_warning():
    X, Y = points()
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        assert Classifier().fit(X, Y.argmax(1)[:, None]).predict(X).shape == (80,)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),
        ("abc", "must be a vector, a matrix or a list of label sets; got str"),
        (3, "must be a vector, a matrix or a list of label sets; got int"),
        ([[0.5, 1]] * 80, "labels of sets must be all strings or all whole numbers"),
        (np.full((80, 3), 2), "an indicator of 0 and 1; for several classes a row, pass label sets"),
        (np.ones((80, 3, 2)), r"a vector or a matrix; got shape \(80, 3, 2\)"),
        ([{"a"}] * 79 + ["b"], "y holds label sets, but row 79 is 'b'; a row with one label is a set of one"),
        ([{"a", 3}] * 80, "labels of sets must be all strings or all whole numbers"),
        ([[["a"]]] * 80, "labels of sets must be all strings or all whole numbers"),
        ([{("a",)}] * 80, "labels of sets must be all strings or all whole numbers"),
        (np.array(["a", 3] * 40, object), "classes must be all strings or all numbers"),
        (np.linspace(0, 1, 80), "continuous"),
        ([{"a"}] * 79, "inconsistent numbers of samples"),
        ([set()] * 80, "nothing to learn from 80 rows, 15 features, 0 labels"),
    ],
)
def test_wrong_labels_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        Classifier().fit(points()[0], y)


# Predictions


def test_predict_chooses_the_number_of_labels_by_probabilities_or_by_a_threshold():
    X, Y = points()
    clf = Classifier().fit(X, Y)
    p, threshold = clf.predict_proba(X), clf.model_.calibration.threshold
    found = clf.predict(X)
    assert np.array_equal(found == 1, p >= threshold) and len(set(found.sum(1))) > 1
    precise = clf.set_params(objective="precision=0.9").predict(X)
    assert (precise <= found).all() or precise.sum() < found.sum()
    assert (p * precise).sum(1)[precise.sum(1) > 0].mean() >= 0.9
    with pytest.raises(hb.OptionError, match="an objective is micro-f1"):
        clf.set_params(objective="best").predict(X)
    clf.set_params(objective="micro-f1")
    assert np.array_equal(clf.set_params(threshold=0.3).predict(X) == 1, clf.decision_function(X) > 0.3)
    assert clf.set_params(threshold=100.0).predict(X).sum() == 0


def test_a_model_without_probabilities_predicts_the_mean_number_of_labels(tmp_path):
    X, Y = points()
    clf = Classifier(network="fc", hidden=(8,), epochs=1, validation_fraction=0.0).fit(X, Y)
    k = round(Y.sum() / len(Y))
    found, (scores, ids) = clf.predict(X), clf.top_k(X, k)
    assert k == 2 and (found.sum(1) == k).all() and np.all(scores[:, 0] >= scores[:, 1])
    assert all(set(np.flatnonzero(row)) == set(best) for row, best in zip(found, ids, strict=True))
    assert not hasattr(clf, "predict_proba")
    with pytest.raises(hb.OptionError, match="no calibrated probabilities"):
        clf.model_.choose(X)
    clf.model_.calibrate(X, sparse.csr_array(Y))
    assert clf.predict_proba(X).shape == Y.shape
    clf.set_params(objective="sample-f1").save(tmp_path / "model.safetensors")
    again = Classifier.load(tmp_path / "model.safetensors")
    assert again.objective == "sample-f1" and np.array_equal(again.predict(X), clf.predict(X))


def test_probabilities_of_classes_sum_to_one_and_agree_with_predict():
    X, Y = points()
    clf = Classifier().fit(X, Y.argmax(1))
    p = clf.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    assert np.array_equal(clf.classes_[p.argmax(1)], clf.predict(X))


def test_names_are_in_the_order_of_scores():
    X, Y = points()
    clf = Classifier().fit(X, sets_of(Y))
    _, ids = clf.top_k(X, 3)
    assert clf.predict_names(X, 3) == [[NAMES[i] for i in row] for row in ids]
    assert Classifier().fit(X, Y).predict_names(X[:1], 6)[0] == clf.top_k(X[:1], 6)[1][0].tolist()
    with pytest.raises(hb.OptionError, match="k must be from 1 to the number of labels, 6; got 7"):
        clf.top_k(X, 7)


def test_the_score_is_precision_at_1():
    X, Y = points()
    clf = Classifier(dim=2).fit(X, sparse.csr_array(Y))
    wanted = hb.metrics.precision_at_k(sparse.csr_array(Y), clf.top_k(X, 1)[1])[0] / 100
    assert clf.score(X, Y) == clf.score(X, sparse.csr_array(Y)) == pytest.approx(wanted)


def test_texts_are_read_with_text():
    documents, sets = texts()
    clf = Classifier(text=True).fit(documents[:60], sets[:60])
    assert clf.score(documents[60:], sets[60:]) == 1
    assert clf.predict_names(["a red lemon"], 1) == [[NAMES[4]]]
    assert not hasattr(clf, "n_features_in_")
    for wrong in ([[1.0]], 3, sparse.csr_array(np.eye(2))):
        with pytest.raises(hb.DataError, match="with text=True, X is a list of texts"):
            clf.predict(wrong)
    with pytest.raises(hb.DataError, match="texts come in a list"):
        clf.predict("one text")


def test_texts_are_understood_in_every_form():
    documents, sets = texts(40)
    wanted = Classifier(text=True, l2=1.0).fit(documents, sets).decision_function(documents)
    forms = [documents, np.array(documents), np.array(documents, object), (text for text in documents)]
    if pandas := _installed("pandas"):
        forms += [pandas.Series(documents), pandas.DataFrame({"text": documents})]
    if polars := _installed("polars"):
        forms += [polars.Series(documents), polars.DataFrame({"text": documents})]
    if datasets := _installed("datasets"):
        forms.append(datasets.Dataset.from_dict({"text": documents})["text"])
    for X in forms:
        clf = Classifier(l2=1.0).fit(X, (labels for labels in sets))
        assert np.allclose(clf.decision_function(documents), wanted), type(X)
    with pytest.raises(hb.DataError, match="for a model of texts, X is a list of texts"):
        clf.predict(np.eye(3))


def _installed(name):
    try:
        return __import__(name)
    except ImportError:
        return None


def test_labels_unseen_in_training_count_as_misses():
    documents, sets = texts(40)
    clf = Classifier(l2=1.0).fit(documents, sets)
    with pytest.warns(UserWarning, match="2 labels of y were not seen in training") as warned:
        found = clf.score(documents[:2], [{"new"}, {*sets[1], "newer"}])
    assert found == clf.score(documents[1:2], sets[1:2]) / 2 and len(warned) == 1


def test_verbose_reports_on_stderr_and_otherwise_nothing_is_printed(capsys):
    X, Y = points()
    Classifier(network="fc", hidden=(8,), epochs=2).fit(X, Y)
    assert capsys.readouterr() == ("", "")
    Classifier(network="fc", hidden=(8,), epochs=2, linear_skip=True, verbose=True).fit(X, Y)
    reported = capsys.readouterr()
    assert reported.out == "" and reported.err.count("epoch ") == 2 and "nDCG@5" in reported.err


# Portion by portion


def portions(X, Y, size=20):
    return [(X[a : a + size], Y[a : a + size]) for a in range(0, len(X), size)]


@pytest.mark.parametrize(
    "options", [{}, {"network": "fc", "loss": "softmax", "hidden": (64,), "learning_rate": 0.01}], ids=str
)
def test_portions_are_learned_one_after_the_other(options):
    X, Y = points(800)
    test_X, test_Y = X[600:], Y[600:]
    clf = Classifier(**options)
    scores = []
    for _ in range(4):
        for X_portion, Y_portion in portions(X[:600], Y[:600], 100):
            clf.partial_fit(X_portion, Y_portion)
            scores.append(clf.score(test_X, test_Y))
    assert scores[-1] > scores[0] + 0.02
    assert scores[-1] > 0.7
    assert clf.model_.frequencies.n_rows == 2400


def test_portions_in_the_same_order_give_the_same_model():
    X, Y = points()
    one, other = Classifier(network="fc", hidden=(8,)), Classifier(network="fc", hidden=(8,))
    for portion in portions(X, Y):
        one.partial_fit(*portion)
        other.partial_fit(*portion)
    for a, b in zip(one.model_.state_dict().values(), other.model_.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_later_calls_may_have_classes_that_the_first_call_names():
    X, Y = points()
    y = NAMES[Y.argmax(1)]
    clf = Classifier().partial_fit(X[:3], y[:3], classes=NAMES).partial_fit(X[3:], y[3:], classes=NAMES[::-1])
    assert clf.classes_.tolist() == NAMES.tolist()
    sets = sets_of(Y)
    clf = Classifier().partial_fit(X[:3], sets[:3], classes=list(NAMES)).partial_fit(X[3:], sets[3:])
    assert clf.classes_.tolist() == NAMES.tolist() and isinstance(clf.predict(X)[0], tuple)
    with pytest.raises(hb.LabelError, match="y has a label 'other' that is not among the 6 known"):
        clf.partial_fit(X[:1], [{"other"}])
    with pytest.raises(hb.DataError, match="classes are others than in the first call"):
        clf.partial_fit(X[:1], sets[:1], classes=["a", "b"])
    with pytest.raises(hb.DataError, match="y is of the kind 'matrix'; the first one was of the kind 'names'"):
        clf.partial_fit(X, Y)
    with pytest.raises(hb.DataError, match="y has 5 labels; there were 6"):
        Classifier().fit(X, Y).partial_fit(X, Y[:, :5])


def test_fit_starts_anew_after_portions():
    X, Y = points()
    clf = Classifier().partial_fit(X[:40], Y[:40]).partial_fit(X[40:], Y[40:])
    assert not np.allclose(clf.decision_function(X), Classifier().fit(X, Y).decision_function(X), atol=1e-4)
    assert np.array_equal(clf.fit(X, Y).decision_function(X), Classifier().fit(X, Y).decision_function(X))


def test_texts_come_in_portions_with_the_words_of_the_first():
    documents, sets = texts()
    clf = Classifier(text=True).partial_fit(documents[:40], sets[:40])
    words = clf.model_.tfidf.words
    clf.partial_fit(documents[40:], sets[40:])
    assert clf.model_.tfidf.words == words and clf.model_.frequencies.n_rows == 80
    assert clf.score(documents, sets) > 0.9


# Files


@pytest.mark.parametrize(
    "y_of",
    [
        lambda Y: Y.argmax(1) * 10 - 3,
        lambda Y: Y.argmax(1) % 2 == 1,
        lambda Y: NAMES[Y.argmax(1)],
        lambda Y: Y.argmax(1).astype(np.float64),
        *FORMS.values(),
    ],
)
def test_a_saved_estimator_predicts_the_same_in_the_same_form(tmp_path, y_of):
    X, Y = points()
    clf = Classifier(threshold=0.3, dim=4, hidden=(3,), trainable=()).fit(X, y_of(Y))
    clf.save(tmp_path / "m")
    found = Classifier.load(tmp_path / "m")
    one, other = clf.predict(X), found.predict(X)
    if sparse.issparse(one):
        one, other = one.toarray(), other.toarray()
    assert type(one) is type(other)
    assert one == other if isinstance(one, list) else (np.array_equal(one, other) and one.dtype == other.dtype)
    assert found.get_params() == clf.get_params()
    assert found.classes_.tolist() == clf.classes_.tolist()
    assert found.n_features_in_ == 15
    found.partial_fit(X, y_of(Y))
    model = hb.load(tmp_path / "m")
    assert model.label_names == (None if clf.targets_.kind in ("matrix", "sparse") else [str(c) for c in clf.classes_])
    assert np.array_equal(model.scores(X.astype(np.float32)), clf.model_.scores(X.astype(np.float32)))


def test_a_saved_estimator_of_texts_reads_texts(tmp_path):
    documents, sets = texts()
    Classifier(text=True).fit(documents, sets).save(tmp_path / "m")
    found = Classifier.load(tmp_path / "m")
    assert found.text and found.score(documents, sets) == 1
    assert hb.load(tmp_path / "m").top_k(["lemon"], 1)[1].tolist() == [[4]]


def test_models_of_learn_can_be_loaded_as_estimators(tmp_path):
    X, Y = points()
    split = hb.data.Split(sparse.csr_array(X.astype(np.float32)), sparse.csr_array(Y))
    hb.learn(split, hb.ModelConfig(dim=4)).save(tmp_path / "m")
    assert sparse.issparse(Classifier.load(tmp_path / "m").predict(X))
    hb.learn(split, hb.ModelConfig(dim=4), label_names=NAMES.tolist()).save(tmp_path / "m")
    found = Classifier.load(tmp_path / "m")
    assert found.dim == 4 and set(found.predict(X)[0]) <= set(NAMES)
    twins = hb.learn(
        split, label_names=["b", "a", "b", "c", "a", "d"]
    )  # names of labels need be neither sorted nor unique
    twins.save(tmp_path / "m")
    assert Classifier.load(tmp_path / "m").predict_names(X[:1], 6)[0] == [
        ["b", "a", "b", "c", "a", "d"][i] for i in twins.top_k(X[:1], 6)[1][0]
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        {"estimator": {"kind": "x"}},
        {"estimator": {"kind": ["classes"]}},
        {"estimator": {"kind": "classes", "dtype": "V8"}},
        {"estimator": {"kind": "classes", "dtype": "import os"}},
        {"estimator": {"kind": "classes", "dtype": "<i8"}},
        {"estimator": {"threshold": "high"}},
        {"estimator": 3},
        {"config": {"dim": -1}},
        {"config": 3},
    ],
)
def test_a_file_with_invalid_options_is_refused(tmp_path, metadata):
    X, Y = points()
    clf = Classifier().fit(X, sets_of(Y))
    clf.model_.metadata = metadata
    clf.model_.save(tmp_path / "m")
    with pytest.raises(hb.FileError, match="has no valid options of an estimator"):
        Classifier.load(tmp_path / "m")


def test_class_names_that_cannot_be_stored_are_refused_before_training():
    X, Y = points()
    with pytest.raises(hb.DataError, match="line break"):
        Classifier().fit(X, [{f"a\n{name}" for name in row} for row in sets_of(Y)])


@pytest.mark.parametrize("options", [{}, {"network": "fc", "hidden": (8,), "epochs": 1}], ids=str)
def test_a_pickled_estimator_is_the_same(options):
    X, Y = points()
    clf = Classifier(**options).fit(X, Y)
    again = pickle.loads(pickle.dumps(clf))
    assert np.array_equal(again.decision_function(X), clf.decision_function(X))


def test_targets_are_read_back_from_their_description():
    for y in ([3, 1, 2], ["b", "a"], [True, False], [{"a"}, {"b"}], [[0, 1], [1, 1]], sparse.eye_array(3)):
        targets = Targets.of(y)
        again = Targets.from_json(targets.as_json(), targets.label_names, len(targets.classes))
        assert again.kind == targets.kind and again.classes.tolist() == targets.classes.tolist()
        assert again.dtype == targets.dtype


def test_groups_are_held_out_as_a_whole():
    X, y = points(n=90)[:2]
    groups = [f"family {i // 3}" for i in range(90)]
    fitted = Classifier(seed=1).fit(X, y, groups=groups)
    assert fitted.model_.metadata["held_out"]["groups"] == 30
    assert Classifier(seed=1).fit(X, y).model_.metadata["held_out"]["groups"] is None
    trained = Classifier(network="fc", hidden=(8,), epochs=1).fit(X, y, groups=groups)
    assert trained.model_.metadata["training"]["history"]
    with pytest.raises(hb.ShapeError, match="each of the 90 rows; got 89"):
        Classifier().fit(X, y, groups=groups[:-1])


def test_models_of_fewer_than_five_labels_rank_all_of_them_by_default():
    texts, y = ["red apple", "green apple", "red car"] * 10, [["fruit", "red"], ["fruit"], ["car", "red"]] * 10
    clf = hb.HolographicClassifier().fit(texts, y)
    assert [sorted(names) for names in clf.predict_names(["a green apple"])] == [["car", "fruit", "red"]]
    assert clf.top_k(texts)[1].shape == clf.model_.top_k(texts)[1].shape == (30, 3)
    assert clf.model_.top_k(texts, exclude=["car"])[1].shape == (30, 2)
    with pytest.raises(hb.OptionError, match="k must be from 1 to the number of labels, 3; got 5"):
        clf.top_k(texts, 5)


@pytest.mark.parametrize("missing", [None, float("nan")])
@pytest.mark.parametrize("at", [0, 7])
def test_a_missing_text_is_named_wherever_it_is(missing, at):
    texts, y = ["red apple", "green apple", "red car"] * 10, [["fruit", "red"], ["fruit"], ["car", "red"]] * 10
    texts[at] = missing
    with pytest.raises(hb.DataError, match=f"number {at + 1} is .*; put '' where a text is missing"):
        hb.HolographicClassifier().fit(texts, y)
