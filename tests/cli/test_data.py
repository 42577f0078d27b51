"""The verbs of `holobind data`: results on stdout, one line on stderr and exit code 2 for an error."""

import json
import subprocess
import sys

import pytest

from holobind import data
from holobind.cli import main as cli


def run(capsys, *arguments):
    """(exit code, stdout, stderr) of `holobind data ...`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["holobind", "data", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.fixture
def toy(tmp_path):
    data.write(data.synthetic("bibtex", scale=0.05), tmp_path / "toy")
    return tmp_path / "toy"


def test_stats_prints_the_dataset_and_the_paper_s_table(capsys, toy, tmp_path):
    code, out, err = run(capsys, "stats", toy, "--plot", tmp_path / "toy.png")
    assert code == 0 and err.strip() == "" and "toy" in out and "Delicious-200K" in out and "fewer than 10" in out
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = run(capsys, "stats", toy, "--json")
    found = json.loads(out)
    assert code == 0 and found["dataset"]["train points"] == 244 and len(found["paper"]) == 8


def test_convert_writes_a_dataset_and_reports_its_size(capsys, toy, tmp_path):
    code, out, _ = run(capsys, "convert", toy, tmp_path / "npz", "--to", "npz", "--json")
    assert code == 0 and json.loads(out)["path"] == str(tmp_path / "npz")
    assert data.load(tmp_path / "npz").n_labels == 8
    one = tmp_path / "one.txt"
    one.write_text("1,2 1:1 3:0.5\n")
    code, out, _ = run(capsys, "convert", one, tmp_path / "zero.svm", "--one-based")
    assert code == 0 and (tmp_path / "zero.svm").read_text() == "# 1 3 2\n0,1 0:1 2:0.5\n" and "2 labels" in out


def test_make_generates_both_corpora(capsys, tmp_path):
    code, out, _ = run(
        capsys, "make", "synthetic", "eurlex-4k", "--scale", "0.02", "--out", tmp_path / "s", "--compression", "gz"
    )
    assert code == 0 and "311 training points, 76 test points" in out and (tmp_path / "s" / "train.txt.gz").exists()
    sizes = ("--points", "50", "--features", "400", "--labels", "30", "--features-per-point", "9")
    code, out, _ = run(capsys, "make", "synthetic", "amazon-670k", *sizes, "--out", tmp_path / "b")
    assert code == 0 and "50 training points, 1000 test points, 400 features, 30 labels" in out
    assert len(data.load(tmp_path / "b").train) == 50
    arguments = ("--out", tmp_path / "c", "--to", "jsonl", "--json", "--packages", "typer", "rich")
    code, out, _ = run(capsys, "make", "python-calls", *arguments)
    both = json.loads(out)["train points"]
    assert code == 0 and len(data.load(tmp_path / "c").train) == both
    assert both > len(data.python_calls(["typer"]).train) + 100


def test_fetch_installs_a_file_or_prints_the_page(capsys, toy, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path / "cache"))
    code, out, err = run(capsys, "fetch", "eurlex-4k")
    assert code == 2 and out == "" and "open http" in err and err.count("\n") == 1
    code, out, err = run(capsys, "fetch", "bibtex", "--file", toy)
    assert code == 2 and "is published with 4880" in err and err.count("\n") == 1
    info = data.Published("Bibtex", 244, 126, 92, 8, 1.0, 1.0, 1)
    monkeypatch.setitem(data.PUBLISHED, "bibtex", info)
    code, out, _ = run(capsys, "fetch", "bibtex", "--file", toy, "--json")
    assert code == 0 and len(data.load(json.loads(out)["path"]).train) == 244


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stats", "nothing-here"), "nothing-here: no such file or directory"),
        (("convert", "nothing-here", "b"), "no such file or directory"),
        (("make", "synthetic", "mnist"), "dataset 'mnist' is unknown"),
        (("make", "synthetic", "bibtex", "--scale", "0"), "scale must be"),
        (("make", "synthetic", "bibtex", "--labels", "9"), "go with --points"),
        (("make", "synthetic", "bibtex", "--points", "9", "--scale", "2"), "in place of --scale"),
        (("make", "synthetic", "bibtex", "--points", "0"), "points"),
        (("make", "python-calls", "--packages", "no_such_package"), "is not installed"),
        (("fetch", "mnist"), "dataset 'mnist' is unknown"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == "" and message in err and err.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["stats", "convert", "make python-calls", "make synthetic", "fetch"])
def test_every_verb_has_examples_and_json(capsys, verb):
    code, out, _ = run(capsys, *verb.split(), "--help")
    assert code == 0 and f"holobind data {verb} " in out.replace("\n", " ") and "--json" in out


def test_the_command_line_does_not_import_the_heavy_libraries():
    code = "import sys, holobind.cli; print([m for m in ('torch', 'numba', 'scipy', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
