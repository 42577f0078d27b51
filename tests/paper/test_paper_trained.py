"""The tables of trained networks: what they train, that they train it once, and what their numbers are said to mean."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from holobind_paper import (
    ablation_projection,
    ablation_regression,
    accuracy,
    claims,
    datasets,
    dimension,
    learned_labels,
    learned_present_missing,
    network_size,
    report,
    training,
)

import holobind as hb
from holobind import algebra, metrics
from holobind.errors import Stopped

SMALL = {"Bibtex": "Bibtex", "Delicious": "delicious"}  # a dataset and its folder


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Two small datasets in the repository's layout, and small networks."""
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    training.load.cache_clear()
    for name, folder in SMALL.items():
        hb.data.write(hb.data.synthetic(name, scale=0.03), tmp_path / "data" / folder, "xml")
    monkeypatch.setattr(training, "PLAN", training.PLAN | {"hidden": (16, 16)})
    yield
    training.load.cache_clear()


@pytest.fixture
def trained(monkeypatch):
    """The configs that were trained, as they are."""
    configs = []
    learn = training.learn

    def counted(part, config, **options):
        configs.append(config)
        return learn(part, config, **options)

    monkeypatch.setattr(training, "trainable", counted)
    return configs


def test_every_dataset_of_the_paper_that_is_on_disk_gets_its_rows(tmp_path, monkeypatch):
    for folder in ("EURLex-4K", "AmazonCat-13K", "wiki10_31k", "Delicious-200K", "Amazon-670K"):
        hb.data.write(
            hb.data.synthetic(folder, scale=0.002 if folder == "EURLex-4K" else 0.0005),
            tmp_path / "data" / folder,
            "xml",
        )
    monkeypatch.setattr(training, "QUICK_DATASETS", 7)
    found = accuracy.run(tmp_path, quick=True, data=tmp_path / "data")
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


def test_text_networks_are_trained_where_there_are_texts(tmp_path, monkeypatch, trained):
    silent = hb.data.synthetic("Bibtex", scale=0.02)
    train, test = (
        replace(part, texts=[" ".join(f"w{word}" for word in part.X[[row]].indices[:9]) for row in range(len(part))])
        for part in silent.parts.values()
    )
    hb.data.write(replace(silent, train=train, test=test), tmp_path / "data" / "EURLex-4K", "xml")
    monkeypatch.setattr(training, "TEXT_PLAN", training.TEXT_PLAN | {"hidden": (16,)})
    found = accuracy.run(tmp_path, quick=True, data=tmp_path / "data", only=["EURLex-4K", "Bibtex"])
    places = [("Bibtex", "FC"), ("EURLex-4K", "FC"), ("EURLex-4K", "CNN"), ("EURLex-4K", "LSTM")]
    assert [(row["dataset"], row["network"]) for row in found["rows"]] == places
    assert found["rows"][-1]["paper"]["HRR-LSTM"] == {"P@1": 70.4, "PSP@1": 26.8}
    assert [line[2].partition(",")[0] for line in found["table"][-4:]] == ["CNN", "HRR-CNN", "LSTM", "HRR-LSTM"]
    assert [(r.network, r.loss) for r in trained][-4:] == [
        (n, loss) for n in ("cnn", "lstm") for loss in ("bce", "query")
    ]
    assert "CNN and LSTM learn from words" in " ".join(found["notes"])


def test_the_papers_dimension_is_3000_for_its_large_datasets_and_400_for_the_others():
    from holobind_paper import published

    for row in published.read("table_datasets"):
        assert training.paper_dim(int(row["labels"])) == int(row["hrr_dim"])


def test_a_network_that_two_tables_ask_for_is_trained_once(tmp_path, trained):
    options = {"quick": True, "data": tmp_path / "data", "only": ["bibtex"]}
    accuracy.run(tmp_path, **options)
    assert [(r.head, r.loss, r.codebook) for r in trained] == [
        ("linear", "bce", "orbit"),
        ("holographic", "query", "random"),
        ("holographic", None, "orbit"),
    ]
    trained.clear()
    ablation_regression.run(tmp_path, **options)
    assert [r.loss for r in trained] == ["regression", None]
    trained.clear()
    first = json.loads((tmp_path / "ablation-regression.json").read_text())
    ablation_regression.run(tmp_path, **options)
    assert json.loads((tmp_path / "ablation-regression.json").read_text())["rows"] == first["rows"]
    assert not trained


def test_a_network_trained_in_another_way_is_another_cell(tmp_path, trained):
    source = datasets.available(tmp_path / "data")[0]
    for rate in (0.1, 0.2, 0.1):
        training.finish(
            tmp_path, [training.Job(source, "one", training.fc(epochs=1, learning_rate=rate))], 0, quick=True
        )
    assert [r.learning_rate for r in trained] == [0.1, 0.2]


def test_more_seeds_are_trained_unless_a_dataset_is_large(tmp_path, trained, monkeypatch):
    monkeypatch.setattr(training, "PLAN", training.PLAN | {"epochs": 1})
    options = {"data": tmp_path / "data", "only": ["bibtex"]}
    found = accuracy.run(tmp_path, seed=5, **options)
    assert [r.seed for r in trained] == [5, 6, 7] * 3
    assert found["rows"][0]["seeds"] == 3
    monkeypatch.setattr(training, "LARGE", 3)
    trained.clear()
    assert accuracy.run(tmp_path / "other", seed=5, **options)["rows"][0]["seeds"] == 1
    assert [r.seed for r in trained] == [5, 5, 5]


def test_a_cell_that_was_stopped_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    asked = []
    learn = training.learn

    def stopping(part, config, *, watch):
        asked.append(watch.checkpoint)
        if len(asked) == 1:
            raise Stopped
        return learn(part, config, watch=watch)

    monkeypatch.setattr(training, "trainable", stopping)
    source = datasets.available(tmp_path / "data")[0]
    jobs = [training.Job(source, "one", training.fc(epochs=1))]
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        training.finish(tmp_path / "out", jobs, 0, quick=True)
    training.finish(tmp_path / "out", jobs, 0, quick=True)
    assert asked[0] == asked[1]
    assert not list((tmp_path / "out").rglob("*.safetensors"))


def test_baselines_follow_their_definitions(tmp_path):
    source = datasets.available(tmp_path / "data")[1]
    dataset = source.load()
    counts = np.asarray(dataset.train.Y.sum(0)).ravel()
    most = int(counts.argmax())
    share = 100 * dataset.test.Y[:, [most]].sum() / len(dataset.test)
    assert training.baseline(source, "frequency")["P"][0] == pytest.approx(share)
    expected = 100 * dataset.test.Y.nnz / len(dataset.test) / dataset.n_labels
    drawn = [training.baseline(source, "random", seed)["P"][4] for seed in range(20)]
    assert np.mean(drawn) == pytest.approx(expected, rel=0.1)


def test_the_exact_inverse_of_the_ablation_is_exact():
    p, x = algebra.random(2, 33, torch.Generator().manual_seed(0)).double()
    q = ablation_projection.exact(p)
    torch.testing.assert_close(algebra.unbind(algebra.bind(p, x), q), x)


def test_a_model_with_a_naive_codebook_is_saved_and_read_again(tmp_path):
    part = datasets.available(tmp_path / "data")[0].load().train
    model = hb.learn(part, training.hrr_fc(20, codebook="naive", epochs=1))
    assert not model.head.codebook.unitary
    model.save(tmp_path / "naive.safetensors")
    again = hb.model.load(tmp_path / "naive.safetensors")
    for mine, other in zip(model.top_k(part.X, 5), again.top_k(part.X, 5), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_all_tables_run_and_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(dimension, "DIMENSIONS", (8, 12))
    monkeypatch.setattr(network_size, "HRR_SIZES", ((2, 16, 20), (3, 16, 20)))
    monkeypatch.setattr(network_size, "SIZES", ((2, 16),))
    monkeypatch.setattr(learned_labels, "SIZES", ((16, 20),))
    monkeypatch.setattr(learned_present_missing, "DIMENSIONS", (20,))
    options = {"quick": True, "data": tmp_path / "data", "only": ["bibtex"]}
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


def test_datasets_made_from_installed_code_are_always_there_and_unknown_names_are_refused(tmp_path):
    names = [source.name for source in datasets.chosen(tmp_path / "data")]
    assert names == ["Bibtex", "Delicious", "python-calls", "python-calls-torch"]
    assert [source.name for source in datasets.chosen(None, ["Python_calls"])] == ["python-calls"]
    with pytest.raises(hb.OptionError, match=r"--only Bibtex: no such dataset; there are python-calls"):
        datasets.chosen(None, ["bibtex"])
    assert [s.name for s in training.pick(None, None, False, ("Bibtex",))] == ["python-calls"]
    assert [s.name for s in training.pick(tmp_path / "data", None, False, ("Delicious", "Bibtex"))] == list(SMALL)


# Verdicts.


def verdict(text, found):
    (line,) = [line for line in claims.rows(found) if text in line[0]]
    return line[1]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": (46, 60), "b": (65, 64.5)}, "confirmed"),
        ({"a": (46, 60), "b": (65, 60)}, "partly"),
        ({"a": (58, 60), "b": (65, 66)}, "partly"),
        ({"a": (46, 40), "b": (65, 60)}, "not confirmed"),
    ],
)
def test_accuracy_is_judged_place_by_place(scores, expected):
    rows = [
        {"dataset": name, "network": "FC", "scores": {"FC": {"P": [linear]}, "HRR-FC": {"P": [holographic]}}}
        for name, (linear, holographic) in scores.items()
    ]
    assert verdict("accuracy is similar", {"accuracy": {"quick": False, "rows": rows}}) == expected


@pytest.mark.parametrize(
    ("naive", "exact", "expected"), [(15, 14, "confirmed"), (50, 14, "partly"), (50, 40, "not confirmed")]
)
def test_nothing_is_learned_if_label_frequency_does_as_well(naive, exact, expected):
    scores = {"naive": naive, "naive, exact inverse": exact, "label frequency": 15}
    rows = [{"dataset": "a", "scores": {name: {"P": [value]} for name, value in scores.items()}}]
    assert verdict("without the projection", {"ablation-projection": {"quick": False, "rows": rows}}) == expected


@pytest.mark.parametrize(
    ("apart", "expected"),
    [
        ([[0.1, -0.1, 0.3], [1.0, 1.2, 0.9]], "confirmed"),
        ([[-3.0, 3.0, -1.6], [0.1, 0.2, 0.1]], "confirmed"),  # within the noise
        ([[-1.0, -1.1, -0.9], [0.1, 0.2, 0.1]], "partly"),
        ([[-1.0, -1.1, -0.9]], "not confirmed"),
    ],
)
def test_learning_vectors_is_of_benefit_only_beyond_the_noise(apart, expected):
    found = {"quick": False, "summary": "", "rows": [{"apart": values} for values in apart]}
    assert verdict("learning the label vectors", {"learned-labels": found}) == expected
    assert verdict("learning p and m", {"learned-present-missing": found}) == expected


def test_a_plateau_is_the_smallest_dimension_with_nearly_the_best_precision():
    rows = [
        {"dataset": "a", "line": "x", "dim": dim, "labels": 1000, "P@5": value}
        for dim, value in ((10, 5.0), (50, 19.5), (400, 20.0))
    ]
    rows.append({"dataset": "a", "line": "y", "dim": 10, "labels": 1000, "P@5": 1.0})
    rows += [{"dataset": "b", "line": "x", "dim": dim, "labels": 9000, "P@5": 5.0} for dim in (10, 400)]  # ends early
    assert dimension.plateaus(rows) == {("a", "x"): 0.05}


def test_scores_are_those_of_the_model_on_the_test_part(tmp_path):
    (source, *_) = datasets.available(tmp_path / "data")
    dataset = source.load()
    config = training.hrr_fc(20, epochs=1)
    (row,) = training.finish(tmp_path, [training.Job(source, "one", config)], 0, quick=True)
    model = hb.learn(dataset.train, training.replace(config, epochs=2))
    scores = metrics.evaluate(dataset.test.Y, model.top_k(dataset.test.X, 5)[1], dataset.train.Y).scores
    assert row["scores"]["PSP"] == pytest.approx(scores["PSP"], abs=1e-5)
