"""A plug-in that cannot be loaded breaks no other verb."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from holobind.cli.plugins import GROUP, add_plugins
from holobind.errors import HolobindError

MODULES = {
    "raises_on_import": "raise ImportError('no module named [nothing]')",
    "has_no_app": "",
    "has_a_wrong_app": "app = 5",
    "works": "import typer\napp = typer.Typer()\n@app.command()\ndef hello(): print('hello')\n",
}


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """The entry points of `MODULES`, on the path of this process."""
    for name, source in MODULES.items():
        (tmp_path / f"plugin_{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return {name: EntryPoint(name, f"plugin_{name}:app", GROUP) for name in MODULES}


def command_line(*plugins):
    app = typer.Typer()
    app.command("own")(lambda: typer.echo("own"))
    app.callback()(lambda: None)
    add_plugins(app, plugins)
    return lambda *arguments: CliRunner().invoke(app, arguments, catch_exceptions=True)


def test_a_plugin_adds_its_verbs(plugins):
    assert command_line(plugins["works"])("works", "hello").output == "hello\n"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises_on_import", "ImportError: no module named [nothing]"),
        ("has_no_app", "AttributeError: module 'plugin_has_no_app' has no attribute 'app'"),
        ("has_a_wrong_app", "TypeError: plugin_has_a_wrong_app:app is a int, not a typer.Typer"),
    ],
)
def test_a_broken_plugin_gives_its_reason_and_leaves_the_other_verbs_working(plugins, name, reason):
    invoke = command_line(plugins[name], plugins["works"])
    assert invoke("own").output == "own\n"
    assert invoke("works", "hello").output == "hello\n"
    shown = " ".join(invoke("--help").output.replace("│", " ").split())
    assert f"Not available: the plug-in {name}" in shown
    for arguments in ([], ["verb", "--option", "5"], ["--help"]):
        error = invoke(name, *arguments).exception
        assert isinstance(error, HolobindError)
        assert str(error).endswith(f"cannot be loaded: {reason}; install it again, or uninstall it")


def test_a_broken_plugin_of_an_installed_package_prints_one_line_and_exits_2(tmp_path):
    installed = tmp_path / "broken-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{GROUP}]\nbroken = no_such_module:app\n")

    def run(*arguments):
        command = [sys.executable, "-m", "holobind", *arguments]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    broken = run("broken", "verb")
    assert (broken.returncode, broken.stdout, broken.stderr.count("\n")) == (2, "", 1)
    assert broken.stderr.startswith("holobind: the plug-in broken (no_such_module:app) cannot be loaded: Module")
    assert run("--version").stdout.startswith("holobind ")
