"""Calibration: probabilities that come true, that keep the ranking, and that a hostile file cannot break."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holobind.calibration import Calibration, Spline, calibration_error, fit_calibration, reliability
from holobind.errors import OptionError, ShapeError

SCALES = {"regression": (0.3, 0.2), "logits": (-4.0, 3.0), "large": (1e5, 2e4)}


def ranked_rows(n=3000, k=12, scale=(0.0, 1.0), seed=0):
    """Scores of k labels a row, best first, and hits with known probabilities that depend on score and row."""
    draw = np.random.default_rng(seed)
    quality = draw.normal(size=(n, 1))
    x = -np.sort(-(draw.normal(size=(n, k)) + quality), axis=1)
    p = 1 / (1 + np.exp(1.5 - 1.2 * x + 0.8 * x[:, :1]))
    return scale[0] + scale[1] * x, draw.random((n, k)) < p, p


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_probabilities_come_true_on_other_rows_on_any_scale_of_scores(scale):
    scores, hits, p = ranked_rows(6000, scale=scale)
    fitted = fit_calibration(scores[:3000], hits[:3000])
    found = fitted(scores[3000:])
    assert np.abs(found - p[3000:]).mean() < 0.02
    assert calibration_error(found[:, :5], hits[3000:, :5]) < 2
    constant = np.full_like(found, hits[:3000].mean())
    assert _log_loss(found, hits[3000:]) < _log_loss(constant, hits[3000:]) - 0.02


def test_probabilities_keep_the_order_of_the_scores():
    scores, hits, _ = ranked_rows(400)
    for noise in (hits, np.random.default_rng(1).random(hits.shape) < 0.2):  # also where scores say nothing
        found = fit_calibration(scores, noise)(scores)
        assert (np.diff(found, axis=1) < 0).all() and (found > 0).all() and (found < 1).all()


def test_excluded_labels_do_not_change_the_probabilities_of_others():
    scores, hits, _ = ranked_rows(500)
    fitted = fit_calibration(scores, hits)
    np.testing.assert_array_equal(fitted(scores[:, 3:7], scores[:, :5]), fitted(scores)[:, 3:7])


def test_the_error_is_its_definition():
    draw = np.random.default_rng(0)
    p, hits = draw.random((50, 3)), draw.random((50, 3)) < 0.4
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (p >= low) & (p < low + 1 / 15)
        if inside.any():
            total += abs(p[inside].mean() - hits[inside].mean()) * inside.sum()
    assert calibration_error(p, hits) == pytest.approx(100 * total / p.size)
    assert sum(n for *_, n in reliability(p, hits)) == p.size
    assert calibration_error(np.ones(4), np.ones(4, bool)) == 0
    with pytest.raises(ShapeError, match="as many hits as probabilities"):
        calibration_error(p, hits[:3])


@pytest.mark.parametrize("n_hits", [0, 4, 60, 720])
def test_few_hits_give_few_parameters_or_none(n_hits):
    hits = np.zeros((60, 12), bool)
    hits.ravel()[:n_hits] = True
    fitted = fit_calibration(ranked_rows(60)[0], hits)
    if n_hits in (0, 4, hits.size):
        assert fitted is None
    else:
        assert len(fitted.score.steps) == 1 and not fitted.contexts


def test_equal_scores_have_no_calibration():
    assert fit_calibration(np.ones((50, 4)), np.random.default_rng(0).random((50, 4)) < 0.5) is None


def test_the_threshold_is_the_one_with_the_largest_micro_f1():
    scores, hits, _ = ranked_rows(5000)
    fitted = fit_calibration(scores, hits)
    p = fitted(scores)

    def micro_f1(threshold):
        return 2 * (hits & (p >= threshold)).sum() / ((p >= threshold).sum() + hits.sum())

    assert micro_f1(fitted.threshold) > max(map(micro_f1, np.linspace(0.02, 0.98, 97))) - 0.002


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_a_spline_interpolates_between_its_knots(seed, clamped):
    draw = np.random.default_rng(seed)
    knots, steps = np.cumsum(draw.random(5) + 0.01), draw.normal(size=4)
    spline = Spline(tuple(knots), tuple(steps), clamped)
    values = np.append(0, np.cumsum(steps))
    inside = draw.uniform(knots[0], knots[-1], 20)
    np.testing.assert_allclose(spline(inside), np.interp(inside, knots, values), atol=1e-9)
    outside = spline([knots[0] - 1, knots[-1] + 1])
    slopes = np.zeros(2) if clamped else np.array([-steps[0], steps[-1]]) / np.diff(knots)[[0, -1]]
    np.testing.assert_allclose(outside, values[[0, -1]] + slopes)


@pytest.mark.parametrize("clamped", [True, False])
@pytest.mark.parametrize("n_knots", [2, 3, 7])
def test_a_spline_is_linear_in_its_steps_also_far_outside_its_knots(n_knots, clamped):
    rng = np.random.default_rng(n_knots)
    spline = Spline(tuple(np.sort(rng.normal(size=n_knots))), tuple(rng.random(n_knots - 1)), clamped)
    x = 4 * rng.normal(size=(50, 3))
    np.testing.assert_allclose(spline(x), spline.ramps(x) @ np.asarray(spline.steps), atol=1e-10)


def test_json_gives_the_same_probabilities():
    scores, hits, _ = ranked_rows(500)
    fitted = fit_calibration(scores, hits)
    again = Calibration.from_json(json.loads(json.dumps(fitted.as_json())))
    assert again == fitted
    np.testing.assert_array_equal(again(scores), fitted(scores))


@pytest.mark.parametrize(
    "change",
    [
        {"intercept": float("nan")},
        {"intercept": "0"},
        {"threshold": 1.5},
        {"missed": -1},
        {"rows": 2.5},
        {"contexts": 3},
        {"score": {"knots": [0, 0], "steps": [1]}},
        {"score": {"knots": [0, 1e-60], "steps": [1]}},
        {"score": {"knots": [0, 1], "steps": [-1]}},
        {"score": {"knots": [0, 1], "steps": [1e300]}},
        {"score": {"knots": [0, 1], "steps": [1, 1]}},
        {"score": {"knots": list(range(1000)), "steps": [1] * 999}},
        {"contexts": [{"knots": [0, 1], "steps": [float("inf")]}]},
    ],
    ids=str,
)
def test_a_calibration_that_none_could_be_is_refused(change):
    good = fit_calibration(*ranked_rows(500)[:2]).as_json()
    with pytest.raises(OptionError, match="calibration"):
        Calibration.from_json(good | change)


def _log_loss(p, hits):
    return -np.where(hits, np.log(p), np.log1p(-p)).mean()
