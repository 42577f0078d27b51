"""The experiments compute what their figures say, and leave both files behind."""

import json

import pytest
import torch
from holobind_paper import capacity, demo, published, response, response_spread, result, retrieval_error


def error_rate_by_definition(system, d, n, generator):
    x, y, z = (system.random(n, d, generator) for _ in range(3))
    statement = system.bundle(torch.stack([system.bind(x[i], y[i]) for i in range(n)]))
    wrong = 0
    for i in range(n):
        answer = system.unbind(statement, y[i])
        wrong += any(
            torch.cosine_similarity(answer, x[i], dim=0) < torch.cosine_similarity(answer, z[j], dim=0)
            for j in range(n)
        )
    return wrong / n


@pytest.mark.parametrize("name", retrieval_error.SYSTEMS)
def test_error_rates_follow_the_definition(name, monkeypatch):
    monkeypatch.setattr(retrieval_error, "BLOCK", 5)  # so that n is not a multiple of it
    system = retrieval_error.SYSTEMS[name]
    slow = [error_rate_by_definition(system, 64, 12, result.generator(3, name, 64, 12, t)) for t in range(10)]
    assert retrieval_error.error_rates(name, 64, 12, 3) == pytest.approx(slow)


def test_the_papers_capacity_is_the_first_n_above_three_percent_in_its_own_error_figure():
    errors = {}
    for row in published.read("figure_retrieval_error"):
        errors.setdefault((row["vsa"], row["d"]), []).append((int(row["n"]), float(row["p_error_mean"])))
    for row in published.read("figure_capacity"):
        above = [n for n, error in sorted(errors[row["vsa"], row["d"]]) if error > 0.03]
        assert int(row["capacity_n"]) == above[0]


def test_capacity_and_retrieval_error_agree_with_the_paper_at_small_sizes(tmp_path, monkeypatch):
    for module in (capacity, retrieval_error):
        monkeypatch.setattr(module, "QUICK_DIMENSIONS", (64, 256))
    found = capacity.run(tmp_path, quick=True)
    assert found["agreement"]["within_one_step"] == found["agreement"]["points"] == 8
    errors = retrieval_error.run(tmp_path, quick=True)
    assert errors["agreement"]["share"] >= 0.95
    for name in ("capacity", "retrieval-error"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["experiment"] == name
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.part"))


def test_responses_are_1_and_0_with_the_spread_of_the_law(tmp_path, monkeypatch):
    monkeypatch.setattr(response, "BLOCK", 100)
    monkeypatch.setattr(response_spread, "PAIRS", (64, 1024))
    for row in response_spread.run(tmp_path, quick=True)["rows"]:
        samples = 2 * row["n"]
        assert row["std"] == pytest.approx(row["law_std"], rel=0.25)
        assert row["mean"] == pytest.approx(
            float(row["query"] == "present"), abs=5 * row["law_std"] / samples**0.5 + 0.1
        )


def test_the_projection_keeps_answers_near_1_where_the_exact_inverse_does_not(tmp_path):
    rows = response.run(tmp_path, quick=True)["rows"]
    spread = {row["vsa"]: row["present"]["std"] for row in rows if row["n"] == 64}
    assert spread["projected"] < 0.6
    assert spread["naive, exact inverse"] > 1.5


def test_one_seed_gives_the_same_numbers_and_another_gives_others():
    first, again, other = (retrieval_error.error_rates("HRR", 64, 16, seed) for seed in (0, 0, 1))
    assert first == again != other


def test_the_demo_answers_cat_for_red(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(capacity, "QUICK_DIMENSIONS", (64, 1024))
    demo.run(tmp_path)
    shown = capsys.readouterr().out
    assert "what goes with red" in shown
    assert (tmp_path / "capacity.png").exists()
