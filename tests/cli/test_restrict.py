"""`holobind restrict`, and the options of `predict` that choose labels."""

import json

import pytest
from helpers.commands import is_one_line_error, run

import holobind as hb
from holobind import data

TEXT = b"print json file path\n"


def predicted(capsys, *arguments):
    code, out, _ = run(capsys, "predict", *arguments, stdin=TEXT)
    assert code == 0
    return json.loads(out)["labels"]


def test_excluded_labels_are_left_out_of_one_request_or_for_good(capsys, text_model, tmp_path):
    names = [each["label"] for each in predicted(capsys, text_model, "-", "-k", 5)]
    assert [each["label"] for each in predicted(capsys, text_model, "-", "-k", 3, "--exclude", names[0])] == names[1:4]
    listed = tmp_path / "labels.txt"
    listed.write_text("\n".join([names[4], names[2]]) + "\n")
    only = ("--only", f"@{listed}")
    assert [each["label"] for each in predicted(capsys, text_model, "-", "-k", 9, *only)] == [names[2], names[4]]
    small = tmp_path / "small.safetensors"
    code, out, _ = run(capsys, "restrict", text_model, *only, "--out", small, "--json")
    assert code == 0 and json.loads(out)["allowed"] == 2
    assert [each["label"] for each in predicted(capsys, small, "-", "-k", 9)] == [names[2], names[4]]
    assert "2, set by holobind restrict" in run(capsys, "inspect", small)[1]
    assert run(capsys, "restrict", small, "--all")[0] == 0
    assert [each["label"] for each in predicted(capsys, small, "-", "-k", 5)] == names


def test_probabilities_are_shown_and_choose_labels(capsys, text_model):
    model = hb.load(text_model)
    ranked = model.rank([TEXT.decode()], 5)
    shown = predicted(capsys, text_model, "-")
    assert [each["probability"] for each in shown] == pytest.approx(ranked.probabilities[0].tolist(), abs=1e-4)
    assert all("probability" not in each for each in predicted(capsys, text_model, "-", "--no-proba"))
    for objective in ("micro-f1", "sample-f1", "recall=0.5"):
        wanted = model.choose([TEXT.decode()], objective).ids[0]
        found = predicted(capsys, text_model, "-", "--auto", "--objective", objective, "--ids")
        assert [each["label"] for each in found] == wanted[wanted >= 0].tolist()
    at_least = shown[1]["probability"]
    assert len(predicted(capsys, text_model, "-", "--min-probability", at_least - 1e-4)) == 2


def test_trained_networks_are_calibrated_and_others_say_what_is_missing(capsys, feature_data, tmp_path):
    train = data.load(feature_data).train
    config = hb.ModelConfig(network="fc", hidden=(8,))
    model = hb.learn(train, config, hb.TrainConfig(epochs=1, validation_fraction=0.3))
    assert model.calibration is not None and model.calibration.n_rows == int(0.3 * len(train))
    hb.learn(train, config, hb.TrainConfig(epochs=1, validation_fraction=0.0)).save(tmp_path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    assert "probability" not in run(capsys, "predict", path, "-", stdin=b"0:1\n")[1]
    for option in ("--auto", "--proba", "--min-probability=0.5"):
        result = run(capsys, "predict", path, "-", option, stdin=b"0:1\n")
        assert is_one_line_error(result, "no calibrated probabilities")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "MODEL", "-", "--exclude", "no such"), "has no label 'no such'"),
        (("predict", "MODEL", "-", "--exclude", "@nothing-here"), "nothing-here: No such file"),
        (("predict", "MODEL", "-", "--auto", "--objective", "best"), "an objective is micro-f1"),
        (("predict", "MODEL", "-", "--min-probability", "2"), "less than or equal to 1"),
        (("restrict", "MODEL"), "give --exclude or --only"),
        (("restrict", "MODEL", "--all", "--only", "x"), "--all allows all labels again: give it without"),
        (("predict", "MODEL", "-", "--objective", "recall=0.5"), "with --auto; give --auto, too"),
        (("predict", "MODEL", "-", "--workers", "3"), "--workers 3 are those of --ray; give --ray, too"),
    ],
)
def test_mistakes_are_one_line(capsys, text_model, arguments, message):
    result = run(capsys, *(text_model if each == "MODEL" else each for each in arguments), stdin=TEXT)
    assert is_one_line_error(result, message)


def test_the_closed_form_without_knn_has_a_smaller_file(capsys, text_data, tmp_path):
    sizes = {}
    for name, options in {"default": (), "no kNN": ("--knn-weight", 0)}.items():
        path = tmp_path / f"{name}.safetensors"
        code, out, _ = run(capsys, "train", text_data, "--out", path, "--text", *options, "--json")
        assert code == 0
        sizes[name] = json.loads(out)["bytes"]
    assert sizes["no kNN"] <= sizes["default"]
    model = hb.load(path)
    assert model.calibration is not None and model.network.n_training_rows == 0 and not model.network.knn_weight
