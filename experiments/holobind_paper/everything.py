"""`holobind paper all`: every experiment there is, one after the other; what is finished is not run again."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from holobind_paper import result

FIGURES = ("response", "response-spread", "capacity", "retrieval-error", "worked-example")
TABLES = ("compression", "speed", "speed-cnn", "inference")  # they keep their cells themselves
TRAINED = (  # so do these, and they take datasets
    "accuracy",
    "ablation-projection",
    "ablation-regression",
    "learned-labels",
    "learned-present-missing",
    "network-size",
    "dimension",
)
EXPERIMENTS = (*FIGURES, *TABLES, *TRAINED)


def one(name: str, out: Path, **options: Any) -> dict[str, Any]:
    """Run an experiment by its name; what it leaves behind is in `out`."""
    module = import_module(f"holobind_paper.{name.replace('-', '_')}")
    numbers: dict[str, Any] = module.run(result.folder(out), **options)
    return numbers


def run(out: Path, seed: int = 0, quick: bool = False, data: Path | None = None) -> Iterator[dict[str, Any]]:
    """The results of all experiments, as they come. A figure whose JSON is of the same command is kept.

    data   a folder of datasets for the tables of trained networks
    """
    for name in EXPERIMENTS:
        kept = read(result.folder(out), name) if name in FIGURES else None
        if kept is not None and kept.get("command") == result.command(name, seed, quick):
            result.say(f"{name}: {out / name}.json is kept; delete it to run it again")
            yield kept
        else:
            more = {"data": data} if name in TRAINED else {}
            yield one(name, out, seed=seed, quick=quick, **more)


def read(out: Path, name: str) -> dict[str, Any] | None:
    """What an experiment left behind, None if nothing; a file that cannot be read is said to be damaged."""
    path = out / f"{name}.json"
    try:
        data = json.loads(path.read_text())
        if data["experiment"] == name:
            return dict(data)
        wrong = f"it is of {data['experiment']}"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        wrong = f"{type(error).__name__}: {error}"
    result.say(f"{path} is damaged ({wrong}) and counts as not run")
    return None
