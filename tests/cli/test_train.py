"""`holobind train`: one model file, a summary on stdout, a checkpoint after Ctrl-C, nothing half-written."""

import json

import pytest
from helpers.commands import interrupt_solving, interrupt_training, is_one_line_error, run
from safetensors.numpy import load_file

import holobind as hb
from holobind import _files, data
from holobind.ridge_knn import _ridge_solvers, fit_checkpoint, ridge

FC = ("--network", "fc", "--hidden", "16,16", "--batch-size", "32")


def test_train_prints_path_model_validation_and_test_metrics(capsys, feature_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "train", feature_data)
    assert code == 0 and out.startswith("model.safetensors: ridge regression")
    assert "head of 8 labels" in out and "closed form" in out
    assert "validation: nDCG@5" in out and "P@1" in out and "PSP@5" in out
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_json_has_path_size_and_test_metrics(capsys, text_data, tmp_path):
    path = tmp_path / "calls.safetensors"
    code, out, err = run(capsys, "train", text_data, "--out", path, "--plot", tmp_path / "l2.png", "--json")
    result = json.loads(out)
    assert code == 0 and err == "" and result["path"] == str(path) and result["bytes"] == path.stat().st_size
    assert result["test"] == hb.load(path).metadata["test"]
    assert (tmp_path / "l2.png").read_bytes().startswith(b"\x89PNG")


def test_a_trained_network_has_a_log_and_a_plot(capsys, feature_data, tmp_path):
    path, log, plot = (tmp_path / name for name in ("m.safetensors", "log.jsonl", "curves.png"))
    arguments = ("--epochs", 3, "--loss", "query", "--dim", 32, "--out", path, "--log", log, "--plot", plot)
    code, out, _ = run(capsys, "train", feature_data, *FC, *arguments)
    assert code == 0 and "hidden layers of 16, 16" in out and "query loss" in out and "validation: P@1" in out
    assert [json.loads(line)["epoch"] for line in log.read_text().splitlines()] == [1, 2, 3]
    assert plot.read_bytes().startswith(b"\x89PNG") and not (tmp_path / "m.safetensors.checkpoint").exists()
    assert hb.load(path).head.codebook.dim == 32


def test_an_interrupted_run_resumes_to_the_same_weights(capsys, feature_data, tmp_path):
    command = ("train", feature_data, *FC, "--epochs", 4, "--dropout", 0.2, "--out")
    assert run(capsys, *command, tmp_path / "whole.safetensors")[0] == 0
    path, checkpoint = tmp_path / "m.safetensors", tmp_path / "m.safetensors.checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_training(patch, 1, 3)
        code, out, err = run(capsys, *command, path)
    assert code == 130 and out == "" and err.count("\n") == 1 and str(checkpoint) in err and "--resume" in err
    assert checkpoint.exists() and not path.exists()

    assert is_one_line_error(run(capsys, *command, path), str(checkpoint), "--resume")
    code, _, err = run(capsys, *command, path, "--resume", "--epochs", 5)
    assert code == 2 and "other data or options" in err and checkpoint.exists()
    code, _, err = run(capsys, *command, path, "--resume")
    assert code == 0 and err == "" and not checkpoint.exists()
    whole, resumed = load_file(tmp_path / "whole.safetensors"), load_file(path)
    assert whole.keys() == resumed.keys() and all((whole[name] == resumed[name]).all() for name in whole)


def test_resume_without_a_checkpoint_starts_a_run(capsys, feature_data, tmp_path):
    code, _, _ = run(capsys, "train", feature_data, *FC, "--epochs", 1, "--resume", "--out", tmp_path / "m.safetensors")
    assert code == 0 and (tmp_path / "m.safetensors").exists()


def test_only_rank_0_prints_and_writes(capsys, feature_data, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert run(capsys, "train", feature_data, "--out", tmp_path / "m.safetensors") == (0, "", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--out", "--log", "--plot"])
def test_an_unwritable_path_is_an_error_before_the_data_is_read(capsys, feature_data, tmp_path, monkeypatch, option):
    monkeypatch.setattr(data, "load", lambda *_, **__: pytest.fail("the data was read"))
    result = run(capsys, "train", feature_data, option, tmp_path / "nowhere" / "file")
    assert is_one_line_error(result, "cannot be written") and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--network", "cnn5"), "network must be one of linear, fc, cnn, lstm; got 'cnn5'"),
        (("--network", "cnn"), "network 'cnn' reads texts, and the data has none"),
        (("--head", "linear", "--loss", "query"), "a linear head has the losses"),
        (("--hidden", "12;x"), "--hidden"),
        (("--network", "fc", "--time-limit", "0"), "time_limit must be"),
        (("--l2", "-1"), "l2 must be a positive number"),
        (("--text",), "the data has no texts"),
        (("--dim", "0"), "dim"),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_a_wrong_option_is_a_one_line_error(capsys, feature_data, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert is_one_line_error(run(capsys, "train", feature_data, *options), message)
    assert not list(tmp_path.iterdir())


def test_missing_data_is_a_one_line_error(capsys):
    assert is_one_line_error(run(capsys, "train", "nothing-here"), "nothing-here: no such file or directory")


def test_help_shows_the_defaults(capsys):
    """Rich would take brackets for a style if they were not escaped."""
    _, out, _ = run(capsys, "train", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert "[default: 0.1]" in text and "[default: chosen on held-out rows]" in text and "\\[" not in text


def test_groups_are_held_out_as_a_whole(capsys, feature_data, tmp_path):
    n = len(data.load(feature_data).train)
    groups, path = tmp_path / "groups.txt", tmp_path / "m.safetensors"
    groups.write_text("".join(f"family {i // 3}\n" for i in range(n)))
    code, out, _ = run(capsys, "train", feature_data, "--groups", groups, "--out", path)
    assert code == 0 and "held-out rows of" in out and "groups)" in out
    assert hb.load(path).metadata["held_out"]["groups"] > 1
    groups.write_text("one\ntwo\n")
    is_one_line_error(run(capsys, "train", feature_data, "--groups", groups, "--out", path), "has 2 lines, and the")
    groups.write_text("one\n" * n)
    is_one_line_error(run(capsys, "train", feature_data, "--groups", groups, "--out", path), "rows are of one group")


@pytest.mark.parametrize("layout", ["csv", "jsonl", "directory"])
def test_a_field_of_a_table_gives_the_groups(capsys, tmp_path, layout):
    rows = [{"text": f"word{i % 5} a{i}", "labels": [f"l{i % 5}"], "author": 10 + i // 3} for i in range(120)]
    path = tmp_path / ("data" if layout == "directory" else f"data.{layout}")
    if layout == "csv":
        lines = ["text,labels,author", *(f"{row['text']},{row['labels'][0]},{row['author']}" for row in rows)]
    else:
        lines = [json.dumps(row) for row in rows]
    if layout == "directory":
        path.mkdir()
    (path / "train.jsonl" if layout == "directory" else path).write_text("\n".join(lines) + "\n")
    model, lines_file = tmp_path / "m", tmp_path / "groups.txt"
    code, out, _ = run(capsys, "train", path, "--label-separator", "|", "--group-field", "author", "--out", model)
    assert code == 0 and "groups)" in out
    lines_file.write_text("".join(f"{row['author']}\n" for row in rows))
    other = tmp_path / "other"
    assert run(capsys, "train", path, "--label-separator", "|", "--groups", lines_file, "--out", other)[0] == 0
    assert model.read_bytes() == other.read_bytes()
    command = ("train", path, "--label-separator", "|", "--out", tmp_path / "n", "--group-field")
    is_one_line_error(run(capsys, *command, "author", "--groups", lines_file), "take one of them")
    message = "it has no field 'publisher'; its fields are" if layout == "csv" else "'publisher' is empty"
    is_one_line_error(run(capsys, *command, "publisher"), message)


def test_groups_of_data_without_fields_are_refused(capsys, feature_data, tmp_path):
    is_one_line_error(run(capsys, "train", feature_data, "--group-field", "author", "--out", tmp_path / "m"), "table")


@pytest.mark.parametrize("options", [("--dim", 6), ("--dim", 6, "--memory", "1GB"), ("--head", "linear")])
def test_an_interrupted_closed_form_resumes_to_the_same_bytes(capsys, feature_data, tmp_path, monkeypatch, options):
    monkeypatch.setattr(fit_checkpoint, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(_files, "_synchronise", lambda path: None)  # many files
    monkeypatch.setattr(ridge, "MAX_CHOLESKY_UNKNOWNS", 0)
    monkeypatch.setattr(_ridge_solvers, "BLOCK_COLUMNS", 2)
    command = ("train", feature_data, "--no-text", *options, "--out")
    path, checkpoint = tmp_path / "m", tmp_path / "m.checkpoint"
    assert run(capsys, *command, tmp_path / "whole")[0] == 0
    assert [file.name for file in tmp_path.iterdir()] == ["whole"]

    with pytest.MonkeyPatch.context() as patch:
        interrupt_solving(patch, 9)
        code, out, err = run(capsys, *command, path)
    assert code == 130 and out == "" and err.count("\n") == 1 and str(checkpoint) in err and "--resume" in err
    assert len(list(checkpoint.iterdir())) > 5 and not path.exists()

    assert is_one_line_error(run(capsys, *command, path), str(checkpoint), "--resume")
    assert is_one_line_error(run(capsys, *command, path, *FC), str(checkpoint), "of the closed form")
    assert is_one_line_error(run(capsys, *command, path, "--resume", "--seed", 1), "other data, options")
    code, _, err = run(capsys, *command, path, "--resume")
    assert code == 0 and err == "" and not checkpoint.exists()
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_closed_form_does_not_remove_the_checkpoint_of_a_network(capsys, feature_data, tmp_path):
    (tmp_path / "m.checkpoint").write_bytes(b"weights")
    result = run(capsys, "train", feature_data, "--out", tmp_path / "m", "--resume")
    assert is_one_line_error(result, "belongs to an interrupted run of a network")
    assert (tmp_path / "m.checkpoint").read_bytes() == b"weights"
