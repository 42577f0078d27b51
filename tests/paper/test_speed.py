"""The tables of training times: every model is timed, and finished cells are kept."""

import pytest
from holobind_paper import report, speed, speed_cnn


def test_speed_times_every_model_and_keeps_its_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "QUICK_DATASETS", ("Mediamill", "Bibtex"))
    monkeypatch.setattr(speed, "MAX_SECONDS", 0.2)
    data = speed.run(tmp_path, quick=True)
    assert [row["dataset"] for row in data["rows"]] == ["Mediamill", "Bibtex"]
    for row in data["rows"]:
        assert all(row["ms"][model] > 0 for model in speed.MODELS)
        assert row["speedup"]["HRR-FC"] == pytest.approx(row["ms"]["FC"] / row["ms"]["HRR-FC"])
    assert speed.run(tmp_path, quick=True)["rows"] == data["rows"]


@pytest.fixture
def tiny_cnn(monkeypatch):
    monkeypatch.setattr(speed_cnn, "BATCH_SIZE", 3)
    monkeypatch.setattr(speed_cnn, "VOCAB_SIZE", 50)
    monkeypatch.setattr(speed_cnn, "DATASETS", {"EURLex-4K": ("EURLex-4K", 9)})


@pytest.mark.usefixtures("tiny_cnn")
def test_speed_cnn_times_the_network_and_every_head_and_keeps_its_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "MAX_SECONDS", 0.2)
    data = speed_cnn.run(tmp_path, quick=True)
    (row,) = data["rows"]
    assert row["dataset"] == "EURLex-4K"
    for phase in ("execution", "optimisation"):
        assert row["network_ms"][phase] > 0
        assert all(row["ms"][kind][phase] > 0 for kind in ("linear", "query", "softmax"))
    assert (tmp_path / "speed-cnn.png").read_bytes().startswith(b"\x89PNG")
    assert speed_cnn.run(tmp_path, quick=True)["rows"] == data["rows"]


@pytest.mark.usefixtures("tiny_cnn")
def test_optimisation_is_a_step_without_its_forward_pass_and_every_head_includes_the_network(tmp_path, monkeypatch):
    seconds = {
        **{("network", "execution"): 0.1, ("network", "step"): 0.3},
        **{("linear", "execution"): 0.05, ("linear", "step"): 0.25},
        **{("query", "execution"): 0.02, ("query", "step"): 0.03},
        **{("softmax", "execution"): 0.02, ("softmax", "step"): 0.12},
    }

    def step_seconds(steps, rounds):
        for step in steps.values():
            step()
        return {name: seconds[name] for name in steps}

    monkeypatch.setattr(speed, "step_seconds", step_seconds)
    (row,) = speed_cnn.run(tmp_path, quick=True)["rows"]
    assert row["ms"]["linear"] == pytest.approx({"execution": 150, "optimisation": 400})
    assert row["ms"]["query"] == pytest.approx({"execution": 120, "optimisation": 210})
    assert row["ratio_to_linear"]["softmax"] == pytest.approx({"execution": 120 / 150, "optimisation": 300 / 400})


def test_speed_cnn_has_the_papers_four_shapes_and_ratios_and_its_table_is_in_the_report(tmp_path, monkeypatch):
    def times(shape, dim, words, seed, rounds):
        heads = {kind: {"execution": 1.0, "optimisation": place} for place, kind in enumerate(speed_cnn.HEADS, 1)}
        return {"labels": shape.labels, "network_ms": {"execution": 9.0, "optimisation": 9.0}, "head_ms": heads}

    monkeypatch.setattr(speed_cnn, "times", times)
    data = speed_cnn.run(tmp_path)
    assert {(row["dataset"], row["labels"], row["dim"]): row["paper"] for row in data["rows"]} == {
        ("EURLex-4K", 3993, 400): pytest.approx({"execution": 0.467 / 0.466, "optimisation": 3.657 / 2.306}),
        ("Wiki10-31K", 30938, 3000): pytest.approx({"execution": 0.712 / 0.630, "optimisation": 3.286 / 2.665}),
        ("AmazonCat-12K", 13330, 3000): pytest.approx({"execution": 16.178 / 16.722, "optimisation": 117.098 / 83.305}),
        ("Amazon-670K", 670091, 3000): pytest.approx(
            {"execution": 122.665 / 239.48, "optimisation": 301.376 / 734.694}
        ),
    }
    assert "Wiki10-31K 1.10 (the paper: 1.23)" in data["summary"]
    assert "lower than the paper's on 3 of 4 datasets, and in execution on 2 of 4" in data["summary"]
    report.run(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "## CNN runtime (appendix table)" in page
    assert "| Amazon-670K | 670,091 | 3000 | 9 / 9 | 10.0 / 10.0 / 10.0 | 10.0 / 11.0 / 12.0 | " in page
    assert "| 0.51 / 1.00 / 1.00 | 0.41 / 1.10 / 1.20 |" in page
