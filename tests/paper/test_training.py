"""Networks are trained with the right options, once, and evaluated on the test split."""

from dataclasses import replace

import numpy as np
import pytest
from holobind_paper import ablation_regression, accuracy, datasets, published, training

import holobind as hb
from holobind import metrics
from holobind.errors import TrainingInterrupted
from holobind.training.config import split_options


def test_the_papers_dimension_is_3000_for_its_large_datasets_and_400_for_the_others():
    for row in published.read("table_datasets"):
        assert training.paper_dim(int(row["labels"])) == int(row["hrr_dim"])


def test_a_network_that_two_tables_need_is_trained_once(tmp_path, data, trained):
    options = {"quick": True, "data": data, "only": ["bibtex"]}
    accuracy.run(tmp_path, **options)
    assert [(model.head, model.loss, model.codebook) for model, _ in trained] == [
        ("linear", "bce", "orbit"),
        ("holographic", "query", "random"),
        ("holographic", None, "orbit"),
    ]
    trained.clear()
    first = ablation_regression.run(tmp_path, **options)
    assert [model.loss for model, _ in trained] == ["regression", None]
    trained.clear()
    assert ablation_regression.run(tmp_path, **options)["rows"] == first["rows"]
    assert not trained


def test_a_network_trained_with_other_options_is_another_cell(tmp_path, data, trained):
    source = datasets.available(data)[0]
    for rate in (0.1, 0.2, 0.1):
        job = training.Job(source, "one", training.fc(epochs=1, learning_rate=rate))
        training.finish(tmp_path, "accuracy", [job], 0, quick=True)
    assert [train.learning_rate for _, train in trained] == [0.1, 0.2]


def test_an_option_with_its_default_value_is_the_same_cell(tmp_path, data, trained):
    source = datasets.available(data)[0]
    for options in ({}, {"codebook": "orbit", "normalise": True, "dim": None}):
        training.finish(tmp_path, "accuracy", [training.Job(source, "one", options)], 0, quick=True)
    assert len(trained) == 1


def test_three_seeds_are_trained_unless_a_dataset_is_large(tmp_path, data, trained, monkeypatch):
    monkeypatch.setattr(training, "TRAIN_OPTIONS", training.TRAIN_OPTIONS | {"epochs": 1})
    options = {"data": data, "only": ["bibtex"]}
    found = accuracy.run(tmp_path, seed=5, **options)
    assert [model.seed for model, _ in trained] == [5, 6, 7] * 3
    assert [train.seed for _, train in trained] == [5, 6, 7] * 3
    assert found["rows"][0]["seeds"] == 3
    monkeypatch.setattr(training, "MAX_LABELS_OF_SMALL_DATASETS", 3)
    trained.clear()
    assert accuracy.run(tmp_path / "other", seed=5, **options)["rows"][0]["seeds"] == 1
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
    jobs = [training.Job(datasets.available(data)[0], "one", training.fc(epochs=1))]
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        training.finish(out, "accuracy", jobs, 0, quick=True)
    training.finish(out, "accuracy", jobs, 0, quick=True)
    assert checkpoints[0] == checkpoints[1]
    assert [path.name for path in out.iterdir()] == ["accuracy.jsonl"]


def test_baselines_follow_their_definitions(data):
    source = datasets.available(data)[1]
    dataset = source.load()
    counts = np.asarray(dataset.train.Y.sum(0)).ravel()
    most_frequent = int(counts.argmax())
    percent = 100 * dataset.test.Y[:, [most_frequent]].sum() / len(dataset.test)
    assert training.baseline(source, "frequency")["P"][0] == pytest.approx(percent)
    expected = 100 * dataset.test.Y.nnz / len(dataset.test) / dataset.n_labels
    random = [training.baseline(source, "random", seed)["P"][4] for seed in range(20)]
    assert np.mean(random) == pytest.approx(expected, rel=0.1)


def test_a_model_with_a_naive_codebook_is_saved_and_loaded(tmp_path, data):
    split = datasets.available(data)[0].load().train
    model = hb.learn(split, *split_options(training.hrr_fc(20, codebook="naive", epochs=1)))
    assert not model.head.codebook.unitary
    model.save(tmp_path / "naive.safetensors")
    loaded = hb.load(tmp_path / "naive.safetensors")
    for before, after in zip(model.top_k(split.X, 5), loaded.top_k(split.X, 5), strict=True):
        np.testing.assert_array_equal(before, after)


def test_scores_are_those_of_the_model_on_the_test_split(tmp_path, data):
    source = datasets.available(data)[0]
    dataset = source.load()
    options = training.hrr_fc(20)
    (row,) = training.finish(tmp_path, "accuracy", [training.Job(source, "one", options)], 0, quick=True)
    model_config, train_config = split_options(options)
    model = hb.learn(dataset.train, model_config, replace(train_config, epochs=training.QUICK_EPOCHS))
    scores = metrics.evaluate(dataset.test.Y, model.top_k(dataset.test.X, 5)[1], dataset.train.Y).scores
    assert row["scores"]["PSP"] == pytest.approx(scores["PSP"], abs=1e-5)
