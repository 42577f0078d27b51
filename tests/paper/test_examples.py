"""The demo and the worked example of the paper give the expected answers."""

import pytest
from holobind_paper import capacity, demo, worked_example


def test_the_demo_answers_cat_for_red(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(capacity, "QUICK_DIMENSIONS", (64, 1024))
    demo.run(tmp_path)
    assert "what is bound with red?" in capsys.readouterr().out
    assert (tmp_path / "capacity.png").exists()


def test_the_dog_has_legs_and_the_first_name_is_jane(tmp_path):
    data = worked_example.run(tmp_path, quick=True)
    for row in data["rows"]:
        assert row["mean"] == pytest.approx(float(row["true"]), abs=4 * row["theory_std"] / data["trials"] ** 0.5)
        assert row["first_fraction"] == 1 or not row["true"]
    assert (tmp_path / "worked-example.png").exists()
