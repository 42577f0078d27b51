"""`holobind paper all` runs every experiment and keeps finished results; each experiment has a command."""

import json

from holobind_paper import cli, registry
from typer.testing import CliRunner


def test_all_experiments_run_and_finished_ones_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registry, "FIGURES", ("worked-example",))
    monkeypatch.setattr(registry, "EXPERIMENTS", ("worked-example", "compression"))
    names = [data["experiment"] for data in registry.run_all(tmp_path, quick=True)]
    assert names == ["worked-example", "compression"]
    before = (tmp_path / "worked-example.json").stat().st_mtime_ns
    list(registry.run_all(tmp_path, quick=True))
    assert (tmp_path / "worked-example.json").stat().st_mtime_ns == before
    assert "is up to date" in capsys.readouterr().err
    (tmp_path / "worked-example.json").write_text("{")
    list(registry.run_all(tmp_path, quick=True))
    assert "damaged" in capsys.readouterr().err
    assert json.loads((tmp_path / "worked-example.json").read_text())["quick"] is True


def test_every_experiment_has_its_command_and_the_commands_print_json_and_tables(tmp_path):
    assert {command.name or command.callback.__name__ for command in cli.app.registered_commands} == {
        *registry.EXPERIMENTS,
        *("all", "report", "demo"),
    }
    run = CliRunner().invoke(cli.app, ["compression", "--out", str(tmp_path), "--json"])
    assert json.loads(run.stdout)["experiment"] == "compression"
    shown = CliRunner().invoke(cli.app, ["compression", "--out", str(tmp_path)]).stdout
    assert "Amazon-670K" in shown
    assert "compression.json" in shown


def test_the_commands_of_trained_tables_read_the_folder_of_datasets_from_the_environment(tmp_path, monkeypatch):
    folders = []

    def run(name, out, **options):
        folders.append(options["data"])
        return {"experiment": name, "seconds": 0}

    monkeypatch.setattr(registry, "run", run)
    monkeypatch.setenv("HOLOBIND_DATA", str(tmp_path / "environment"))
    for arguments in ([], ["--data", str(tmp_path / "option")]):
        assert CliRunner().invoke(cli.app, ["accuracy", *arguments, "--out", str(tmp_path)]).exit_code == 0
    assert folders == [tmp_path / "environment", tmp_path / "option"]
