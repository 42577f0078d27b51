"""`holobind inspect` and the descriptions of models."""

import json

import pytest
from helpers.commands import is_one_line_error, run

import holobind as hb
from holobind import data
from holobind.cli.describe import file_size, metric_summary, notes, relative_count, summary, validation, validation_text


def test_json_has_inputs_labels_sizes_and_metadata(capsys, text_data, text_model):
    dataset, model = data.load(text_data), hb.load(text_model)
    code, out, _ = run(capsys, "inspect", text_model, "--json")
    found = json.loads(out)
    assert code == 0 and found["inputs"] == "texts" and found["labels"] == dataset.n_labels
    assert found["bytes"] == text_model.stat().st_size and found["training rows"] == len(dataset.train)
    assert found["metadata"] == model.metadata and found["parameters"] == model.sizes()["parameters"]
    assert set(found["most frequent labels"]) < set(dataset.label_names)


def test_the_table_describes_network_head_and_training(capsys, text_model):
    code, out, _ = run(capsys, "inspect", text_model)
    assert code == 0 and "ridge regression" in out and "closed form" in out
    assert "linear output layer" in out and "0.0%" not in out


def test_a_file_that_is_no_model_is_a_one_line_error(capsys, text_data):
    result = run(capsys, "inspect", text_data / "labels.txt")
    assert is_one_line_error(result, "is not a safetensors file, or damaged")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"network": "fc", "hidden": (16, 8)},
            ("hidden layers of 16, 8", "holographic head of 8 labels", "squares loss"),
        ),
        ({"network": "fc", "head": "linear"}, ("linear head of 8 labels", "bce loss")),
        ({"knn_weight": 0.0, "l2": 1.0}, ("linear network", "closed form")),
    ],
)
def test_a_summary_names_network_head_and_loss(options, expected):
    config, train = hb.ModelConfig(**options), hb.TrainConfig(epochs=1)
    model = hb.learn(data.synthetic("bibtex", scale=0.05).train, config, train)
    assert all(text in summary(model) for text in expected)


@pytest.mark.parametrize(
    ("smaller_by", "expected"),
    [
        (0.486, "48.6% fewer than"),
        (-0.123, "12.3% more than"),
        (0.0, "as many as"),
        (0.0004, "as many as"),
        (-0.0004, "as many as"),
        (0.0006, "0.1% fewer than"),
    ],
)
def test_a_difference_that_rounds_to_0_is_none(smaller_by, expected):
    assert relative_count(smaller_by) == expected


def test_validation_is_that_of_the_best_epoch_or_of_the_closed_form():
    history = [{"epoch": 1, "P@1": 40.0}, {"epoch": 2, "P@1": 42.0}]
    training = {"config": {"metric": "P@1"}, "history": history, "best": 42.0, "best epoch": 2}
    assert validation({"training": training}) == {"P@1": 42.0, "epoch": 2}
    ridge = {"l2": 1.23456, "validation": [[1.0, 50.0], [1.23456, 51.0]]}
    assert validation({"ridge": ridge}) == {"nDCG@5": 51.0, "l2": 1.235}
    knn = {"knn_weight": 0.5, "validation": [[0.5, 1.0, 53.0], [1.0, 1.0, 52.0]]}
    assert validation({"ridge": ridge, "knn": knn}) == {"nDCG@5": 53.0, "l2": 1.235, "knn_weight": 0.5}
    assert validation({"ridge": {"l2": 2.0, "validation": []}}) == {"l2": 2.0}
    of_the_model = {"held_out": {"ndcg": 52.346}}  # with trees, and of the settings that were taken
    assert validation({"ridge": ridge, "knn": knn, **of_the_model})["nDCG@5"] == 52.35
    assert validation({}) == {}


def test_metrics_and_sizes_are_short():
    assert metric_summary({"P": [1.0, 2.0, 3.456], "PSP": [7.0]}) == "P@1 1.00  P@3 3.46  PSP@1 7.00"
    assert (file_size(4_300_000), file_size(99_000), file_size(120)) == ("4.3 MB", "99.0 kB", "0.1 kB")


SOLVED = {
    "l2": 1.0,
    "system": "primal, conjugate gradients",
    "iterations": 7,
    "residual": 0.2,
    "tolerance": 0.3,
    "converged": True,
    "validation": [[0.3, 50.0], [1.0, 51.0], [3.0, 50.0]],
}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"converged": False, "residual": 0.4, "iterations": 100},
            "did not converge: after 100 iterations its",
        ),
        ({"tolerance": 0.01}, "smallest relative residual that is tried, 0.01"),
        ({"validation": [[10.0**i, float(i)] for i in range(8)]}, "at the end of the search"),
    ],
)
def test_notes_say_what_did_not_converge_or_was_cut_short(change, text):
    assert notes({"ridge": SOLVED}) == []
    (note,) = notes({"ridge": SOLVED | change})
    assert text in note


def test_a_perfect_score_at_the_end_of_the_search_is_no_note():
    ridge = SOLVED | {"validation": [[10.0**i, 100.0] for i in range(8)]}
    assert not any("end of the search" in note for note in notes({"ridge": ridge}))


def test_notes_say_how_many_rows_have_near_duplicates():
    held_out = {"ndcg": 60.0, "low": 58.0, "high": 62.0, "rows": 2000, "groups": None, "near_duplicates": 0.314}
    (note,) = notes({"ridge": SOLVED, "held_out": held_out})
    assert note.startswith("31 % of rows have a near-duplicate") and "pass groups" in note
    (note,) = notes({"ridge": SOLVED, "held_out": held_out | {"groups": 70}})
    assert "in another group" in note
    assert notes({"ridge": SOLVED, "held_out": held_out | {"near_duplicates": 0.02}}) == []
    text = validation_text({"ridge": SOLVED, "held_out": held_out | {"groups": 70}})
    assert text == "nDCG@5 60.00 (58.0 to 62.0 on 2,000 held-out rows of 70 groups), l2 1.0"


def test_notes_say_how_training_ended():
    config = {"metric": "P@1", "epochs": 5, "patience": 2, "time_limit": None}
    history = [{"epoch": i, "P@1": 40.0} for i in range(1, 4)]

    def noted(best, n=3, **change):
        training = {"config": config | change, "history": history[:n], "best": 40.0, "best epoch": best}
        return notes({"training": training})

    assert noted(1) == ["training ended after epoch 3 of 5: no gain since epoch 1"]
    assert noted(2, time_limit=60.0) == ["training was cut short by the time limit in epoch 3 of 5"]
    assert noted(3, epochs=3) == ["the last epoch, 3, was the best: more epochs may give a better model"]
    assert noted(2, epochs=3) == []
