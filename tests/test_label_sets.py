"""Label sets: the best ones by brute force, and objectives that say what is wrong with them."""

from itertools import product

import numpy as np
import pytest

from holobind.errors import OptionError
from holobind.label_sets import Objective, expected_f1, set_sizes


def f1_by_definition(p, size):
    """The mean F1 of the first `size` labels over all 2^k possible sets of true labels."""
    total = 0.0
    for true in product((0, 1), repeat=len(p)):
        chance = np.prod([q if t else 1 - q for q, t in zip(p, true, strict=True)])
        both, hits = size + sum(true), sum(true[:size])
        total += chance * (2 * hits / both if both else 1)
    return total


@pytest.mark.parametrize("k", [1, 2, 5])
def test_expected_f1_is_the_mean_over_all_possible_label_sets(k):
    p = -np.sort(-np.random.default_rng(k).random((4, k)), axis=1)
    wanted = [[f1_by_definition(row, size) for size in range(k + 1)] for row in p]
    np.testing.assert_allclose(expected_f1(p), wanted)


def test_sets_of_sample_f1_are_the_best_of_all_subsets_that_are_not_empty():
    p = -np.sort(-(np.random.default_rng(0).random((30, 5)) ** 2), axis=1)
    sizes = set_sizes(p, Objective("sample-f1"))
    for row, size in zip(p, sizes, strict=True):
        best = 0.0
        for subset in list(product((False, True), repeat=5))[1:]:
            order = np.argsort(~np.array(subset), kind="stable")  # f1_by_definition takes the first labels
            best = max(best, f1_by_definition(row[order], sum(subset)))
        assert f1_by_definition(row, size) == pytest.approx(best)
    assert set_sizes([[0.01, 1e-4, 1e-4]], Objective("sample-f1")) == [1]  # the empty set would have 0.99


def test_targets_of_precision_and_recall_are_met_and_no_label_more_or_fewer():
    p = -np.sort(-np.random.default_rng(1).random((200, 8)), axis=1)
    sizes = set_sizes(p, Objective.parse("precision=0.7"))
    for row, size in zip(p, sizes, strict=True):
        assert size == 0 or row[:size].mean() >= 0.7
        assert size == 8 or row[: size + 1].mean() < 0.7
    missed = 0.5
    sizes = set_sizes(p, Objective.parse("recall=0.6"), missed=missed)
    for row, size in zip(p, sizes, strict=True):
        wanted = 0.6 * (row.sum() + missed)
        assert row[:size].sum() >= wanted and row[: size - 1].sum() < wanted
    assert (set_sizes(p, Objective.parse("recall=1"), missed=missed) == 8).all()  # as far as there are candidates


def test_micro_f1_takes_the_labels_from_the_threshold_on():
    p = np.array([[0.9, 0.3, 0.2], [0.1, 0.05, 0.0]])
    assert set_sizes(p, Objective(), threshold=0.3).tolist() == [2, 0]


@pytest.mark.parametrize(
    "text", ["f1", "precision", "micro-f1=0.5", "precision=", "recall=0", "recall=1.1", "recall=nan"]
)
def test_an_unknown_objective_is_refused(text):
    with pytest.raises(OptionError, match=r"objective is|to reach is above 0"):
        Objective.parse(text)
