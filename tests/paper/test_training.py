"""Networks are trained with the right options, once, and evaluated on the test split."""

import json
from dataclasses import replace

import numpy as np
import pytest
from holobind_paper import ablation_regression, accuracy, datasets, jobs, published, training
from holobind_paper.jobs import Job

import holobind as hb
from holobind import metrics
from holobind.errors import TrainingInterrupted
from holobind.ridge_knn import fit_checkpoint
from holobind.training.config import split_options


def test_the_papers_dimension_is_3000_for_its_large_datasets_and_400_for_the_others():
    for row in published.read("table_datasets"):
        assert jobs.paper_dim(int(row["labels"])) == int(row["hrr_dim"])


def test_a_network_that_two_tables_need_is_trained_once(tmp_path, data, trained):
    options = {"quick": True, "data": data, "only": ["bibtex"]}
    training.run(accuracy, tmp_path, **options)
    assert [(model.head, model.loss, model.codebook) for model, _ in trained] == [
        ("holographic", None, "orbit"),
        ("linear", "bce", "orbit"),
        ("holographic", "query", "random"),
    ]
    trained.clear()
    first = training.run(ablation_regression, tmp_path, **options)
    assert [model.loss for model, _ in trained] == ["regression", None]
    trained.clear()
    assert training.run(ablation_regression, tmp_path, **options)["rows"] == first["rows"]
    assert not trained


def finish(out, source, options, **changes):
    return training.finish(out, "accuracy", [Job(source, "one", options, **changes)], 0, quick=True)


def test_a_network_trained_with_other_options_is_another_cell(tmp_path, data, trained):
    source = datasets.available(data)[0]
    for rate in (0.1, 0.2, 0.1):
        finish(tmp_path, source, jobs.fc(epochs=1, learning_rate=rate))
    assert [train.learning_rate for _, train in trained] == [0.1, 0.2]


def test_an_option_with_its_default_value_is_the_same_cell(tmp_path, data, trained):
    source = datasets.available(data)[0]
    for options in ({}, {"codebook": "orbit", "normalise": True, "dim": None}):
        finish(tmp_path, source, options)
    assert len(trained) == 1


def test_a_cell_of_an_older_code_path_is_computed_again_and_others_are_not(tmp_path, data, trained, monkeypatch):
    source = datasets.available(data)[0]
    for _ in range(2):
        finish(tmp_path, source, jobs.fc(epochs=1))
        finish(tmp_path, source, jobs.hrr_fc(20, epochs=1))
    assert len(trained) == 2
    monkeypatch.setitem(jobs.CODE_VERSIONS, "linear head", jobs.CODE_VERSIONS["linear head"] + 1)
    finish(tmp_path, source, jobs.fc(epochs=1))
    finish(tmp_path, source, jobs.hrr_fc(20, epochs=1))
    assert [model.head for model, _ in trained] == ["linear", "holographic", "linear"]


def test_a_cell_without_a_field_that_a_table_needs_is_computed_again(tmp_path, data, trained):
    source = datasets.available(data)[0]
    finish(tmp_path, source, jobs.hrr_fc(20, epochs=1))
    path = tmp_path / "accuracy.jsonl"
    line = json.loads(path.read_text())
    del line["result"]["bands"]
    path.write_text(json.dumps(line) + "\n")
    finish(tmp_path, source, jobs.hrr_fc(20, epochs=1))
    assert len(trained) == 1
    found = finish(tmp_path, source, jobs.hrr_fc(20, epochs=1), needs=("bands",))
    assert len(trained) == 2 and found[source.name, "one"][0]["bands"]


def test_three_seeds_are_trained_unless_a_dataset_is_large(tmp_path, data, trained, monkeypatch):
    monkeypatch.setattr(jobs, "TRAIN_OPTIONS", jobs.TRAIN_OPTIONS | {"epochs": 1})
    options = {"data": data, "only": ["bibtex"]}
    found = training.run(accuracy, tmp_path, seed=5, **options)
    assert [model.seed for model, _ in trained] == [5, 6, 7] * 3
    assert [train.seed for _, train in trained] == [5, 6, 7] * 3
    assert found["rows"][0]["seeds"] == {"FC": 3, "HRR-FC": 3, "holobind": 3, "label frequency": 1}
    monkeypatch.setattr(jobs, "MAX_LABELS_OF_SMALL_DATASETS", 3)
    trained.clear()
    assert training.run(accuracy, tmp_path / "other", seed=5, **options)["rows"][0]["seeds"]["FC"] == 1
    assert [model.seed for model, _ in trained] == [5, 5, 5]


def test_a_stopped_cell_resumes_from_its_checkpoint(tmp_path, data, monkeypatch):
    checkpoints = []
    learn = training.learn

    def stopping(split, model_config, train_config, *, checkpoint, resume):
        checkpoints.append(checkpoint)
        if len(checkpoints) == 1:
            raise TrainingInterrupted
        return learn(split, model_config, train_config, checkpoint=checkpoint, resume=resume)

    monkeypatch.setattr(training, "learn", stopping)
    source = datasets.available(data)[0]
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        finish(out, source, jobs.fc(epochs=1))
    finish(out, source, jobs.fc(epochs=1))
    assert checkpoints[0] == checkpoints[1]
    assert [path.name for path in out.iterdir()] == ["accuracy.jsonl"]


def test_the_checkpoint_of_a_closed_form_that_takes_long_is_removed_with_its_cell(tmp_path, data, monkeypatch):
    monkeypatch.setattr(fit_checkpoint, "MIN_SECONDS", 0.0)
    out = tmp_path / "out"
    finish(out, datasets.available(data)[0], {})
    assert [path.name for path in out.iterdir()] == ["accuracy.jsonl"]


def test_rankings_without_features_follow_their_definitions(data):
    source = datasets.available(data)[1]
    dataset = source.load()
    counts = np.asarray(dataset.train.Y.sum(0)).ravel()
    most_frequent = int(counts.argmax())
    percent = 100 * dataset.test.Y[:, [most_frequent]].sum() / len(dataset.test)
    job = training.ranking("frequency", source)
    assert training.rank_without_features(job, None)["scores"]["P"][0] == pytest.approx(percent)
    expected = 100 * dataset.test.Y.nnz / len(dataset.test) / dataset.n_labels
    chance = [replace(training.ranking("chance", source), options={"seed": seed}) for seed in range(20)]
    found = [training.rank_without_features(job, None)["scores"]["P"][4] for job in chance]
    assert np.mean(found) == pytest.approx(expected, rel=0.1)


def test_recall_by_frequency_follows_its_definition(data):
    dataset = datasets.available(data)[1].load()
    counts = np.asarray(dataset.train.Y.sum(0)).ravel()
    top = np.random.default_rng(0).integers(dataset.n_labels, size=(len(dataset.test), 3))
    top = np.array([np.unique(np.r_[row, [0, 1, 2]])[:3] for row in top])
    Y = dataset.test.Y.toarray() > 0
    bands = training.scored(dataset, top, "Delicious")["bands"]
    assert bands
    for name, fewest, most in training.FREQUENCY_BANDS:
        inside = [label for label in range(Y.shape[1]) if fewest <= counts[label] <= (most or 10**9)]
        total = Y[:, inside].sum()
        hits = sum(Y[row, label] for row in range(len(Y)) for label in top[row] if label in inside)
        assert (name in bands) == bool(total)
        if total:
            assert bands[name] == {"recall@5": pytest.approx(100 * hits / total), "labels in test rows": total}


def test_a_model_with_a_naive_codebook_is_saved_and_loaded(tmp_path, data):
    split = datasets.available(data)[0].load().train
    for changes in ({}, {"trainable": ("labels", "present")}, {"loss": "query-abs"}):
        model = hb.learn(split, *split_options(jobs.hrr_fc(20, codebook="naive", epochs=1, **changes)))
        assert not model.head.codebook.unitary
        model.save(tmp_path / "naive.safetensors")
        loaded = hb.load(tmp_path / "naive.safetensors")
        assert not loaded.head.codebook.unitary
        for before, after in zip(model.top_k(split.X, 5), loaded.top_k(split.X, 5), strict=True):
            np.testing.assert_array_equal(before, after)


def test_scores_are_those_of_the_model_on_the_test_split(tmp_path, data):
    source = datasets.available(data)[0]
    dataset = source.load()
    options = jobs.hrr_fc(20)
    (row,) = finish(tmp_path, source, options)[source.name, "one"]
    model_config, train_config = split_options(options)
    model = hb.learn(dataset.train, model_config, replace(train_config, epochs=jobs.QUICK_EPOCHS))
    scores = metrics.evaluate(dataset.test.Y, model.top_k(dataset.test.X, 5)[1], dataset.train.Y).scores
    assert row["scores"]["PSP"] == pytest.approx(scores["PSP"], abs=1e-5)


def test_a_page_is_made_from_the_cells_that_exist_without_data(tmp_path, data, trained, monkeypatch):
    monkeypatch.setattr(jobs, "TRAIN_OPTIONS", jobs.TRAIN_OPTIONS | {"epochs": 1})
    assert training.collect(accuracy, tmp_path) is None
    made = training.run(accuracy, tmp_path, data=data, only=["bibtex"])
    training.load.cache_clear()
    monkeypatch.setattr(datasets.Source, "load", None)
    found = training.collect(accuracy, tmp_path)
    assert found["rows"][0] == made["rows"][0]
    assert [line[2] for line in found["table"][1:5]] == ["FC", "HRR-FC, d' = 20", "holobind", "label frequency"]
    assert not any("not run yet" in cell for line in found["table"][1:5] for cell in line)
    delicious = [line for line in found["table"] if line[0] == "Delicious"]
    assert delicious and all("not run yet" in line[3] for line in delicious)
