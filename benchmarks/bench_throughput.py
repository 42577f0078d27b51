"""Training and prediction by the second: a linear output layer beside a holographic one, and the default model.

    .venv/bin/python benchmarks/bench_throughput.py [--data ../shared/data] [--seconds 6] [--only tibkat-core-en ...]

For every dataset (bibtex and tibkat-core-en where `--data` has them, and synthetic ones in the shape of published ones)
a process of its own for each model says how many rows a second it trains on in full steps of the training loop, how
many it predicts (`Model.top_k`: features to the top 5, in batches, best of three passes over up to 8,000 rows), and its
peak memory. `default` is what `holobind train` makes: the closed form, whose training time is that of the solution (l2
given, not searched). FC has two hidden layers of 512. The last line printed is JSON; the bars are those of prediction
by the default model: 20,000 rows a second on bibtex, 3,000 on tibkat-core-en. `--scoring` says what a label costs among
a million.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from memory import alone, high_water
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind import metrics
from holobind.training import loop as train

SETS = {
    "bibtex": None,
    "tibkat-core-en": None,
    "synthetic wiki10-31k, 1/4": ("wiki10-31k", 0.25),
    "synthetic amazon-670k, 1/20": ("amazon-670k", 0.05),
    "synthetic delicious-200k, 1/10": ("delicious-200k", 0.1),
}
BARS = {"bibtex": 20_000, "tibkat-core-en": 3_000}
HEADS = {
    "FC-linear": lambda labels: hb.LinearHead(512, labels),
    "FC-holographic softmax": lambda labels: hb.HolographicHead(512, labels, hb.default_dim(labels)),
    "FC-holographic query": lambda labels: hb.HolographicHead(512, labels, hb.default_dim(labels), loss="query"),
}
MODELS = ("default", *HEADS)


class Enough(Exception):  # noqa: N818
    pass


def loaded(name, folder):
    if SETS[name] is None:
        dataset = hb.data.load(folder / name)
        return dataset.train, dataset.test
    dataset = hb.data.synthetic(SETS[name][0], scale=SETS[name][1])
    return dataset.train, dataset.test


def measured(name, folder, kind, seconds):
    part, test = loaded(name, folder)
    before = high_water()
    began = time.perf_counter()
    if kind == "default":
        model = hb.learn(part, hb.ModelConfig(l2=1.0))
        trained = len(part) / (time.perf_counter() - began)
    else:
        network = hb.networks.FC(part.X.shape[1], (512, 512))
        model = hb.Model(network, HEADS[kind](part.Y.shape[1]), metrics.frequencies(part.Y))
        marks = []

        def tell(at, plan):
            marks.append(time.perf_counter())
            if len(marks) > 8 and marks[-1] - marks[3] > seconds:
                raise Enough

        try:
            plan = train.TrainConfig(epochs=1000, batch_size=256, learning_rate=3e-3, patience=0, validation=0.0)
            train.fit(model, model.examples(part.X), part.Y, plan, on_progress=tell)
        except Enough:
            pass
        trained = 256 / float(np.median(np.diff(marks[3:])))
        model.eval()
    X = (test.X if model.tfidf is None else model.tfidf.transform(test.texts))[:8000]
    model.top_k(X[:1100])
    took = []
    for _ in range(3):
        began = time.perf_counter()
        model.top_k(X)
        took.append(time.perf_counter() - began)
    return {
        "trained rows a second": round(trained),
        "predicted rows a second": round(X.shape[0] / min(took)),
        "peak MB": round(high_water()),
        "of them data MB": round(before),
        "parameters": model.sizes()["parameters"],
    }


def scoring(labels=1_000_000, dim=1024):
    """Nanoseconds a label and row: the top 5, and the softmax loss with its gradient."""
    book, found = hb.OrbitCodebook(labels, dim), {}
    v = torch.randn(32, dim, generator=torch.Generator().manual_seed(0))

    def softmax():
        asked = v[:16].clone().requires_grad_()
        book.log_sum_exp(asked).sum().backward()

    for name, rows, work in (("top 5", 32, lambda: book.top_k(v, 5)), ("softmax", 16, softmax)):
        took = []
        for _ in range(5):
            began = time.perf_counter()
            work()
            took.append(time.perf_counter() - began)
        found[f"{name}, ns a label and row"] = round(1e9 * min(took) / (rows * labels), 2)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=beside)
    parser.add_argument("--seconds", type=float, default=6.0, help="to train for, each")
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--model", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--scoring", action="store_true", help="only the time a label takes, among a million")
    chosen = parser.parse_args()
    if chosen.scoring:
        print(json.dumps({"threads": torch.get_num_threads(), **scoring()}))
        return
    results = []
    for name in chosen.only:
        if SETS[name] is None and not (chosen.data / name).is_dir():
            print(f"{name} is not at {chosen.data}", file=sys.stderr)
            continue
        for kind in chosen.model:
            try:
                found = alone(measured, name, chosen.data, kind, chosen.seconds)
            except Exception as error:  # a linear layer may be too large for the memory: the others go on
                print(f"{name}, {kind}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            bar = BARS.get(name) if kind == "default" else None
            reached = bar is None or found["predicted rows a second"] >= bar
            results.append({"dataset": name, "model": kind, **found, "bar": bar, "reached": reached})
    shown = Table("dataset", "model", "trained rows/s", "predicted rows/s", "bar", "peak MB", "parameters")
    for row in results:
        shown.add_row(
            row["dataset"],
            row["model"],
            f"{row['trained rows a second']:,}",
            f"{row['predicted rows a second']:,}",
            f"{row['bar']:,}" if row["bar"] else "",
            f"{row['peak MB']:,}",
            f"{row['parameters']:,}",
        )
    Console(width=120).print(shown)
    print(json.dumps({"threads": torch.get_num_threads(), "results": results}))


if __name__ == "__main__":
    main()
