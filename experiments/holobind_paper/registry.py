"""All experiments by name: run one, run all of them, read their results."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from holobind_paper import result

FIGURES = (
    *("response", "response-spread", "capacity", "retrieval-error", "worked-example"),
    *("capacity-growth", "appendix-algebra", "vsa-selection"),
)
UNTRAINED_TABLES = ("compression", "speed", "speed-cnn", "inference")
TRAINED_TABLES = (  # these take datasets and share their trained networks
    "accuracy",
    "authors",
    "ablation-projection",
    "ablation-regression",
    "balance",
    "learned-labels",
    "learned-present-missing",
    "network-size",
    "dimension",
)
EXPERIMENTS = (*FIGURES, *UNTRAINED_TABLES, *TRAINED_TABLES)


def run(name: str, out: Path, **options: Any) -> dict[str, Any]:
    """Run one experiment; it writes its files to the folder `out`."""
    from holobind_paper import training

    module = import_module(f"holobind_paper.{name.replace('-', '_')}")
    folder = result.make_folder(out)
    numbers: dict[str, Any] = (
        training.run(module, folder, **options) if name in TRAINED_TABLES else module.run(folder, **options)
    )
    return numbers


def run_all(out: Path, seed: int = 0, quick: bool = False, data: Path | None = None) -> Iterator[dict[str, Any]]:
    """Run all experiments and yield each result.

    A figure with a result of the same command is not computed again. Trained networks come in the order of `plan`,
    those of small datasets first, and finished ones are not trained again; the tables follow.
    """
    for name in (*FIGURES, *UNTRAINED_TABLES):
        stored = read(result.make_folder(out), name)
        if stored is not None and stored.get("command") == result.command(name, seed, quick):
            result.notify(f"{name}: {out / name}.json is up to date; delete it to compute it again")
            yield stored
        else:
            yield run(name, out, seed=seed, quick=quick)
    from holobind_paper import cells, training

    for one in plan(out, seed, quick, data):
        if one.hours:
            cells.finish(out, one.table, training.wanted_cells(out, one.job, seed, quick), shared_with=TRAINED_TABLES)
    for name in TRAINED_TABLES:
        yield run(name, out, seed=seed, quick=quick, data=data)


@dataclass(frozen=True)
class Planned:
    """A network of a table, and the estimated hours of its seeds that are not finished."""

    table: str
    job: Any
    finished: int
    seeds: int
    hours: float


def plan(out: Path, seed: int = 0, quick: bool = False, data: Path | None = None) -> list[Planned]:
    """All networks of all tables in the order in which `run_all` trains them: small datasets first, then by table.

    It loads no dataset: whether a cell is finished follows from its settings and the version of the code.
    """
    from holobind_paper import cells, jobs, training

    stored = training.stored_cells(out)
    found, seen = [], set()
    for table in TRAINED_TABLES:
        module = import_module(f"holobind_paper.{table.replace('-', '_')}")
        sources = training.pick(data, None, quick, module.DATASETS, min_labels=training.min_labels(module))
        for job in module.jobs(sources, quick):
            keys = [cells.identity(jobs.key(job, seed + offset)) for offset in range(job.n_seeds(quick))]
            finished = [key in stored and all(need in stored[key]["result"] for need in job.needs) for key in keys]
            missing = [key for key, done in zip(keys, finished, strict=True) if not done and key not in seen]
            seen.update(keys)
            hours = len(missing) * jobs.estimate(job) / 3600
            found.append(Planned(table, job, sum(finished), len(keys), hours))
    return sorted(found, key=lambda one: one.job.source.rows * one.job.source.labels)


def collect(out: Path, name: str, figures: Path | None = None) -> dict[str, Any] | None:
    """The result of an experiment: that of a trained table from its finished cells, any other from its JSON file.

    figures   the folder for the figures of trained tables
    """
    if name not in TRAINED_TABLES:
        return read(out, name)
    from holobind_paper import training

    return training.collect(import_module(f"holobind_paper.{name.replace('-', '_')}"), out, figures=figures)


def read(out: Path, name: str) -> dict[str, Any] | None:
    """The result of an experiment, or None if there is none; a damaged file is reported and counts as none."""
    path = out / f"{name}.json"
    try:
        data = json.loads(path.read_text())
        if data["experiment"] == name:
            return dict(data)
        problem = f"it is the result of {data['experiment']}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        problem = f"{type(error).__name__}: {error}"
    result.notify(f"{path} is damaged ({problem}) and is ignored")
    return None
