"""`holobind paper all` runs every experiment and keeps finished results; each experiment has a command."""

import json
from importlib import import_module

import pytest
from holobind_paper import cli, datasets, jobs, registry, training
from typer.testing import CliRunner


def test_all_experiments_run_and_finished_ones_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registry, "FIGURES", ("worked-example",))
    monkeypatch.setattr(registry, "UNTRAINED_TABLES", ("compression",))
    monkeypatch.setattr(registry, "TRAINED_TABLES", ())
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
        *(set(registry.EXPERIMENTS) - {"authors"}),  # accuracy --preset authors
        *("all", "plan", "report", "demo"),
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


def test_the_preset_of_the_authors_is_a_table_of_its_own(tmp_path, monkeypatch):
    names = []
    monkeypatch.setattr(
        registry, "run", lambda name, out, **_: names.append(name) or {"experiment": name, "seconds": 0}
    )
    for arguments in ([], ["--preset", "paper"], ["--preset", "authors"]):
        assert CliRunner().invoke(cli.app, ["accuracy", *arguments, "--out", str(tmp_path)]).exit_code == 0
    assert names == ["accuracy", "accuracy", "authors"]


def test_all_trains_the_small_datasets_first_and_continues_cell_by_cell(tmp_path, data, trained, monkeypatch):
    """Cells of the dataset with fewer rows and labels come first, whichever table wants them; a second run has none."""
    for name in ("FIGURES", "UNTRAINED_TABLES"):
        monkeypatch.setattr(registry, name, ())
    monkeypatch.setattr(registry, "TRAINED_TABLES", ("accuracy", "ablation-regression"))
    before = registry.plan(tmp_path, quick=True, data=data)
    assert sum(one.hours for one in before) > 0
    sources = [one.job.source for one in before]
    assert sources == sorted(sources, key=lambda source: source.rows * source.labels)
    assert {source.name for source in sources} == {"Bibtex", "Delicious"}
    interrupted = training.evaluated
    monkeypatch.setattr(
        training, "evaluated", lambda model, source: _stop(len(trained) > 2) or interrupted(model, source)
    )
    with pytest.raises(KeyboardInterrupt):
        list(registry.run_all(tmp_path, quick=True, data=data))
    monkeypatch.setattr(training, "evaluated", interrupted)
    assert [found["experiment"] for found in registry.run_all(tmp_path, quick=True, data=data)] == [
        "accuracy",
        "ablation-regression",
    ]
    assert len(trained) == 2 * 5 + 1  # one of them twice
    trained.clear()
    assert len(list(registry.run_all(tmp_path, quick=True, data=data))) == 2
    assert not trained
    shown = CliRunner().invoke(cli.app, ["plan", "--out", str(tmp_path), "--quick", "--data", str(data)]).stdout
    assert "hours are left" in shown and "accuracy: Bibtex, HRR-FC" in shown


def _stop(now):
    if now:
        raise KeyboardInterrupt


def test_every_planned_dataset_and_network_is_known_without_data(tmp_path):
    """`plan` and the page load nothing; the whole of it is estimated at less than ten hours."""
    hours = 0.0
    for table in registry.TRAINED_TABLES:
        module = import_module(f"holobind_paper.{table.replace('-', '_')}")
        for job in module.jobs([datasets.by_name(name) for name in module.DATASETS], False):
            assert jobs.key(job, 0)["dataset"] == job.source.name
            hours += job.n_seeds(False) * jobs.estimate(job) / 3600
    assert 1 < hours < 12  # with cells that tables share counted for each
