"""Training and prediction in rows a second: the default model, and FC with a linear or a holographic head.

    .venv/bin/python benchmarks/bench_throughput.py [--data DIR] [--seconds 6] [--only tibkat-core-en ...]

Datasets: bibtex and tibkat-core-en where DIR (by default the folder that HOLOBIND_DATA names) has them, and synthetic
ones with the sizes of published ones. Each model runs in a process of its own, which reports training rows a second
(in whole steps of the training loop), predicted rows a second (`Model.top_k`: from features to the top 5, in batches,
the best of three passes over at most 8,000 rows) and its peak memory. `default` is what `holobind train` makes: the
closed form with the kNN step; its training time is that of the solution for a given l2, without the search for l2. FC
has two hidden layers of 512. Targets: the default model predicts 20,000 rows a second on bibtex and 3,000 on
tibkat-core-en. `--scoring` measures the time per label among a million labels instead. The last line printed is JSON.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from holobind_paper.datasets import data_folder
from memory import peak_memory_mb, run_alone
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind import metrics
from holobind.ridge_knn.ridge import default_dim
from holobind.training import loop

DATASETS = {  # name: None for one on disk, else the name and the scale of a synthetic one
    "bibtex": None,
    "tibkat-core-en": None,
    "synthetic wiki10-31k, 1/4": ("wiki10-31k", 0.25),
    "synthetic amazon-670k, 1/20": ("amazon-670k", 0.05),
    "synthetic delicious-200k, 1/10": ("delicious-200k", 0.1),
}
MIN_PREDICTED_ROWS_PER_SECOND = {"bibtex": 20_000, "tibkat-core-en": 3_000}
HEADS = {
    "FC-linear": lambda labels: hb.LinearHead(512, labels),
    "FC-holographic softmax": lambda labels: hb.HolographicHead(512, labels, default_dim(labels)),
    "FC-holographic query": lambda labels: hb.HolographicHead(512, labels, default_dim(labels), loss="query"),
}
MODELS = ("default", *HEADS)
MAX_PREDICTED_ROWS = 8000
WARM_UP_STEPS = 3


class EnoughError(Exception):
    """Enough training steps were timed."""


def load(name, folder):
    """Train and test split."""
    if DATASETS[name] is None:
        dataset = hb.data.load(folder / name)
    else:
        synthetic, scale = DATASETS[name]
        dataset = hb.data.synthetic(synthetic, scale=scale)
    return dataset.train, dataset.test


def measure(name, folder, kind, seconds):
    """Rows a second and peak memory of one model on one dataset."""
    split, test = load(name, folder)
    data_mb = peak_memory_mb()
    began = time.perf_counter()
    if kind == "default":
        model = hb.learn(split, hb.ModelConfig(l2=1.0))
        trained = len(split) / (time.perf_counter() - began)
    else:
        network = hb.networks.FC(split.X.shape[1], (512, 512))
        model = hb.Model(network, HEADS[kind](split.Y.shape[1]), metrics.frequencies(split.Y))
        marks = []

        def mark(state, config):
            marks.append(time.perf_counter())
            if len(marks) > 8 and marks[-1] - marks[WARM_UP_STEPS] > seconds:
                raise EnoughError

        try:
            config = hb.TrainConfig(
                epochs=1000, batch_size=256, learning_rate=3e-3, patience=0, validation_fraction=0.0
            )
            loop.fit(model, model.examples(split.X), split.Y, config, on_progress=mark)
        except EnoughError:
            pass
        trained = 256 / float(np.median(np.diff(marks[WARM_UP_STEPS:])))
        model.eval()
    X = (test.X if model.tfidf is None else model.tfidf.transform(test.texts))[:MAX_PREDICTED_ROWS]
    model.top_k(X[:1100])
    times = []
    for _ in range(3):
        began = time.perf_counter()
        model.top_k(X)
        times.append(time.perf_counter() - began)
    return {
        "trained rows a second": round(trained),
        "predicted rows a second": round(X.shape[0] / min(times)),
        "peak MB": round(peak_memory_mb()),
        "of them data MB": round(data_mb),
        "parameters": model.sizes()["parameters"],
    }


def scoring(labels=1_000_000, dim=1024):
    """Nanoseconds per label and row: the top 5, and the softmax loss with its gradient."""
    codebook, found = hb.OrbitCodebook(labels, dim), {}
    v = torch.randn(32, dim, generator=torch.Generator().manual_seed(0))

    def softmax():
        queries = v[:16].clone().requires_grad_()
        codebook.log_sum_exp(queries).sum().backward()

    for name, rows, work in (("top 5", 32, lambda: codebook.top_k(v, 5)), ("softmax", 16, softmax)):
        times = []
        for _ in range(5):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        found[f"{name}, ns a label and row"] = round(1e9 * min(times) / (rows * labels), 2)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--seconds", type=float, default=6.0, help="training time of each model")
    parser.add_argument("--only", nargs="+", default=list(DATASETS), choices=list(DATASETS), metavar="DATASET")
    parser.add_argument("--model", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--scoring", action="store_true", help="only the time per label, among a million labels")
    options = parser.parse_args()
    if options.scoring:
        print(json.dumps({"threads": torch.get_num_threads(), **scoring()}))
        return
    results = []
    for name in options.only:
        if DATASETS[name] is None and not (options.data / name).is_dir():
            print(f"{options.data} has no folder {name}; name another folder with --data", file=sys.stderr)
            continue
        for kind in options.model:
            try:
                found = run_alone(measure, name, options.data, kind, options.seconds)
            except Exception as error:  # a linear layer may be too large for the memory; the others go on
                print(f"{name}, {kind}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            target = MIN_PREDICTED_ROWS_PER_SECOND.get(name) if kind == "default" else None
            reached = target is None or found["predicted rows a second"] >= target
            results.append({"dataset": name, "model": kind, **found, "target": target, "reached": reached})
    shown = Table("dataset", "model", "trained rows/s", "predicted rows/s", "target", "peak MB", "parameters")
    for row in results:
        shown.add_row(
            row["dataset"],
            row["model"],
            f"{row['trained rows a second']:,}",
            f"{row['predicted rows a second']:,}",
            f"{row['target']:,}" if row["target"] else "",
            f"{row['peak MB']:,}",
            f"{row['parameters']:,}",
        )
    Console(width=120).print(shown)
    print(json.dumps({"threads": torch.get_num_threads(), "results": results}))


if __name__ == "__main__":
    main()
