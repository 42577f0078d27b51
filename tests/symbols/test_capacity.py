"""The crosstalk model against the retrieval experiments, and the two functions that invert it."""

import json
from pathlib import Path

import pytest
from holobind_paper import retrieval_error

import holobind as hb

RESULTS = Path(__file__).parents[2] / "experiments/results/retrieval-error.json"


def test_the_model_predicts_every_point_of_the_retrieval_experiment():
    rows = [row for row in json.loads(RESULTS.read_text())["rows"] if row["vsa"] == "HRR w/ Proj"]
    assert len(rows) == 126
    for row in rows:
        sampling = (max(row["mean"] * (1 - row["mean"]), 0.01) / (10 * row["n"])) ** 0.5
        assert hb.expected_error(row["d"], row["n"]) == pytest.approx(row["mean"], abs=0.02 + 3 * sampling), row


@pytest.mark.parametrize(("d", "n"), [(64, 12), (256, 32), (484, 48)])
def test_the_model_predicts_a_fresh_experiment(d, n):
    rates = retrieval_error.error_rates("HRR w/ Proj", d, n, seed=7, trials=60)
    assert hb.expected_error(d, n) == pytest.approx(sum(rates) / len(rates), abs=0.03)


def test_more_dimensions_fewer_pairs_and_fewer_distractors_reduce_errors():
    error = hb.expected_error
    assert error(512, 40) < error(256, 40) < error(256, 60) < error(256, 60, 10_000)
    assert hb.expected_error(256, 60, 0) == pytest.approx(0)


def test_pairs_held_and_dimension_for_invert_capacity():
    held = hb.pairs_held(1024, error=0.05)
    assert hb.expected_error(1024, held) <= 0.05 < hb.expected_error(1024, held + 1)
    d = hb.dimension_for(100, error=0.01, distractors=10**6)
    assert hb.expected_error(d, 100, 10**6) <= 0.01 < hb.expected_error(d - 1, 100, 10**6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hb.expected_error(0, 1), "d must be at least 1, got 0"),
        (lambda: hb.expected_error(8, 2.5), "n must be a whole number, got 2.5"),
        (lambda: hb.expected_error(8, 2, -1), "distractors must be at least 0, got -1"),
        (lambda: hb.pairs_held(8, error=3), "pairs_held: error must be a fraction between 0 and 1, got 3"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(hb.OptionError, match=message):
        call()
