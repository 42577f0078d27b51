"""What a user meets first: the import, the names, the command line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import holobind as hb
from holobind.cli.main import app, main


def test_import_and_help_do_not_import_torch():
    heavy = "{'torch', 'numpy', 'scipy', 'matplotlib', 'numba', 'sklearn', 'tokenizers'}"
    script = f"import sys, holobind, holobind.cli; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, f"imported at start: {loaded.stderr}"


@pytest.mark.parametrize("name", hb.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(hb, name).__doc__
    assert name in dir(hb)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'blind'"):
        _ = hb.blind


def test_version():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"holobind {hb.__version__}"


def test_a_users_mistake_prints_one_line_and_exits_2(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "holobind", "paper", "response", "--out", str(tmp_path / "file")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.count("\n") == 1
    assert "--out" in found.stderr
    assert "name another place" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
        (["paper", "capacity", "--seed", "x"], "see holobind paper capacity --help"),
        (["paper", "capacity", "--trials", "0"], "greater than or equal to 1"),
        (["data", "stats"], "Missing argument"),
    ],
)
def test_a_wrong_option_prints_one_line_and_exits_2(arguments, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["holobind", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert ended.value.code == 2
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert says in told.err


@pytest.mark.parametrize("arguments", [[], ["paper"], ["data"]])
def test_no_arguments_show_the_help(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["holobind", *arguments])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr()
    assert "Usage:" in told.out + told.err


def test_type_checkers_see_the_same_names_as_the_interpreter():
    imports = re.findall(r"^    from [\w.]+ import (\w+) as \1$", Path(hb.__file__).read_text(), flags=re.MULTILINE)
    assert sorted(imports) == sorted(hb.__all__)
