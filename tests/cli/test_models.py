"""The verbs for models: results on stdout, one line and exit code 2 for a mistake, nothing half-written."""

import gzip
import json

import numpy as np
import pytest
from helpers.commands import interrupted_at, run
from safetensors.numpy import load_file

import holobind as hb
from holobind import data

FC = ("--network", "fc", "--hidden", "16,16", "--batch-size", "32")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Features."""
    place = tmp_path_factory.mktemp("data") / "toy"
    data.write(data.synthetic("bibtex", scale=0.05), place)
    return place


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Texts: what the functions of two packages call."""
    place = tmp_path_factory.mktemp("data") / "calls"
    data.write(data.python_calls(["typer", "rich"]), place, "jsonl")
    return place


@pytest.fixture(scope="module")
def of_calls(calls, tmp_path_factory):
    dataset = data.load(calls)
    model = hb.learn(dataset.train, label_names=dataset.label_names, tfidf=dataset.tfidf)
    model.save(tmp_path_factory.mktemp("model") / "calls.safetensors")
    return next(tmp_path_factory.getbasetemp().glob("model*/calls.safetensors"))


@pytest.fixture(scope="module")
def of_toy(toy, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "toy.safetensors"
    hb.learn(data.load(toy).train, hb.ModelConfig(l2=1.0)).save(path)
    return path


def test_texts_in_labels_out(capsys, calls, tmp_path):
    model = tmp_path / "calls.safetensors"
    code, out, err = run(capsys, "train", calls, "--out", model, "--plot", tmp_path / "l2.png", "--json")
    told = json.loads(out)
    assert code == 0 and err == "" and told["path"] == str(model) and told["bytes"] == model.stat().st_size
    assert (tmp_path / "l2.png").read_bytes().startswith(b"\x89PNG")

    code, out, _ = run(capsys, "evaluate", model, calls, "--json")
    measured = json.loads(out)
    assert code == 0 and measured["part"] == "test" and measured["P"] == told["test"]["P"]
    dataset = data.load(calls)
    common = np.bincount(dataset.train.Y.indices).argsort()[::-1][:1]
    blind = hb.metrics.evaluate(dataset.test.Y, np.tile(common, (len(dataset.test), 1)))["P@1"]
    assert measured["P"][0] > blind + 2
    code, out, _ = run(capsys, "evaluate", model, calls, "-k", 3)
    assert code == 0 and "PSP" in out and "tail" in out and "@3" in out and "@4" not in out

    code, out, _ = run(capsys, "inspect", model, "--json")
    about = json.loads(out)
    assert code == 0 and about["reads"] == "texts" and about["labels"] == dataset.n_labels
    assert about["metadata"]["data"] == "calls" and about["metadata"]["test"]["P"] == measured["P"]
    code, out, _ = run(capsys, "inspect", model)
    assert code == 0 and "solved in closed form" in out and f"P@1 {measured['P'][0]:.2f}" in out

    texts = dataset.test.texts[:20]
    code, out, _ = run(capsys, "predict", model, "-", "-k", 1, stdin="\n".join(texts).encode())
    first = [json.loads(line)["labels"][0]["label"] for line in out.splitlines()]
    best = hb.load(model).top_k(texts, 1)[1][:, 0]
    assert code == 0 and first == [dataset.label_names[i] for i in best]


def test_train_says_where_and_how_good(capsys, toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "train", toy)
    assert code == 0 and out.startswith("model.safetensors: linear network, holographic head of 8 labels")
    assert "validation: nDCG@5" in out and "P@1" in out and "PSP@5" in out
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_network_is_trained_logged_and_drawn(capsys, toy, tmp_path):
    model, log, plot = (tmp_path / name for name in ("m.safetensors", "log.jsonl", "curves.png"))
    arguments = ("--epochs", 3, "--loss", "query", "--dim", 32, "--out", model, "--log", log, "--plot", plot)
    code, out, _ = run(capsys, "train", toy, *FC, *arguments)
    assert code == 0 and "hidden layers 16, 16" in out and "query loss" in out and "validation: P@1" in out
    assert [json.loads(line)["epoch"] for line in log.read_text().splitlines()] == [1, 2, 3]
    assert plot.read_bytes().startswith(b"\x89PNG") and not (tmp_path / "m.safetensors.checkpoint").exists()
    assert hb.load(model).head.codebook.dim == 32


def test_a_stopped_run_resumes_to_the_same_weights(capsys, toy, tmp_path):
    command = ("train", toy, *FC, "--epochs", 4, "--dropout", 0.2, "--out")
    assert run(capsys, *command, tmp_path / "whole.safetensors")[0] == 0
    model, checkpoint = tmp_path / "m.safetensors", tmp_path / "m.safetensors.checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        interrupted_at(patch, 1, 3)
        code, out, err = run(capsys, *command, model)
    assert code == 130 and out == "" and err.count("\n") == 1 and str(checkpoint) in err and "--resume" in err
    assert checkpoint.exists() and not model.exists()

    code, out, err = run(capsys, *command, model)
    assert code == 2 and "continue it with --resume, or remove it" in err and err.count("\n") == 1
    code, _, err = run(capsys, *command, model, "--resume", "--epochs", 5)
    assert code == 2 and "other data or options" in err and checkpoint.exists()
    code, _, err = run(capsys, *command, model, "--resume")
    assert code == 0 and err == "" and not checkpoint.exists()
    whole, resumed = load_file(tmp_path / "whole.safetensors"), load_file(model)
    assert whole.keys() == resumed.keys() and all((whole[name] == resumed[name]).all() for name in whole)


def test_resume_with_nothing_to_resume_begins(capsys, toy, tmp_path):
    code, _, _ = run(capsys, "train", toy, *FC, "--epochs", 1, "--resume", "--out", tmp_path / "m.safetensors")
    assert code == 0 and (tmp_path / "m.safetensors").exists()


def test_only_the_first_of_several_processes_speaks(capsys, toy, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert run(capsys, "train", toy, "--out", tmp_path / "m.safetensors") == (0, "", "")
    assert not list(tmp_path.iterdir())


def test_evaluate_matches_labels_by_name(capsys, calls, of_calls, tmp_path):
    """A file alone has its own, shorter list of labels; labels that the model does not know are never found."""
    _, out, _ = run(capsys, "evaluate", of_calls, calls, "--json")
    whole = json.loads(out)
    lines = (calls / "test.jsonl").read_text().splitlines()
    (tmp_path / "new.jsonl").write_text("\n".join(lines))
    code, out, _ = run(capsys, "evaluate", of_calls, tmp_path / "new.jsonl", "--json")
    found = json.loads(out)
    assert code == 0 and found["part"] == "only"
    assert all(found[name] == pytest.approx(whole[name]) for name in ("P", "nDCG", "PSP", "R", "coverage"))
    unknown = [json.dumps({**json.loads(line), "labels": ["no such", *json.loads(line)["labels"]]}) for line in lines]
    (tmp_path / "new.jsonl").write_text("\n".join(unknown))
    _, out, _ = run(capsys, "evaluate", of_calls, tmp_path / "new.jsonl", "--json")
    found = json.loads(out)
    assert found["P"] == pytest.approx(whole["P"]) and found["R"][4] < whole["R"][4]
    (tmp_path / "new.jsonl").write_text('{"text": "red", "labels": ["no such"]}')
    code, _, err = run(capsys, "evaluate", of_calls, tmp_path / "new.jsonl")
    assert code == 2 and "knows none of the 1 labels" in err and err.count("\n") == 1


def test_predict_stops_at_a_bad_line_or_passes_over_it(capsys, of_toy, tmp_path):
    lines = b"0:1\n1:1 2:1\nwhat\n3:1\n"
    code, out, err = run(capsys, "predict", of_toy, "-", stdin=lines)
    assert code == 2 and out.count("\n") == 2 and err.startswith("holobind: stdin:3: 'what' is neither")
    assert err.count("\n") == 1
    file, labels = tmp_path / "new.txt", tmp_path / "labels.jsonl"
    file.write_bytes(lines)
    code, out, err = run(capsys, "predict", of_toy, file, "--skip-bad", "--out", labels)
    found = [json.loads(line) for line in labels.read_text().splitlines()]
    assert code == 0 and out == "" and err.count("\n") == 1 and f"{file}:3: " in err
    assert [list(answer) for answer in found] == [["labels"], ["labels"], ["error"], ["labels"]]


def test_predict_packs_what_it_writes_as_the_name_says(capsys, of_toy, tmp_path):
    packed = tmp_path / "labels.jsonl.gz"
    assert run(capsys, "predict", of_toy, "-", "--numbers", "--out", packed, stdin=b"0:1\n1:1\n")[0] == 0
    _, out, _ = run(capsys, "predict", of_toy, "-", "--numbers", stdin=b"0:1\n1:1\n")
    assert gzip.decompress(packed.read_bytes()).decode() == out


def test_predict_leaves_a_file_alone_if_nothing_can_be_read(capsys, of_toy, tmp_path):
    labels = tmp_path / "labels.jsonl"
    labels.write_text("precious")
    for arguments in ((of_toy, tmp_path / "nothing-here"), (of_toy, "-", "--format", "csv"), (tmp_path / "no", "-")):
        code, _, err = run(capsys, "predict", *arguments, "--out", labels, stdin=b"0:1\n")
        assert code == 2 and err.count("\n") == 1 and labels.read_text() == "precious"
    code, _, _ = run(capsys, "predict", of_toy, "-", "--out", labels)
    assert code == 0 and labels.read_text() == ""


def test_compare_gives_both_heads_the_same_epochs(capsys, toy, tmp_path):
    out_dir = tmp_path / "new" / "place"
    code, out, _ = run(capsys, "compare", toy, "--epochs", 4, "--out", out_dir, "--json")
    told = json.loads(out)
    assert code == 0 and told == json.loads((out_dir / "compare.json").read_text())
    assert [row["epochs"] for row in told["rows"]] == [4, 4, 4, None]
    assert (out_dir / "compare.png").read_bytes().startswith(b"\x89PNG")
    linear, *_, solved = told["rows"]
    assert "linear head" in linear["name"] and linear["output layer"] == 513 * 8
    dataset = data.load(toy)
    expected = hb.learn(dataset.train).evaluate(dataset.test, dataset="toy")
    assert solved["P@1"] == pytest.approx(expected["P@1"]) and solved["PSP@1"] == pytest.approx(expected["PSP@1"])


def test_compare_prints_a_table_and_says_what_it_left_out(capsys, toy, tmp_path, monkeypatch):
    from holobind.training import learning

    monkeypatch.setattr(learning, "MOST", 100)
    code, out, _ = run(capsys, "compare", toy, "--epochs", 1, "--out", tmp_path)
    assert code == 0 and "fc, holographic head, softmax" in out and "predict rows/s" in out
    assert "fc, linear head, bce: a linear head of 512 x 8 weights would take" in out


def test_compare_stopped_writes_nothing(capsys, toy, tmp_path, monkeypatch):
    interrupted_at(monkeypatch, 0, 1)
    code, out, err = run(capsys, "compare", toy, "--epochs", 2, "--out", tmp_path)
    assert code == 130 and out == "" and "nothing is written" in err and not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_refused_before_the_work(capsys, toy, of_toy, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("worked for nothing")

    monkeypatch.setattr(data, "load", never)
    (tmp_path / "file").touch()
    for option in ("--out", "--log", "--plot"):
        code, out, err = run(capsys, "train", toy, option, tmp_path / "nowhere" / "file")
        assert code == 2 and out == "" and "cannot be written" in err and err.count("\n") == 1
    assert run(capsys, "compare", toy, "--out", tmp_path / "file")[0] == 2
    assert run(capsys, "predict", of_toy, "-", "--out", tmp_path)[0] == 2
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "nothing-here"), "nothing-here: no such file or directory"),
        (("train", "TOY", "--network", "cnn5"), "network must be one of linear, fc, cnn, lstm; got 'cnn5'"),
        (("train", "TOY", "--network", "cnn"), "network 'cnn' reads texts, and the data has none"),
        (("train", "TOY", "--head", "linear", "--loss", "query"), "a linear head has the losses"),
        (("train", "TOY", "--hidden", "12;x"), "--hidden wants sizes with commas"),
        (("train", "TOY", "--network", "fc", "--time-limit", "0"), "time_limit must be"),
        (("train", "TOY", "--lam", "-1"), "l2 must be a positive number"),
        (("train", "TOY", "--text"), "the data has no texts"),
        (("train", "TOY", "--dim", "0"), "--dim"),
        (("train", "TOY", "--nonsense"), "--nonsense"),
        (("evaluate", "nothing-here", "TOY"), "nothing-here is not a file"),
        (("evaluate", "LABELS", "TOY"), "is not a safetensors file, or damaged"),
        (("evaluate", "OF-TOY", "nothing-here"), "no such file or directory"),
        (("evaluate", "OF-TOY", "CALLS"), "has only texts, and this model reads features"),
        (("evaluate", "OF-CALLS", "TOY"), "trained on texts; the data has only features"),
        (("evaluate", "OF-TOY", "WIDE"), "this model reads 92 features a row"),
        (("evaluate", "OF-TOY", "MANY"), "this model has 8 labels; the data has 9"),
        (("evaluate", "OF-TOY", "TOY", "-k", "0"), "greater than or equal to 1"),
        (("predict", "OF-TOY", "nothing-here"), "nothing-here: No such file or directory"),
        (("predict", "LABELS", "-"), "is not a safetensors file, or damaged"),
        (("inspect", "LABELS"), "is not a safetensors file, or damaged"),
        (("compare", "nothing-here", "--out", "."), "no such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(capsys, toy, calls, of_toy, of_calls, tmp_path, monkeypatch, arguments, says):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (tmp_path / "linear_skip.txt").write_text("1 93 8\n0 0:1\n")
    (tmp_path / "many.txt").write_text("1 92 9\n0 0:1\n")
    places = {"TOY": toy, "CALLS": calls, "OF-TOY": of_toy, "OF-CALLS": of_calls, "LABELS": calls / "labels.txt"}
    places |= {"WIDE": tmp_path / "linear_skip.txt", "MANY": tmp_path / "many.txt"}
    code, out, err = run(capsys, *(places.get(argument, argument) for argument in arguments))
    assert code == 2 and out == "" and says in err and err.count("\n") == 1 and not list(work.iterdir())


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict", "inspect", "compare"])
def test_every_verb_has_examples_and_json(capsys, verb):
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0 and "Examples:" in out and f"holobind {verb} " in out.split("Examples:")[1] and "--json" in out


def test_help_tells_what_is_chosen_where_nothing_is_said(capsys):
    """Brackets are markup to rich, which would take them for the name of a style."""
    _, out, _ = run(capsys, "train", "--help")
    told = " ".join(out.replace("│", " ").split())
    assert "[default: 0.1]" in told and "[default: by validation]" in told and "\\[" not in told
