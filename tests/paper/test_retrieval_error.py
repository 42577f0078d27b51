"""Error rates and capacities follow their definitions and agree with the paper."""

import json

import pytest
import torch
from holobind_paper import capacity, published, result, retrieval_error


def error_rate_by_definition(system, d, n, generator):
    x, y, z = (system.random(n, d, generator) for _ in range(3))
    statement = system.bundle(torch.stack([system.bind(x[i], y[i]) for i in range(n)]))
    errors = 0
    for i in range(n):
        unbound = system.unbind(statement, y[i])
        errors += any(
            torch.cosine_similarity(unbound, x[i], dim=0) < torch.cosine_similarity(unbound, z[j], dim=0)
            for j in range(n)
        )
    return errors / n


@pytest.mark.parametrize("name", retrieval_error.SYSTEMS)
def test_error_rates_follow_the_definition(name, monkeypatch):
    monkeypatch.setattr(retrieval_error, "QUERIES_PER_BLOCK", 5)  # so that n is not a multiple of it
    system = retrieval_error.SYSTEMS[name]
    slow = [error_rate_by_definition(system, 64, 12, result.generator(3, name, 64, 12, t)) for t in range(10)]
    assert retrieval_error.error_rates(name, 64, 12, 3) == pytest.approx(slow)


def test_one_seed_gives_the_same_numbers_and_another_gives_others():
    first, again, other = (retrieval_error.error_rates("HRR", 64, 16, seed) for seed in (0, 0, 1))
    assert first == again != other


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
    assert errors["agreement"]["fraction"] >= 0.95
    for name in ("capacity", "retrieval-error"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["experiment"] == name
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.part"))
