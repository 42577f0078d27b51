"""The report of labels: the definitions of scikit-learn, confusions by counting, and rows from hard to easy."""

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import average_precision_score, precision_recall_fscore_support

from holobind.label_report import average_precision, label_report
from holobind.label_sets import Ranking


def random_case(n=60, n_labels=9, seed=0, ties=False):
    """Scores of all labels, their ranking, chosen sets of different sizes, and true labels."""
    draw = np.random.default_rng(seed)
    scores = draw.random((n, n_labels))
    if ties:
        scores = np.round(scores, 1)
    Y = (draw.random((n, n_labels)) < 0.25).astype(np.int32)
    ids = np.argsort(-scores, axis=1, kind="stable")
    sizes = draw.integers(0, 4, n)
    chosen = np.where(np.arange(3) < sizes[:, None], ids[:, :3], -1)
    p = np.take_along_axis(scores, ids, 1)
    return Ranking(p.astype(np.float32), ids, p), chosen, Y, scores


@pytest.mark.parametrize("ties", [False, True])
def test_labels_have_the_values_of_scikit_learn(ties):
    ranking, chosen, Y, scores = random_case(ties=ties)
    predicted = np.zeros_like(Y)
    for row, ids in enumerate(chosen):
        predicted[row, ids[ids >= 0]] = 1
    found = label_report(ranking, chosen, csr_array(Y))
    wanted = precision_recall_fscore_support(Y, predicted, zero_division=0)
    for values, expected in zip((found.precision, found.recall, found.f1), wanted[:3], strict=True):
        np.testing.assert_allclose(values, 100 * expected)
    np.testing.assert_array_equal(found.support, wanted[3])
    np.testing.assert_allclose(found.average_precision, 100 * average_precision_score(Y, scores, average=None))


def test_rows_that_lack_a_label_among_their_candidates_never_find_it():
    ranking, _, Y, scores = random_case()
    few = Ranking(*(array[:, :4] for array in ranking))
    hits = np.take_along_axis(Y, few.ids, 1) > 0
    unranked = np.where(np.argsort(np.argsort(-scores, axis=1), axis=1) < 4, scores, -1.0)
    for label, value in enumerate(average_precision(few, hits, Y.sum(0))):
        order = np.argsort(-unranked[:, label], kind="stable")
        order = order[unranked[order, label] >= 0]
        true = Y[order, label]
        wanted = (true * np.cumsum(true) / np.arange(1, len(true) + 1)).sum() / Y[:, label].sum()
        assert value == pytest.approx(100 * wanted)


def test_confusions_count_missed_and_wrong_labels_of_the_same_row():
    ranking, chosen, Y, _ = random_case()
    counts = Counter()
    for row, ids in enumerate(chosen):
        given, true = set(ids[ids >= 0].tolist()), set(np.flatnonzero(Y[row]).tolist())
        counts.update((missed, wrong) for missed in true - given for wrong in given - true)
    found = label_report(ranking, chosen, csr_array(Y)).confusions
    assert {(a, b): n for a, b, n in found} == dict(counts)
    assert [n for *_, n in found] == sorted(counts.values(), reverse=True)
    assert label_report(ranking, chosen, csr_array(Y), max_confusions=3).confusions == found[:3]


def test_hardness_is_the_cross_entropy_and_without_probabilities_the_number_of_errors():
    ranking, chosen, Y, scores = random_case()
    found = label_report(ranking, chosen, csr_array(Y))
    wanted = -np.where(Y > 0, np.log(scores), np.log1p(-scores)).sum(1)
    np.testing.assert_allclose(found.hardness, wanted)
    assert found.hardest(5).tolist() == np.argsort(-wanted)[:5].tolist()
    errors = label_report(ranking._replace(probabilities=None), chosen, csr_array(Y)).hardness
    for row, ids in enumerate(chosen):
        assert errors[row] == len(set(ids[ids >= 0].tolist()) ^ set(np.flatnonzero(Y[row]).tolist()))
