"""Record the top-5 labels and scores of every network x head x loss, and compare two recordings.

    python benchmarks/golden.py record before.json
    python benchmarks/golden.py compare before.json after.json

A refactoring that changes no behaviour leaves every label and every bit of every score as it was. Data: python-calls
(all of it for the default model, 1,500 rows for each combination) and two synthetic sets, one of which gets trees.
The last line printed is JSON.
"""

import itertools
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import holobind as hb
from holobind.data import Split
from holobind.training.config import split_options

TRAIN, TEST = 1500, 200
EPOCHS = 2
TEXT = {"embedding_dim": 32, "max_tokens": 40}
SMALL = {"cnn": {**TEXT, "filters": 16}, "lstm": {**TEXT, "hidden_size": 16}}


def options() -> dict[str, dict[str, Any]]:
    """Every combination that trains, by name."""
    found: dict[str, dict[str, Any]] = {"default": {}, "ridge alone": {"knn_weight": 0.0}, "dim 64": {"dim": 64}}
    holographic, linear = ("softmax", "query", "query-abs", "regression"), ("bce", "softmax")
    for network in ("linear", "fc", "cnn", "lstm"):
        small = SMALL.get(network, {})
        for head, losses in (("holographic", holographic), ("linear", linear)):
            for loss in (*losses, *(("ridge",) if (network, head) == ("linear", "linear") else ())):
                found[f"{network} {head} {loss}"] = {"network": network, "head": head, "loss": loss, **small}
    for loss in ("softmax", "query"):
        found[f"fc skip {loss}"] = {"network": "fc", "loss": loss, "linear_skip": True}
        found[f"fc random {loss}"] = {"network": "fc", "loss": loss, "codebook": "random", "dim": 128}
    found["ridge random"] = {"codebook": "random", "dim": 128}
    found["fc learned"] = {"network": "fc", "loss": "query", "trainable": ("present", "missing"), "dim": 128}
    found["fc features dropped"] = {"network": "fc", "feature_dropout": 0.2, "dropout": 0.2, "hidden": (64,)}
    return found


def cut(split: Any, rows: int) -> Any:
    return Split(split.X[:rows], split.Y[:rows], None if split.texts is None else split.texts[:rows])


def cases() -> Any:
    calls = hb.data.python_calls()
    small = replace(calls, train=cut(calls.train, TRAIN), test=cut(calls.test, TEST))
    eurlex, delicious = (
        hb.data.synthetic(name, scale=scale) for name, scale in (("eurlex-4k", 0.1), ("delicious", 0.2))
    )
    yield "python-calls default", calls, {}
    for name, chosen in options().items():
        yield f"python-calls-1500 {name}", small, chosen
    for data, (name, chosen) in itertools.product((eurlex, delicious), options().items()):
        if not name.startswith(("cnn", "lstm")):
            yield f"{data.name} {name}", data, chosen


def record(path: Path) -> None:
    found: dict[str, Any] = {}
    began = time.perf_counter()
    for name, data, chosen in cases():
        trained = {"epochs": EPOCHS} if chosen.get("network", "linear") != "linear" or "loss" in chosen else {}
        configs = split_options(chosen | trained)
        model = hb.learn(data.train, *configs, label_names=data.label_names, tfidf=data.tfidf)
        test = cut(data.test, TEST)
        scores, labels = model.top_k(model.inputs_of(test), 5)
        found[name] = {"labels": labels.tolist(), "scores": [[float(x).hex() for x in row] for row in scores]}
        print(f"{name}: {scores[0, :2]}", file=sys.stderr, flush=True)
    path.write_text(json.dumps(found), encoding="utf-8")
    print(json.dumps({"cases": len(found), "seconds": round(time.perf_counter() - began, 1)}))


def compare(before: Path, after: Path) -> None:
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    worst, labels, bits = 0.0, 0, 0
    for name in old.keys() & new.keys():
        a, b = ([[float.fromhex(x) for x in row] for row in side[name]["scores"]] for side in (old, new))
        apart = float(np.abs(np.array(a) - np.array(b)).max()) if np.shape(a) == np.shape(b) else float("inf")
        same = old[name]["labels"] == new[name]["labels"]
        worst, labels, bits = (
            max(worst, apart),
            labels + (not same),
            bits + (old[name]["scores"] != new[name]["scores"]),
        )
        if not same or apart:
            print(f"{name}: labels {'equal' if same else 'DIFFER'}, scores differ by up to {apart:.2g}")
    cases = {"cases": len(old.keys() & new.keys()), "missing": sorted(old.keys() ^ new.keys())}
    print(
        json.dumps(
            {**cases, "cases with other labels": labels, "cases with other bits": bits, "largest difference": worst}
        )
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", path]:
            record(Path(path))
        case ["compare", before, after]:
            compare(Path(before), Path(after))
        case _:
            sys.exit(__doc__)
