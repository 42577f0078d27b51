"""The command line as a whole: imports, version, help, exit codes and one-line errors."""

import re
import subprocess
import sys

import pytest
from helpers.commands import is_one_line_error, run

import holobind as hb

HEAVY = {"torch", "numpy", "scipy", "matplotlib", "numba", "sklearn", "tokenizers"}


@pytest.mark.parametrize("statement", ["import holobind, holobind.cli.main", "HELP"])
def test_import_and_help_load_no_heavy_package(statement):
    call = (
        "import holobind.cli.main as cli; sys.argv = ['holobind', '--help']\ntry: cli.main()\nexcept SystemExit: pass"
    )
    script = f"import sys\n{call if statement == 'HELP' else statement}\n"
    script += f"sys.exit(', '.join({HEAVY} & set(sys.modules)) or 0)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, f"imported at start: {loaded.stderr}"


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"holobind {hb.__version__}\n", "")


def test_the_module_runs_as_the_command_does():
    """A process of its own: exit code, stdout and stderr are those that a shell sees."""
    command = [sys.executable, "-m", "holobind", "evaluate", "nothing-here", "bibtex"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert is_one_line_error((found.returncode, found.stdout, found.stderr), "holobind: nothing-here is not a file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
        (["predict", "model", "-", "-k", "x"], "see holobind predict --help"),
        (["evaluate", "model", "data", "-k", "0"], "greater than or equal to 1"),
        (["data", "stats"], "Missing argument"),
        (["paper", "capacity", "--seed", "x"], "see holobind paper capacity --help"),
        (["paper", "capacity", "--trials", "0"], "greater than or equal to 1"),
    ],
)
def test_a_wrong_option_is_a_one_line_error(capsys, arguments, message):
    assert is_one_line_error(run(capsys, *arguments), message)


@pytest.mark.parametrize("arguments", [[], ["data"], ["paper"]])
def test_no_arguments_show_the_help(capsys, arguments):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and "Usage:" in out + err


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict", "inspect", "compare"])
def test_every_verb_has_examples_and_json(capsys, verb):
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0 and "Examples:" in out and f"holobind {verb} " in out.split("Examples:")[1] and "--json" in out


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict", "inspect", "compare"])
def test_the_examples_use_options_that_exist(capsys, verb):
    _, out, _ = run(capsys, verb, "--help")
    examples, options = out.split("Examples:")[1].split("╭", 1)
    used = set(re.findall(rf"holobind {verb} .*", examples))
    for option in re.findall(r"(?<= )--?[a-z][a-z-]*", " ".join(used)):
        assert option in options.split() or f"{option}," in options, f"{option} is no option of {verb}"
