"""`holobind report`: one page without links, tables that agree with the library, no directory of others touched."""

import csv
import json

import pytest
from helpers.commands import is_one_line_error, run
from helpers.pages import problems_of

import holobind as hb
from holobind import data


def test_the_report_has_tables_plots_and_a_page_without_links(capsys, text_data, text_model, tmp_path):
    out = tmp_path / "report"
    code, printed, _ = run(capsys, "report", text_model, text_data, "--out", out, "--json")
    dataset, model = data.load(text_data), hb.load(text_model)
    expected = model.evaluate(dataset.test, label_names=dataset.label_names)
    summary = json.loads(printed)
    assert code == 0 and summary["micro-F1"] == pytest.approx(expected.sets["micro-F1"])
    assert {each.name for each in out.iterdir()} == {
        "index.html", "labels.csv", "confusion.csv", "rows.csv", "labels.png", "reliability.png",
    }  # fmt: skip
    labels = list(csv.DictReader((out / "labels.csv").open()))
    assert sum(int(row["rows"]) for row in labels) == dataset.test.Y.nnz
    hits = sum(float(row["precision"]) / 100 * int(row["predicted"]) for row in labels)
    total = sum(int(row["predicted"]) + int(row["rows"]) for row in labels)
    assert 200 * hits / total == pytest.approx(expected.sets["micro-F1"], abs=0.1)
    page = (out / "index.html").read_text()
    assert "data:image/png;base64," in page and labels[0]["label"] in page
    assert problems_of(page)[0] == []
    assert run(capsys, "report", text_model, text_data, "--out", out)[0] == 0  # replaces a report


def test_a_model_without_probabilities_or_names_has_a_report(capsys, feature_data, tmp_path):
    model = hb.learn(data.load(feature_data).train, hb.ModelConfig(l2=1.0))
    model.calibration = None
    model.save(tmp_path / "model.safetensors")
    out = tmp_path / "report"
    assert run(capsys, "report", tmp_path / "model.safetensors", feature_data, "--out", out)[0] == 0
    assert "reliability.png" not in {each.name for each in out.iterdir()}
    result = run(capsys, "evaluate", tmp_path / "model.safetensors", feature_data, "--plot", tmp_path / "plot.png")
    assert is_one_line_error(result, "this model has none")


def test_other_directories_and_files_are_refused(capsys, text_model, text_data, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    for out, message in ((tmp_path, "holds other files"), (tmp_path / "mine.txt", "is a file")):
        assert is_one_line_error(run(capsys, "report", text_model, text_data, "--out", out), message)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_names_are_escaped(capsys, tmp_path):
    name = "<img src=x onerror=alert(1)>"
    lines = [json.dumps({"text": f"word{i % 3} {name}", "labels": [f"{name}{i % 3}"]}) for i in range(60)]
    (tmp_path / "hostile.jsonl").write_text("\n".join(lines))
    assert run(capsys, "train", tmp_path / "hostile.jsonl", "--out", tmp_path / "model.safetensors")[0] == 0
    out = tmp_path / "report"
    assert run(capsys, "report", tmp_path / "model.safetensors", tmp_path / "hostile.jsonl", "--out", out)[0] == 0
    problems, text = problems_of((out / "index.html").read_text())
    assert not problems and f"{name}0" in text
