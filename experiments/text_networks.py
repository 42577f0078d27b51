"""Accuracy of the text networks, trained from raw texts, with linear and holographic heads.

    .venv/bin/python experiments/text_networks.py --data DIR [--dataset NAME] [--network cnn lstm] [--seeds 2]
    .venv/bin/python experiments/text_networks.py --data DIR --validation --set dropout=0.3 --set embedding_dim=64

DIR holds a folder for each dataset, with train_raw_texts.txt and test_raw_texts.txt. The first form trains on all of
the training part and measures on the test part; a cell that is finished stays in OUT/cells/text-networks. The second
measures on a tenth of the training part, which is how OPTIONS were chosen. All heads of a network have the same options
(but bce, which learns nothing at the rate of the others) and the same epochs or, with --seconds, the same time. The
last line printed is JSON.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
from holobind_paper import cells
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind.training.config import ModelConfig

HEADS = {
    "linear, bce": {"head": "linear", "loss": "bce", "learning_rate": 3e-3},
    "linear, softmax": {"head": "linear", "loss": "softmax"},
    "holographic, query": {"loss": "query"},
    "holographic, softmax": {"loss": "softmax"},
}
COMMON = {"hidden": (256,), "batch_size": 128, "learning_rate": 1e-2, "epochs": 10, "patience": 0}
OPTIONS = {
    "cnn": {**COMMON, "embedding_dim": 64, "filters": 32},
    "lstm": {**COMMON, "embedding_dim": 128, "hidden_size": 96, "feature_dropout": 0.5},
}
MEASURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")


def measured(dataset, config):
    model = hb.learn(dataset.train, config)
    found = model.evaluate(dataset.test)
    training = model.metadata["training"]
    last = training["history"][-1]
    return {
        **{name: round(found[name], 2) for name in MEASURES},
        "parameters": model.sizes()["parameters"],
        "train_seconds": last["seconds"],
        "epochs_run": len(training["history"]),
    }


def validated(dataset, config):
    history = hb.learn(dataset.train, config).metadata["training"]["history"]
    curve = [round(entry["P@1"], 1) for entry in history]
    return {"P@1": max(curve), "best_epoch": int(np.argmax(curve)) + 1, "curve": curve}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", default="cooking-stackexchange")
    parser.add_argument("--network", nargs="+", default=list(OPTIONS), choices=list(OPTIONS))
    parser.add_argument("--head", nargs="+", default=list(HEADS), choices=list(HEADS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="the time that each training has, in place of its epochs")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=JSON", help="another value than OPTIONS'")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    changed = {name: json.loads(value) for name, _, value in (text.partition("=") for text in chosen.set)}
    dataset = hb.data.load(chosen.data / chosen.dataset)

    wanted = []
    for network in chosen.network:
        for head in chosen.head:
            options = {**OPTIONS[network], **changed, **HEADS[head], "network": network}
            if chosen.seconds:
                options |= {"time_limit": chosen.seconds, "epochs": 1000}
            for seed in range(chosen.seeds):
                config = replace(ModelConfig(**options), seed=seed, validation=0.1 if chosen.validation else 0.0)
                key = {"dataset": chosen.dataset, "model": f"{network}, {head}", "seed": seed}
                key |= {
                    "options": json.dumps(options, sort_keys=True),
                    "part": "train" if chosen.validation else "test",
                }
                compute = validated if chosen.validation else measured
                wanted.append(cells.Cell(key, lambda config=config, compute=compute: compute(dataset, config)))
    rows = cells.finish(chosen.out, "text-networks", wanted)

    grouped = defaultdict(list)
    for row in rows:
        grouped[row["model"]].append(row)
    shown = [name for name in (*MEASURES, "best_epoch", "train_seconds", "parameters") if name in rows[0]]
    table = Table(f"{chosen.dataset}, mean of {chosen.seeds}", *shown)
    means = {}
    for model, some in grouped.items():
        means[model] = {name: round(float(np.mean([row[name] for row in some])), 2) for name in shown}
        table.add_row(model, *(f"{value:,.10g}" for value in means[model].values()))
    Console(width=140).print(table)
    sys.stdout.write(json.dumps({"dataset": chosen.dataset, "means": means, "cells": rows}) + "\n")


if __name__ == "__main__":
    main()
