"""The interval of an estimated score, and cosines with the nearest rows."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from holobind.ridge_knn.estimate import estimate, nearest_cosines


def test_the_interval_holds_the_mean_of_new_rows_in_95_percent_of_draws():
    draw = np.random.default_rng(0)
    intervals = [estimate(100 * draw.beta(2, 3, 400), None) for _ in range(1000)]
    assert np.mean([each.low <= 40 <= each.high for each in intervals]) == pytest.approx(0.95, abs=0.02)


def test_rows_of_a_group_are_not_independent():
    draw = np.random.default_rng(1)
    groups = np.repeat(np.arange(60), 8)

    def covers(with_groups):
        found = []
        for _ in range(500):
            each = estimate(np.repeat(100 * draw.beta(2, 3, 60), 8), groups if with_groups else None)
            found.append(each.low <= 40 <= each.high)
        return np.mean(found)

    assert covers(True) == pytest.approx(0.94, abs=0.03)
    assert covers(False) < 0.7


def test_groups_of_one_row_are_rows():
    values = np.random.default_rng(2).uniform(0, 100, 50)
    rows, groups = estimate(values, None), estimate(values, np.arange(50)[::-1].copy())
    assert (rows.low, rows.high) == pytest.approx((groups.low, groups.high))
    assert (rows.groups, groups.groups, rows.rows) == (None, 50, 50)
    error = values.std(ddof=1) / 50**0.5
    assert rows.high - rows.ndcg == pytest.approx(1.96 * error)


def test_cosines_are_those_of_dense_rows():
    draw = np.random.default_rng(3)
    X, rows = (draw.normal(size=(n, 7)) * (draw.random((n, 7)) < 0.5) for n in (5, 9))
    X[2] = rows[4] = 0
    nearest = np.array([1, 4, 3, 8, 0])
    wanted = [
        x @ rows[i] / (np.linalg.norm(x) * np.linalg.norm(rows[i])) if x.any() and rows[i].any() else 0
        for x, i in zip(X, nearest, strict=True)
    ]
    assert nearest_cosines(csr_array(X), csr_array(rows), nearest) == pytest.approx(wanted)
