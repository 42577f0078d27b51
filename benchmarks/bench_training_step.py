"""One optimisation step with a holographic head against one with a linear head, at the shapes of the paper's datasets.

    .venv/bin/python benchmarks/bench_training_step.py [--dataset Bibtex ...]

A step is forward, loss, backward and Adam (fused) of one 512 x 512 hidden layer and the head, at batch 64, on random
activations and label sets of the dataset's mean size. The linear head has the paper's baseline loss, BCE. Heads take
turns of two steps, of which the second is timed, so that changes in the speed of the machine affect all of them alike.
A time is the median over the turns, and ratios are between medians. Peak memory is measured in a process of its own for
each head: the maximum of the resident memory during three steps, less what was resident before the head was made. The
last line printed is JSON.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from memory import peak_memory_mb, run_alone
from rich.console import Console
from rich.table import Table

import holobind as hb

#           labels, labels of a row, the paper's dim, target speed-ups of query and softmax at that dim
DATASETS = {
    "Mediamill": (101, 4.38, 400, 0.8, None),
    "Bibtex": (159, 2.40, 400, 0.8, None),
    "Delicious": (983, 19.03, 400, 1.0, None),
    "EURLex-4K": (3993, 5.31, 400, 1.0, None),
    "Wiki10-31K": (30938, 18.64, 3000, 1.0, 1.0),
    "Amazon-13K": (13330, 5.04, 3000, 1.0, None),
    "Delicious-200K": (205443, 75.54, 3000, 1.0, 1.0),
    "Amazon-670K": (670091, 5.45, 3000, 30.0, 1.0),
}
BATCH, HIDDEN, TURNS, SECONDS = 64, 512, 500, 12.0
SMALL_DIM = 128  # shown too where the paper's dim exceeds the number of labels


def heads(labels, dim):
    kinds = {
        "linear": lambda: hb.LinearHead(HIDDEN, labels),
        "query": lambda: hb.HolographicHead(HIDDEN, labels, dim, loss="query"),
        "softmax": lambda: hb.HolographicHead(HIDDEN, labels, dim, loss="softmax"),
    }
    if dim > labels:
        kinds[f"query, dim {SMALL_DIM}"] = lambda: hb.HolographicHead(HIDDEN, labels, SMALL_DIM, loss="query")
    return kinds


def sets(labels, mean):
    generator = torch.Generator().manual_seed(0)
    counts = torch.poisson(torch.full((BATCH,), mean), generator).long().clamp(1, labels)
    total = int(counts.sum())
    return torch.randint(labels, (total,), generator=generator), counts.cumsum(0) - counts


def stepper(head, labels, offsets):
    hidden = torch.nn.Linear(HIDDEN, HIDDEN)
    optimiser = torch.optim.Adam([*hidden.parameters(), *head.parameters()], fused=True)
    x = torch.randn(BATCH, HIDDEN, generator=torch.Generator().manual_seed(0))

    def step():
        optimiser.zero_grad()
        head.loss(torch.relu(hidden(x)), labels, offsets).backward()
        optimiser.step()

    return step


def median_seconds(steps):
    times = {name: [] for name in steps}
    spent = dict.fromkeys(steps, 0.0)
    for _ in range(TURNS):
        for name, step in steps.items():
            if spent[name] > SECONDS:
                continue
            begun = time.perf_counter()
            step()  # fills the caches again after the other heads
            start = time.perf_counter()
            step()
            done = time.perf_counter()
            times[name].append(done - start)
            spent[name] += done - begun
    return {name: statistics.median(values) for name, values in times.items()}


def peak_megabytes(dataset, kind):
    labels, mean, dim, *_ = DATASETS[dataset]
    step = stepper(
        hb.HolographicHead(HIDDEN, 200, 100, loss="query"), *sets(200, 3.0)
    )  # so that everything that loads once is loaded
    step()
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak starts again from what is resident now
    before = peak_memory_mb()
    step = stepper(heads(labels, dim)[kind](), *sets(labels, mean))
    for _ in range(3):
        step()
    return round(peak_memory_mb() - before, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    chosen = parser.parse_args()
    rows = []
    for dataset in chosen.dataset:
        labels, mean, dim, query_target, softmax_target = DATASETS[dataset]
        kinds = heads(labels, dim)
        peaks = {kind: run_alone(peak_megabytes, dataset, kind) for kind in kinds}
        seconds = median_seconds({kind: stepper(make(), *sets(labels, mean)) for kind, make in kinds.items()})
        speed = {kind: seconds["linear"] / took for kind, took in seconds.items()}
        targets = {"query": query_target, "softmax": softmax_target}
        rows.append(
            {
                "dataset": dataset,
                "labels": labels,
                "dim": dim,
                "ms": {kind: round(1e3 * took, 3) for kind, took in seconds.items()},
                "times_faster_than_linear": {kind: round(ratio, 2) for kind, ratio in speed.items()},
                "targets": targets,
                "reached": {kind: target is None or speed[kind] >= target for kind, target in targets.items()},
                "peak_megabytes": peaks,
            }
        )
    shown = Table("dataset", "labels", "dim", "head", "ms a step", "x linear", "target", "peak MB")
    for row in rows:
        for kind, took in row["ms"].items():
            ratio, peak = row["times_faster_than_linear"][kind], row["peak_megabytes"][kind]
            target = row["targets"].get(kind) or ""
            shown.add_row(
                row["dataset"], str(row["labels"]), str(row["dim"]), kind, *map(str, (took, ratio, target, peak))
            )
    Console(width=110).print(shown)
    print(json.dumps({"threads": torch.get_num_threads(), "batch": BATCH, "results": rows}))


if __name__ == "__main__":
    main()
