"""The tables of trained networks: their datasets, their rows and their place in the report."""

from dataclasses import replace

import pytest
import torch
from holobind_paper import (
    ablation_projection,
    ablation_regression,
    accuracy,
    authors,
    balance,
    claims,
    dimension,
    heads,
    jobs,
    learned_labels,
    learned_present_missing,
    network_size,
    training,
)

import holobind as hb
from holobind import algebra


def test_every_dataset_of_the_paper_that_is_on_disk_has_its_rows(tmp_path, data, monkeypatch):
    for folder in ("EURLex-4K", "AmazonCat-13K", "wiki10_31k", "Delicious-200K", "Amazon-670K"):
        scale = 0.002 if folder == "EURLex-4K" else 0.0005
        hb.data.write(hb.data.synthetic(folder, scale=scale), data / folder, "xml")
    monkeypatch.setattr(training, "MAX_QUICK_DATASETS", 7)
    found = training.run(accuracy, tmp_path, quick=True, data=data)
    names = ["Bibtex", "Delicious", "EURLex-4K", "Wiki10-31K", "Amazon-13K", "Delicious-200K", "Amazon-670K"]
    assert [row["dataset"] for row in found["rows"]] == names
    for row in found["rows"]:
        for scores in row["scores"].values():
            assert {len(values) for values in scores.values()} == {5}
    wiki = next(row for row in found["rows"] if row["dataset"] == "Wiki10-31K")
    assert wiki["paper"] == {"FC": {"P@1": 80.4, "PSP@1": 9.46}, "HRR-FC": {"P@1": 81.1, "PSP@1": 9.19}}
    assert len(found["table"]) == 1 + 4 * len(names)
    assert found["command"] == "holobind paper accuracy --seed 0 --quick --data DIR"


def test_text_networks_are_trained_where_a_dataset_has_texts(tmp_path, data, monkeypatch, trained):
    without_texts = hb.data.synthetic("Bibtex", scale=0.02)
    train, test = (
        replace(split, texts=[" ".join(f"w{word}" for word in split.X[[row]].indices[:9]) for row in range(len(split))])
        for split in without_texts.splits.values()
    )
    hb.data.write(replace(without_texts, train=train, test=test), data / "EURLex-4K", "xml")
    monkeypatch.setattr(jobs, "TEXT_OPTIONS", jobs.TEXT_OPTIONS | {"hidden": (16,)})
    found = training.run(accuracy, tmp_path, quick=True, data=data, only=["EURLex-4K", "Bibtex"])
    cases = [("Bibtex", "FC"), ("EURLex-4K", "FC"), ("EURLex-4K", "CNN"), ("EURLex-4K", "LSTM")]
    assert [(row["dataset"], row["network"]) for row in found["rows"]] == cases
    assert found["rows"][-1]["paper"]["HRR-LSTM"] == {"P@1": 70.4, "PSP@1": 26.8}
    assert [line[2].partition(",")[0] for line in found["table"][-4:]] == ["CNN", "HRR-CNN", "LSTM", "HRR-LSTM"]
    assert [(model.network, model.loss) for model, _ in trained][-4:] == [
        (network, loss) for network in ("cnn", "lstm") for loss in ("bce", "query")
    ]
    assert "CNN and LSTM are trained on words" in " ".join(found["notes"])
    one, other = (
        {name: value for name, value in vars(config).items() if name not in ("head", "loss", "codebook", "dim")}
        for config, _ in trained[-2:]
    )
    assert one == other and trained[-2][1] == trained[-1][1]  # both heads have the same options


def test_the_exact_inverse_of_the_ablation_is_exact():
    p, x = algebra.random(2, 33, torch.Generator().manual_seed(0)).double()
    q = heads.exact(p)
    torch.testing.assert_close(algebra.unbind(algebra.bind(p, x), q), x)


def test_the_projection_ablation_has_every_combination_that_differs():
    setups = ablation_projection.setups()
    assert len(setups) == len(set(setups)) == 6 + 2 * (2 + 4) + 8
    for setup in setups:
        case = ablation_projection.case_of(setup)
        assert case["learned"] in ablation_projection.LEARNED and case["loss"] in ablation_projection.LOSSES


def test_a_balance_of_1_is_the_query_loss():
    options = {"loss": "query", "codebook": "random", "dim": 16, "seed": 0}
    plain, balanced = hb.HolographicHead(5, 9, **options), heads.BalancedHead(5, 9, **options)
    h = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    sets = torch.tensor([1, 2, 8]), torch.tensor([0, 2, 3])
    one = plain.loss(h, *sets)
    torch.testing.assert_close(balanced.loss(h, *sets), one)
    balanced.balance = 0.0
    s = plain(h)
    queries = algebra.unbind(s, plain.p)
    vectors = plain.codebook.vectors(torch.arange(9))
    j_p = sum(1 - algebra.similarity(queries[row], vectors[label]) for row, label in ((0, 1), (0, 2), (1, 8)))
    torch.testing.assert_close(balanced.loss(h, *sets), j_p / 3)


def test_keys_that_are_kept_orthogonal_are_unitary_and_orthogonal():
    head = heads.OrthogonalKeysHead(5, 9, 33, "random", "query", 0, ("present", "missing"))
    with torch.no_grad():
        head.m += head.p + 0.1 * torch.randn(33, generator=torch.Generator().manual_seed(2))
    p, m = head._keys()
    assert abs(algebra.similarity(p, m)) < 1e-3
    assert (torch.fft.fft(m.detach()).abs() - 1).abs().max() < 1e-4
    m.sum().backward()
    assert head.m.grad.abs().sum() > 0


TABLES = (
    *(accuracy, authors, ablation_projection, ablation_regression, balance),
    *(learned_labels, learned_present_missing, network_size, dimension),
)


def test_all_tables_run_and_are_judged(tmp_path, data, monkeypatch):
    monkeypatch.setattr(dimension, "DIMENSIONS", (8, 12))
    monkeypatch.setattr(network_size, "ALL_SIZES", ((2, 16, 0), (2, 16, 20), (3, 16, 20)))
    monkeypatch.setattr(learned_labels, "SMALL_SIZES", ((16, 20),))
    monkeypatch.setattr(learned_present_missing, "DIMENSIONS", (20,))
    monkeypatch.setattr(authors, "HIDDEN_UNITS", 16)
    monkeypatch.setattr(ablation_projection, "SCALES", {"1/d": 0})
    monkeypatch.setattr(ablation_projection, "INVERSES", ("exact",))
    monkeypatch.setattr(jobs, "SHORT_OPTIONS", jobs.SHORT_OPTIONS | {"hidden": (16, 16)})
    monkeypatch.setattr(jobs, "LARGE_OPTIONS", jobs.LARGE_OPTIONS | {"hidden": (16, 16)})
    results = {}
    for module in TABLES:
        found = training.run(module, tmp_path, quick=True, data=data, only=["bibtex"])
        assert found["table"][1:] and {len(line) for line in found["table"]} == {len(found["table"][0])}
        assert not any("not run yet" in cell for line in found["table"] for cell in line)
        results[found["experiment"]] = found
    for name in ("learned-present-missing", "dimension"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    lines = {line[0]: line for line in claims.rows(results)}
    for text in ("P@k is similar", "without the projection", "no factor is needed", "learned label vectors make"):
        (line,) = [line for name, line in lines.items() if name.startswith(text)]
        assert line[2] != "not run yet" and "(quick run)" in line[3]


@pytest.mark.parametrize("best", [20.0, 20.5])
def test_a_plateau_begins_at_the_smallest_dimension_with_nearly_the_best_precision(best):
    rows = [
        {"dataset": "a", "curve": "x", "dim": dim, "labels": 1000, "P@5": value}
        for dim, value in ((10, 5.0), (50, 19.5), (400, best))
    ]
    rows.append({"dataset": "a", "curve": "y", "dim": 10, "labels": 1000, "P@5": 1.0})
    rows += [{"dataset": "b", "curve": "x", "dim": dim, "labels": 9000, "P@5": 5.0} for dim in (10, 400)]  # too short
    rows += [{"dataset": "c", "curve": "x", "dim": dim, "labels": 100} for dim in (10, 40)]  # not run yet
    assert dimension.plateaus(rows) == {("a", "x"): 0.05}
