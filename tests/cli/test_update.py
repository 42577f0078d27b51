"""`holobind update` and `holobind forget`."""

import json

import pytest
from helpers.commands import is_one_line_error, run

import holobind as hb

ROWS = [("print json file path", ["rich"]), ("loud typer option prompt", ["brand new"])]


@pytest.fixture
def new_rows(tmp_path):
    path = tmp_path / "new.jsonl"
    path.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in ROWS))
    return path


def test_update_adds_rows_and_labels_and_forget_removes_them(capsys, text_model, new_rows, tmp_path):
    before, path = hb.load(text_model), tmp_path / "next.safetensors"
    code, out, _ = run(capsys, "update", text_model, new_rows, "--out", path)
    assert code == 0 and out.count("\n") == 1 and "2 rows, " in out and "new labels; " in out and " s, " in out
    after = hb.load(path)
    assert "brand new" in after.label_names and "brand new" not in before.label_names
    assert after.network.n_training_rows == before.network.n_training_rows + 2
    code, out, _ = run(capsys, "forget", path, "--documents", new_rows, "--json")
    result = json.loads(out)
    assert code == 0 and result["rows forgotten"] >= 2 and result["path"] == str(path)
    code, out, _ = run(capsys, "forget", path, "--label", "brand new", "--json")
    assert code == 0 and json.loads(out)["all labels"] == hb.load(path).n_labels - 1
    code, out, _ = run(capsys, "forget", path, "--rows", "0, 3")
    assert code == 0 and "2 rows forgotten" in out


def test_rejected_labels_come_from_a_file_of_their_own(capsys, text_model, tmp_path):
    text, path = "print json file path", tmp_path / "next.safetensors"
    model = hb.load(text_model)
    best = model.label_names[model.top_k([text], 1)[1][0, 0]]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps({"text": text, "labels": [best]}) + "\n")
    right = tmp_path / "right.jsonl"
    other = next(name for name in model.label_names if name != best)
    right.write_text(json.dumps({"text": text, "labels": [other]}) + "\n")
    for data, n_rows in (((), 1), ((right,), 1)):  # one row in either case: the text is the same
        code, out, _ = run(capsys, "update", text_model, *data, "--reject", wrong, "--out", path, "--json")
        assert code == 0 and json.loads(out)["rows"] == n_rows
        label = model.label_names.index(best)
        assert hb.load(path).scores([text])[0, label] < model.scores([text])[0, label] - 0.01


def test_mistakes_are_one_line_and_leave_the_file(capsys, text_model, feature_model, feature_data, new_rows, tmp_path):
    content = text_model.read_bytes()
    numbers = tmp_path / "rows.txt"
    numbers.write_text("1\nx\n")
    for arguments, error in (
        (("update", text_model), "give DATA with new rows, --reject"),
        (("update", text_model, tmp_path / "none.jsonl"), "none.jsonl"),
        (("update", feature_model, new_rows), "this model reads features"),
        (("update", text_model, feature_data), "the data has only features"),
        (("forget", text_model), "give --documents, --rows or --label, one of them"),
        (("forget", text_model, "--rows", "1", "--label", "a"), "one of them"),
        (("forget", text_model, "--rows", "one"), "--rows wants numbers"),
        (("forget", text_model, "--rows", f"@{numbers}"), "--rows wants numbers"),
        (("forget", text_model, "--rows", "99999999"), "this model has the training rows 0 to"),
        (("forget", text_model, "--label", "unheard of"), "no label 'unheard of'"),
        (("forget", text_model, "--documents", new_rows), "are no training rows"),
    ):
        assert is_one_line_error(run(capsys, *arguments, "--quiet"), error), (arguments, error)
    assert text_model.read_bytes() == content


def test_a_model_trained_without_the_state_is_refused(capsys, feature_data, tmp_path):
    path = tmp_path / "fixed.safetensors"
    assert run(capsys, "train", feature_data, "--l2", 1, "--no-update", "--out", path)[0] == 0
    assert is_one_line_error(run(capsys, "update", path, feature_data), "cannot be updated; train it with --update")
    assert run(capsys, "train", feature_data, "--l2", 1, "--out", tmp_path / "default.safetensors")[0] == 0
    assert path.stat().st_size < (tmp_path / "default.safetensors").stat().st_size
    code, out, _ = run(capsys, "update", tmp_path / "default.safetensors", feature_data, "--json")
    assert code == 0 and json.loads(out)["new labels"] == 0


@pytest.mark.parametrize("verb", ["update", "forget"])
def test_help_has_examples(capsys, verb):
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0 and "Examples:" in out and f"holobind {verb} model.safetensors" in out
