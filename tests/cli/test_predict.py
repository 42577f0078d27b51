"""`holobind evaluate` and `holobind predict`: the results of the library's calls, one-line errors, no lost files."""

import gzip
import json

import numpy as np
import pytest
from helpers.commands import is_one_line_error, run

import holobind as hb
from holobind import data


def test_evaluate_prints_the_metrics_of_the_test_split(capsys, text_data, text_model):
    dataset = data.load(text_data)
    expected = hb.load(text_model).evaluate(dataset.test, label_names=dataset.label_names, dataset="calls")
    code, out, _ = run(capsys, "evaluate", text_model, text_data, "--json")
    found = json.loads(out)
    assert code == 0 and found["split"] == "test" and found["P"] == pytest.approx(expected.scores["P"])
    most_frequent = np.bincount(dataset.train.Y.indices).argsort()[::-1][:1]
    constant = hb.metrics.evaluate(dataset.test.Y, np.tile(most_frequent, (len(dataset.test), 1)))["P@1"]
    assert found["P"][0] > constant + 2
    code, out, _ = run(capsys, "evaluate", text_model, text_data, "--k", 3)
    assert code == 0 and "PSP" in out and "tail" in out and "@3" in out and "@4" not in out


def test_evaluate_matches_labels_by_name(capsys, text_data, text_model, tmp_path):
    """A file alone has its own, shorter list of labels; the model never predicts labels that it does not know."""
    _, out, _ = run(capsys, "evaluate", text_model, text_data, "--json")
    whole = json.loads(out)
    lines = (text_data / "test.jsonl").read_text().splitlines()
    file = tmp_path / "new.jsonl"
    file.write_text("\n".join(lines))
    code, out, _ = run(capsys, "evaluate", text_model, file, "--json")
    found = json.loads(out)
    assert code == 0 and found["split"] == "all"
    assert all(found[name] == pytest.approx(whole[name]) for name in ("P", "nDCG", "PSP", "R", "coverage"))
    unknown = [json.dumps({**json.loads(line), "labels": ["no such", *json.loads(line)["labels"]]}) for line in lines]
    file.write_text("\n".join(unknown))
    _, out, _ = run(capsys, "evaluate", text_model, file, "--json")
    found = json.loads(out)
    assert found["P"] == pytest.approx(whole["P"]) and found["R"][4] < whole["R"][4]
    file.write_text('{"text": "red", "labels": ["no such"]}')
    assert is_one_line_error(run(capsys, "evaluate", text_model, file), "knows none of the 1 labels")


def test_predict_gives_the_best_labels_of_texts(capsys, text_data, text_model):
    dataset, model = data.load(text_data), hb.load(text_model)
    texts = dataset.test.texts[:20]
    code, out, _ = run(capsys, "predict", text_model, "-", "-k", 1, stdin="\n".join(texts).encode())
    labels = [json.loads(line)["labels"][0]["label"] for line in out.splitlines()]
    ids = model.top_k(texts, 1)[1][:, 0].tolist()
    assert code == 0 and labels == [dataset.label_names[i] for i in ids]
    _, out, _ = run(capsys, "predict", text_model, "-", "--k", 1, "--ids", stdin="\n".join(texts).encode())
    assert [json.loads(line)["labels"][0]["label"] for line in out.splitlines()] == ids


def test_predict_stops_at_an_invalid_line_or_skips_it(capsys, feature_model, tmp_path):
    lines = b"0:1\n1:1 2:1\nwhat\n3:1\n"
    code, out, err = run(capsys, "predict", feature_model, "-", stdin=lines)
    assert code == 2 and out.count("\n") == 2 and err.startswith("holobind: stdin:3: 'what' is neither")
    assert err.count("\n") == 1
    source, labels = tmp_path / "new.txt", tmp_path / "labels.jsonl"
    source.write_bytes(lines)
    code, out, err = run(capsys, "predict", feature_model, source, "--skip-bad", "--out", labels)
    found = [json.loads(line) for line in labels.read_text().splitlines()]
    assert code == 0 and out == "" and err.count("\n") == 1 and f"{source}:3: " in err
    assert [list(prediction) for prediction in found] == [["labels"], ["labels"], ["error"], ["labels"]]


def test_predict_compresses_its_output_by_the_name_of_the_file(capsys, feature_model, tmp_path):
    compressed = tmp_path / "labels.jsonl.gz"
    assert run(capsys, "predict", feature_model, "-", "--out", compressed, stdin=b"0:1\n1:1\n")[0] == 0
    _, out, _ = run(capsys, "predict", feature_model, "-", stdin=b"0:1\n1:1\n")
    assert gzip.decompress(compressed.read_bytes()).decode() == out


def test_predict_keeps_the_output_file_if_no_line_can_be_read(capsys, feature_model, tmp_path):
    labels = tmp_path / "labels.jsonl"
    labels.write_text("precious")
    for arguments in (
        (feature_model, tmp_path / "nothing-here"),
        (feature_model, "-", "--format", "csv"),
        (tmp_path / "no", "-"),
    ):
        assert is_one_line_error(run(capsys, "predict", *arguments, "--out", labels, stdin=b"0:1\n"))
        assert labels.read_text() == "precious"
    assert is_one_line_error(run(capsys, "predict", feature_model, "-", "--out", tmp_path), "is a directory")
    assert run(capsys, "predict", feature_model, "-", "--out", labels)[0] == 0
    assert labels.read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "nothing-here", "FEATURE-DATA"), "nothing-here is not a file"),
        (("evaluate", "NO-MODEL", "FEATURE-DATA"), "is not a safetensors file, or damaged"),
        (("evaluate", "FEATURE-MODEL", "nothing-here"), "no such file or directory"),
        (("evaluate", "FEATURE-MODEL", "TEXT-DATA"), "has only texts, and this model reads features"),
        (("evaluate", "TEXT-MODEL", "FEATURE-DATA"), "trained on texts; the data has only features"),
        (("evaluate", "FEATURE-MODEL", "93-FEATURES"), "this model reads 92 features"),
        (("evaluate", "FEATURE-MODEL", "9-LABELS"), "this model has 8 labels; the data has 9"),
        (("evaluate", "FEATURE-MODEL", "FEATURE-DATA", "-k", "0"), "greater than or equal to 1"),
        (("predict", "FEATURE-MODEL", "nothing-here"), "nothing-here: No such file or directory"),
        (("predict", "NO-MODEL", "-"), "is not a safetensors file, or damaged"),
    ],
)
def test_wrong_arguments_are_one_line_errors(
    capsys, feature_data, text_data, feature_model, text_model, tmp_path, arguments, message
):
    (tmp_path / "93-features.txt").write_text("1 93 8\n0 0:1\n")
    (tmp_path / "9-labels.txt").write_text("1 92 9\n0 0:1\n")
    paths = {
        "FEATURE-DATA": feature_data,
        "TEXT-DATA": text_data,
        "FEATURE-MODEL": feature_model,
        "TEXT-MODEL": text_model,
        "NO-MODEL": text_data / "labels.txt",
        "93-FEATURES": tmp_path / "93-features.txt",
        "9-LABELS": tmp_path / "9-labels.txt",
    }
    assert is_one_line_error(run(capsys, *(paths.get(argument, argument) for argument in arguments)), message)
