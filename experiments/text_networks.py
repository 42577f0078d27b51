"""Accuracy of the text networks (XML-CNN, attention LSTM) on raw texts, with linear and holographic heads.

    .venv/bin/python experiments/text_networks.py [--data DIR] [--dataset NAME] [--network cnn lstm] [--seeds 2]
    .venv/bin/python experiments/text_networks.py --validation --set dropout=0.3 --set embedding_dim=64

DIR (by default the folder that HOLOBIND_DATA names) holds one folder per dataset, with train_raw_texts.txt and
test_raw_texts.txt. The first form trains on the whole training split and measures on the test split; finished cells
stay in OUT/text-networks.jsonl and are not computed again. The second form measures on a tenth of the training split;
OPTIONS were chosen that way. All heads of a network have the same options (except bce, which has a higher learning
rate) and the same number of epochs or, with --seconds, the same time. The last line printed is
JSON.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from holobind_paper import cells
from holobind_paper.datasets import data_folder
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind.training.config import split_options

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
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")


def measure_on_test(dataset, options):
    model = hb.learn(dataset.train, *split_options(options))
    found = model.evaluate(dataset.test)
    history = model.metadata["training"]["history"]
    return {
        **{name: round(found[name], 2) for name in METRICS},
        "parameters": model.sizes()["parameters"],
        "train_seconds": model.metadata["timings"]["epochs"][-1]["seconds"],
        "epochs_run": len(history),
    }


def measure_on_validation(dataset, options):
    history = hb.learn(dataset.train, *split_options(options)).metadata["training"]["history"]
    curve = [round(entry["P@1"], 1) for entry in history]
    return {"P@1": max(curve), "best_epoch": int(np.argmax(curve)) + 1, "curve": curve}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--dataset", default="cooking-stackexchange")
    parser.add_argument("--network", nargs="+", default=list(OPTIONS), choices=list(OPTIONS))
    parser.add_argument("--head", nargs="+", default=list(HEADS), choices=list(HEADS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="training time of each model, in place of its epochs")
    parser.add_argument("--validation", action="store_true", help="measure on a tenth of the training split")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=JSON", help="replaces a value of OPTIONS")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    changed = {name: json.loads(value) for name, _, value in (text.partition("=") for text in arguments.set)}
    dataset = hb.data.load(arguments.data / arguments.dataset)
    measure = measure_on_validation if arguments.validation else measure_on_test

    wanted = []
    for network in arguments.network:
        for head in arguments.head:
            options = {**OPTIONS[network], **changed, **HEADS[head], "network": network}
            if arguments.seconds:
                options |= {"time_limit": arguments.seconds, "epochs": 1000}
            for seed in range(arguments.seeds):
                key = {"dataset": arguments.dataset, "model": f"{network}, {head}", "seed": seed}
                key |= {
                    "options": json.dumps(options, sort_keys=True),
                    "split": "validation" if arguments.validation else "test",
                }
                run = options | {"seed": seed, "validation_fraction": 0.1 if arguments.validation else 0.0}
                wanted.append(cells.Cell(key, lambda run=run: measure(dataset, run)))
    rows = cells.finish(arguments.out, "text-networks", wanted)

    grouped = defaultdict(list)
    for row in rows:
        grouped[row["model"]].append(row)
    shown = [name for name in (*METRICS, "best_epoch", "train_seconds", "parameters") if name in rows[0]]
    table = Table(f"{arguments.dataset}, mean of {arguments.seeds}", *shown)
    means = {}
    for model, found in grouped.items():
        means[model] = {name: round(float(np.mean([row[name] for row in found])), 2) for name in shown}
        table.add_row(model, *(f"{value:,.10g}" for value in means[model].values()))
    Console(width=140).print(table)
    sys.stdout.write(json.dumps({"dataset": arguments.dataset, "means": means, "cells": rows}) + "\n")


if __name__ == "__main__":
    main()
