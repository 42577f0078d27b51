"""Every verb with a full disk behind standard output, and with standard input closed: one clear error, no traceback."""

import json
import subprocess
import sys

import pytest

import holobind as hb

TEXTS = ["red apple", "blue car", "green pear", "fast blue bike"] * 3
LABELS = [["fruit"], ["vehicle"], ["fruit"], ["vehicle", "toy"]] * 3

# {place} is a directory with model.safetensors, rows.jsonl, labelled.jsonl and texts.txt. `serve` is not here: it
# prints nothing to standard output, and does not end.
VERBS = {
    "ask": "ask red*cat --query red",
    "train": "train {place}/labelled.jsonl --out {place}/new-train.safetensors",
    "evaluate": "evaluate {place}/model.safetensors {place}/labelled.jsonl",
    "predict": "predict {place}/model.safetensors {place}/texts.txt",
    "explain": "explain {place}/model.safetensors apple",
    "report": "report {place}/model.safetensors {place}/labelled.jsonl --out {place}/new-report",
    "inspect": "inspect {place}/model.safetensors",
    "restrict": "restrict {place}/model.safetensors --exclude toy --out {place}/new-restrict.safetensors",
    "compare": "compare {place}/labelled.jsonl --epochs 1 --out {place}/new-compare",
    "update": "update {place}/model.safetensors {place}/labelled.jsonl --out {place}/new-update.safetensors",
    "forget": "forget {place}/model.safetensors --rows 0 --out {place}/new-forget.safetensors",
    "warm": "warm",
    "data stats": "data stats {place}/labelled.jsonl",
    "data convert": "data convert {place}/labelled.jsonl {place}/new-convert --to tsv",
    "data make": "data make synthetic bibtex --scale 0.01 --out {place}/new-make",
    "paper demo": "paper demo",
}

# One interpreter imports what all verbs need; each verb runs in a fork of it.
FORKS = """
import json, os, sys, tempfile
import holobind.cli.main as main
import torch, holobind.model, holobind.cli.train  # noqa
torch.set_num_threads(1)
found = {}
for name, words, stdout, close_stdin in json.load(sys.stdin):
    with tempfile.TemporaryFile() as errors:
        if not (child := os.fork()):
            os.dup2(errors.fileno(), 2)
            os.dup2(os.open(stdout, os.O_WRONLY), 1)
            if close_stdin:
                os.close(0)
                sys.stdin = None
            sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
            sys.argv = ["holobind", *words]
            code = 1
            try:
                main.main()
            except SystemExit as ended:
                code = ended.code
            finally:
                os._exit(code or 0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        found[name] = code, errors.read().decode()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How each verb ended, by its name and by which stream was broken: its exit code and what it wrote to stderr."""
    place = tmp_path_factory.mktemp("verbs")
    hb.HolographicClassifier(text=True).fit(TEXTS, LABELS).save(place / "model.safetensors")
    rows = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, LABELS, strict=True)]
    (place / "labelled.jsonl").write_text("\n".join(rows) + "\n")
    (place / "texts.txt").write_text("an apple\na car\n")
    calls = [("full " + name, line, "/dev/full", False) for name, line in VERBS.items()]
    closed = {"predict": "predict {place}/model.safetensors -", "ask": "ask", "explain": VERBS["explain"] + " --json"}
    calls += [("closed " + name, line, "/dev/null", True) for name, line in closed.items()]
    words = [(name, line.format(place=place).split(), *rest) for name, line, *rest in calls]
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=json.dumps(words),
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_behind_standard_output_ends_a_verb_with_one_clear_line(ended, verb):
    code, err = ended[f"full {verb}"]
    assert code == 2, err
    assert "Traceback" not in err
    assert "No space left on device" in err.splitlines()[-1]


@pytest.mark.parametrize("verb", ["predict", "ask", "explain"])
def test_a_verb_with_standard_input_closed_has_no_input_and_no_traceback(ended, verb):
    code, err = ended[f"closed {verb}"]
    assert code in (0, 2), err
    assert "Traceback" not in err
