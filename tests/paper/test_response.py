"""Responses have the means and the spread of the theory."""

import pytest
from holobind_paper import response, response_spread


def test_responses_are_1_and_0_with_the_spread_of_the_theory(tmp_path, monkeypatch):
    monkeypatch.setattr(response, "PAIRS_PER_BLOCK", 100)
    monkeypatch.setattr(response_spread, "PAIRS", (64, 1024))
    for row in response_spread.run(tmp_path, quick=True)["rows"]:
        samples = 2 * row["n"]
        assert row["std"] == pytest.approx(row["theory_std"], rel=0.25)
        assert row["mean"] == pytest.approx(
            float(row["query"] == "present"), abs=5 * row["theory_std"] / samples**0.5 + 0.1
        )


def test_the_projection_keeps_responses_near_1_where_the_exact_inverse_does_not(tmp_path):
    rows = response.run(tmp_path, quick=True)["rows"]
    spread = {row["vsa"]: row["present"]["std"] for row in rows if row["n"] == 64}
    assert spread["projected"] < 0.6
    assert spread["naive, exact inverse"] > 1.5
