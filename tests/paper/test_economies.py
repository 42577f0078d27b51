"""`experiments/economies.py`: the exact twins are exact, constants are set back, and results are resumed."""

import importlib
import json

import numpy as np
import pytest
from helpers.paths import PROJECT
from helpers.ridge_knn import clustered, clustered_split
from scipy.sparse import csr_array

from holobind import metrics
from holobind.data.csr import normalise_rows
from holobind.ridge_knn import KnnIndex, fit_steps, ridge, solve_ridge


@pytest.fixture
def economies(monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT / "experiments"))
    return importlib.import_module("economies")


def test_constants_of_a_twin_are_set_and_set_back(economies):
    network, default = fit_steps.RidgeSteps.network, ridge.FIRST_TOLERANCE
    with pytest.raises(ZeroDivisionError), economies.replaced(economies.ECONOMIES["tolerance"].twin):
        assert default > ridge.FIRST_TOLERANCE and solve_ridge.__kwdefaults__["max_iterations"] == 1000
        _ = 1 / 0
    assert default == ridge.FIRST_TOLERANCE and solve_ridge.__kwdefaults__["max_iterations"] == 100
    with economies.replaced(economies.ECONOMIES["first tree"].twin):
        assert fit_steps.RidgeSteps.network is not network
    assert fit_steps.RidgeSteps.network is network


def test_every_twin_names_what_exists(economies):
    for economy in economies.ECONOMIES.values():
        with economies.replaced(economy.twin):
            pass


def test_the_exact_search_finds_the_largest_cosines(economies, monkeypatch):
    monkeypatch.setattr(economies.knn_index, "MIN_FEATURE_STRENGTH", 0.0)
    draw = np.random.default_rng(0)
    rows, queries = (np.abs(draw.normal(size=(n, 30))) * (draw.random((n, 30)) < 0.4) for n in (50, 8))
    weights = draw.uniform(0.5, 2, 30).astype(np.float32)
    units = [(A * weights) / np.linalg.norm(A * weights, axis=1, keepdims=True) for A in (queries, rows)]
    cosines, neighbours = economies.ExactKnnIndex(csr_array(rows), weights).search(csr_array(queries), 5)
    wanted = np.sort(units[0] @ units[1].T, axis=1)[:, ::-1][:, :5]
    assert cosines / economies.COSINE_SCALE == pytest.approx(wanted, abs=1e-6)
    assert np.array_equal(neighbours, np.argsort(-units[0] @ units[1].T, axis=1)[:, :5])
    found = KnnIndex(csr_array(rows.astype(np.float32)), weights).search(csr_array(queries.astype(np.float32)), 5)[1]
    assert np.mean(found[:, 0] == neighbours[:, 0]) > 0.8


def test_measures_of_rows_have_the_means_of_the_metrics(economies):
    train, held = clustered_split(90), clustered_split(40)
    top = np.argsort(np.random.default_rng(0).random((40, 20)), axis=1)[:, :5]
    found = economies.measures(train, held, top).mean(0)
    P = metrics.precision_at_k(held.Y, top)
    PSP = metrics.psp_at_k(held.Y, top, metrics.propensity(train.Y))
    assert found == pytest.approx([*P[[0, 2, 4]], *PSP[[0, 2, 4]]])


def test_an_audit_measures_what_is_missing(economies, tmp_path):
    X, Y = clustered(n=160)
    split = economies.Split(normalise_rows(X), Y)
    train, held = (economies.take_rows(split, rows) for rows in (np.arange(120), np.arange(120, 160)))
    wanted = [economies.ECONOMIES[name] for name in ("weight bits", "residual table", "neighbours", "dim", "beam")]
    key, results = {"dataset": "clusters", "part": "held-out", "rows": 120, "seed": 0}, tmp_path / "results.jsonl"
    found = list(economies.audit(train, held, wanted[:1], key, results))
    assert [each["economy"] for each in found] == ["weight bits"] and found[0]["bytes ratio"] > 1.1
    found = list(economies.audit(train, held, wanted, key, results))
    assert [each["economy"] for each in found] == ["residual table", "neighbours"]  # others need more labels
    assert max(abs(loss) for loss in found[0]["loss"].values()) < 3
    stored = [json.loads(line) for line in results.read_text().splitlines()]
    assert [each["economy"] for each in stored] == ["weight bits", "residual table", "neighbours"]
    assert list(economies.audit(train, held, wanted, key, results)) == []


@pytest.fixture
def fixed(economies):
    return importlib.import_module("economies_fixed")


def test_twins_with_fixed_choices_differ_in_one_part_alone(fixed):
    train = clustered_split(1200)
    parts = fixed.Parts.of(train, 0)
    network, default = parts.network(None), parts.fitted.network
    assert network.codes.equal(default.codes) and network.config() == default.config()
    exact = fixed.ECONOMIES["weight bits"]
    with fixed.replaced(exact.twin):
        twin = parts.network(exact)
        top, _ = fixed.predict(twin, train.X[:50])
    assert twin.codes.is_floating_point() and twin.knn_weight == default.knn_weight
    assert np.mean(top[:, 0] == fixed.predict(network, train.X[:50])[0][:, 0]) > 0.5


def test_an_economy_is_costly_only_beyond_its_standard_error(fixed):
    loss = np.array([0.05, 0.3])
    assert fixed.verdict(loss, np.array([0.01, 0.05])) == "costly"
    assert fixed.verdict(loss, np.array([0.01, 0.2])) == "not resolved"
    assert fixed.verdict(np.array([0.05, 0.1]), np.array([0.01, 0.0])) == "harmless"


def test_losses_of_seeds_are_averaged(fixed):
    def run(seed, loss):
        names = fixed.METRICS
        return {"economy": "beam", "dataset": "a", "seed": seed} | {
            "loss": dict.fromkeys(names, loss),
            "standard error": dict.fromkeys(names, 0.06),
        }

    found = fixed.summary([run(0, 0.4), run(1, -0.1)])["beam"]["a"]
    assert found == {"verdict": "not resolved", "largest loss": ["P@1", 0.15, 0.04], "seeds": 2}
    assert fixed.summary([run(0, 0.5), run(1, 0.1)])["beam"]["a"]["verdict"] == "costly"
