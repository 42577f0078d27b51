"""All experiments by name: run one, run all of them, read their results."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from holobind_paper import result

FIGURES = ("response", "response-spread", "capacity", "retrieval-error", "worked-example")
UNTRAINED_TABLES = ("compression", "speed", "speed-cnn", "inference")
TRAINED_TABLES = (  # these take datasets and share their trained networks
    "accuracy",
    "ablation-projection",
    "ablation-regression",
    "learned-labels",
    "learned-present-missing",
    "network-size",
    "dimension",
)
EXPERIMENTS = (*FIGURES, *UNTRAINED_TABLES, *TRAINED_TABLES)


def run(name: str, out: Path, **options: Any) -> dict[str, Any]:
    """Run one experiment; it writes its files to the folder `out`."""
    module = import_module(f"holobind_paper.{name.replace('-', '_')}")
    numbers: dict[str, Any] = module.run(result.make_folder(out), **options)
    return numbers


def run_all(out: Path, seed: int = 0, quick: bool = False, data: Path | None = None) -> Iterator[dict[str, Any]]:
    """Run all experiments and yield each result.

    A figure with a result of the same command is not computed again. Tables continue from their finished cells.

    data   folder of datasets for the tables of trained networks
    """
    for name in EXPERIMENTS:
        stored = read(result.make_folder(out), name) if name in FIGURES else None
        if stored is not None and stored.get("command") == result.command(name, seed, quick):
            result.notify(f"{name}: {out / name}.json is up to date; delete it to compute it again")
            yield stored
        else:
            options = {"data": data} if name in TRAINED_TABLES else {}
            yield run(name, out, seed=seed, quick=quick, **options)


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
