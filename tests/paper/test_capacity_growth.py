"""The growth of capacity is fitted, with intervals from resampled trials."""

import math

import numpy as np
import pytest
from holobind_paper import capacity_growth as growth


def test_the_capacity_is_where_the_error_crosses_three_percent():
    assert growth.interpolated({4: 0.0, 8: 0.01, 16: 0.05}) == pytest.approx(math.sqrt(8 * 16))
    assert growth.interpolated({4: 0.1, 8: 0.5}) == 4  # below the grid
    assert growth.interpolated({4: 0.0, 8: 0.02}) == 8  # beyond what was measured


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_the_exponent_of_known_curves_is_found_and_lies_in_its_interval(power):
    dimensions, draws = (256, 1024, 4096), np.random.default_rng(0)
    curves = {}
    for d in dimensions:
        n = 8 * (d / 256) ** power  # the error is 3 % at n, and grows with the square
        curves["x", d] = {m: list(0.03 * (m / n) ** 2 + 1e-3 * draws.normal(size=30)) for m in growth.GRID}
    found = growth.growth("x", dimensions, curves, draws, True)["exponent"]
    assert found["value"] == pytest.approx(power, abs=0.1)
    assert found["low"] <= found["value"] <= found["high"] < found["low"] + 0.3
    ratio = growth.capacity_ratio("x", "x", dimensions, curves, draws, True)
    assert ratio["low"] <= 1 <= ratio["high"]


def test_wilsons_bound_is_about_three_over_the_queries_without_an_error():
    assert growth.wilson_upper(0, 1000) == pytest.approx(3.84 / 1000, rel=0.01)
    assert growth.wilson_upper(500, 1000) == pytest.approx(0.5 + 1.96 * 0.0158, rel=0.01)


def test_the_interval_of_a_ratio_of_errors_uses_the_bound_where_no_error_is_seen(monkeypatch):
    rates = {"HRR": [0.5] * 20, "HRR w/ Proj": [0.0] * 20}
    monkeypatch.setattr(growth, "error_rates", lambda name, d, n, seed, trials: rates[name])
    found = growth.error_ratio(64, 10, 0, 20, np.random.default_rng(0), True)
    assert (found["naive errors"], found["projected errors"], found["queries"]) == (100, 0, 200)
    assert found["ratio"]["low"] == pytest.approx(0.5 / growth.wilson_upper(0, 200))
