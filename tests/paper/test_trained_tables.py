"""The tables of trained networks: their datasets, their rows and their place in the report."""

from dataclasses import replace

import pytest
import torch
from holobind_paper import (
    ablation_projection,
    ablation_regression,
    accuracy,
    claims,
    dimension,
    learned_labels,
    learned_present_missing,
    network_size,
    report,
    training,
)

import holobind as hb
from holobind import algebra


def test_every_dataset_of_the_paper_that_is_on_disk_has_its_rows(tmp_path, data, monkeypatch):
    for folder in ("EURLex-4K", "AmazonCat-13K", "wiki10_31k", "Delicious-200K", "Amazon-670K"):
        scale = 0.002 if folder == "EURLex-4K" else 0.0005
        hb.data.write(hb.data.synthetic(folder, scale=scale), data / folder, "xml")
    monkeypatch.setattr(training, "MAX_QUICK_DATASETS", 7)
    found = accuracy.run(tmp_path, quick=True, data=data)
    names = ["Bibtex", "Delicious", "EURLex-4K", "Wiki10-31K", "Amazon-13K", "Delicious-200K", "Amazon-670K"]
    assert [row["dataset"] for row in found["rows"]] == names
    for row in found["rows"]:
        for scores in row["scores"].values():
            assert {len(values) for values in scores.values()} == {5}
    wiki = next(row for row in found["rows"] if row["dataset"] == "Wiki10-31K")
    assert wiki["paper"] == {"FC": {"P@1": 80.4, "PSP@1": 9.46}, "HRR-FC": {"P@1": 81.1, "PSP@1": 9.19}}
    assert "not the published sizes" in wiki["remark"]
    assert len(found["table"]) == 1 + 3 * len(names)
    assert found["command"] == "holobind paper accuracy --seed 0 --quick --data DIR"


def test_text_networks_are_trained_where_a_dataset_has_texts(tmp_path, data, monkeypatch, trained):
    without_texts = hb.data.synthetic("Bibtex", scale=0.02)
    train, test = (
        replace(split, texts=[" ".join(f"w{word}" for word in split.X[[row]].indices[:9]) for row in range(len(split))])
        for split in without_texts.splits.values()
    )
    hb.data.write(replace(without_texts, train=train, test=test), data / "EURLex-4K", "xml")
    monkeypatch.setattr(training, "TEXT_OPTIONS", training.TEXT_OPTIONS | {"hidden": (16,)})
    found = accuracy.run(tmp_path, quick=True, data=data, only=["EURLex-4K", "Bibtex"])
    cases = [("Bibtex", "FC"), ("EURLex-4K", "FC"), ("EURLex-4K", "CNN"), ("EURLex-4K", "LSTM")]
    assert [(row["dataset"], row["network"]) for row in found["rows"]] == cases
    assert found["rows"][-1]["paper"]["HRR-LSTM"] == {"P@1": 70.4, "PSP@1": 26.8}
    assert [line[2].partition(",")[0] for line in found["table"][-4:]] == ["CNN", "HRR-CNN", "LSTM", "HRR-LSTM"]
    assert [(model.network, model.loss) for model, _ in trained][-4:] == [
        (network, loss) for network in ("cnn", "lstm") for loss in ("bce", "query")
    ]
    assert "CNN and LSTM are trained on words" in " ".join(found["notes"])


def test_the_exact_inverse_of_the_ablation_is_exact():
    p, x = algebra.random(2, 33, torch.Generator().manual_seed(0)).double()
    q = ablation_projection.exact(p)
    torch.testing.assert_close(algebra.unbind(algebra.bind(p, x), q), x)


def test_all_tables_run_and_are_reported(tmp_path, data, monkeypatch):
    monkeypatch.setattr(dimension, "DIMENSIONS", (8, 12))
    monkeypatch.setattr(network_size, "HRR_SIZES", ((2, 16, 20), (3, 16, 20)))
    monkeypatch.setattr(network_size, "SIZES", ((2, 16),))
    monkeypatch.setattr(learned_labels, "SIZES", ((16, 20),))
    monkeypatch.setattr(learned_present_missing, "DIMENSIONS", (20,))
    options = {"quick": True, "data": data, "only": ["bibtex"]}
    modules = (accuracy, ablation_projection, ablation_regression, learned_labels, learned_present_missing)
    for module in (*modules, network_size, dimension):
        found = module.run(tmp_path, **options)
        assert found["table"][1:]
        assert {len(line) for line in found["table"]} == {len(found["table"][0])}
    for name in ("learned-present-missing", "dimension"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    report.run(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    for title in ("Accuracy (table 1)", "Without the projection", "Learned label vectors (table 5)"):
        assert f"## {title}" in page
    for claim in claims.CLAIMS[4:]:
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {claim.text} |")]
        assert "not run" not in line
        assert "(quick run)" in line


@pytest.mark.parametrize("best", [20.0, 20.5])
def test_a_plateau_begins_at_the_smallest_dimension_with_nearly_the_best_precision(best):
    rows = [
        {"dataset": "a", "curve": "x", "dim": dim, "labels": 1000, "P@5": value}
        for dim, value in ((10, 5.0), (50, 19.5), (400, best))
    ]
    rows.append({"dataset": "a", "curve": "y", "dim": 10, "labels": 1000, "P@5": 1.0})
    rows += [{"dataset": "b", "curve": "x", "dim": dim, "labels": 9000, "P@5": 5.0} for dim in (10, 400)]  # too short
    assert dimension.plateaus(rows) == {("a", "x"): 0.05}
