"""Time of one update of a sparse first layer: dense Adam, torch's SparseAdam, and RowAdam in torch and compiled.

    .venv/bin/python benchmarks/bench_optimiser.py [--shape tibkat delicious-200k] [--precision]

The shapes are those of tibkat-core-en (24,459 features x 512, 30 features a row) and of Delicious-200K's features
(782,585 x 512, 76 features a row), in batches of 256; feature frequencies follow a power law. Each optimiser updates
weights of its own from the same gradients, one optimiser after the other; a time is the median over updates. Dense
Adam gets a dense gradient; converting it is not timed. Peak memory is that of a separate process per optimiser:
weights, gradient and optimiser state. `step` is a whole training step of an FC network (512, 512) with a holographic
head at the same shape, of which the update is one stage. `--precision` compares such steps in 32 bits with bf16-mixed
instead. The last line printed is JSON.
"""

import argparse
import json
import statistics
import time
from typing import get_args

import numpy as np
import torch
from memory import peak_memory_mb, run_alone
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind import metrics
from holobind.data.batches import SparseBatch
from holobind.networks import FC
from holobind.training import loop, optimiser
from holobind.training.config import Precision

# Features, features a row, labels, dimensions of the head's output, timed updates.
SHAPES = {"tibkat": (24459, 30, 17569, 1024, 15), "delicious-200k": (782585, 76, 205443, 1024, 7)}
BATCH, WIDTH = 256, 512
OPTIMISERS = ("dense Adam", "SparseAdam", "RowAdam by operations", "RowAdam compiled")


def feature_ids(features, each, seed):
    """Feature ids of a batch; their frequencies follow a power law, as in texts."""
    generator = np.random.default_rng(seed)
    drawn = 10 * ((features + 10) / 10) ** generator.random(BATCH * each) - 10
    order = np.random.default_rng(0).permutation(features)
    return torch.from_numpy(order[np.minimum(drawn.astype(np.int64), features - 1)])


def gradient(features, each, seed):
    ids = feature_ids(features, each, seed).unique()
    values = torch.randn(len(ids), WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.sparse_coo_tensor(ids[None], values, (features, WIDTH), is_coalesced=True, check_invariants=False)


def updater(name, features):
    """A function that applies a sparse gradient and returns the seconds of the update."""
    weight = torch.nn.Parameter(torch.zeros(features, WIDTH))
    if name == "dense Adam":
        adam = torch.optim.Adam([weight], fused=True)
        dense_grad = torch.zeros(features, WIDTH)
    else:
        adam = torch.optim.SparseAdam([weight]) if name == "SparseAdam" else optimiser.RowAdam([weight])

    def update(grad):
        if name == "dense Adam":
            dense_grad.zero_()
            dense_grad[grad.indices()[0]] = grad.values()
            weight.grad = dense_grad
        else:
            weight.grad = grad
        began = time.perf_counter()
        if name == "RowAdam by operations":
            compiled, optimiser.update_compiled = optimiser.update_compiled, optimiser.update_by_operations
            adam.step()
            optimiser.update_compiled = compiled
        else:
            adam.step()
        return time.perf_counter() - began

    return update


def race(shape):
    """Median seconds of an update by each optimiser, and how many rows of the weights a batch touches."""
    features, each, _, _, rounds = SHAPES[shape]
    grads = [gradient(features, each, seed) for seed in range(4)]
    times = {}
    for name in OPTIMISERS:  # one at a time, because four at the larger shape need 20 GB
        update = updater(name, features)
        for grad in grads[:2]:
            update(grad)
        times[name] = [update(grads[i % 4]) for i in range(rounds)]
        del update
    return {name: statistics.median(took) for name, took in times.items()}, len(grads[0].values())


def make_model(shape):
    features, _, labels, dim, _ = SHAPES[shape]
    frequencies = metrics.Frequencies(np.ones(labels, np.int64), 100)
    return hb.Model(FC(features, (WIDTH, WIDTH)), hb.HolographicHead(WIDTH, labels, dim), frequencies)


def time_steps(shape, precision="32-true", rounds=7):
    """Median milliseconds of a whole training step and of its three stages."""
    features, each, labels, _, _ = SHAPES[shape]
    model = make_model(shape)
    optimisers = loop.optimisers(model, hb.TrainConfig().resolve(BATCH))
    fabric = loop.launch(precision)
    wrapped, *steppers = fabric.setup(model, *optimisers)
    offsets = torch.arange(0, BATCH * each, each)
    values = torch.full((BATCH * each,), each**-0.5)
    targets = torch.randint(labels, (BATCH * 3,), generator=torch.Generator().manual_seed(0))
    times = []
    for i in range(rounds + 2):
        batch = SparseBatch(feature_ids(features, each, i), offsets, values)
        marks = [time.perf_counter()]
        loss = wrapped(batch, targets, torch.arange(0, BATCH * 3, 3))
        marks.append(time.perf_counter())
        fabric.backward(loss)
        loop.clip_gradients(model.parameters(), 1.0)
        marks.append(time.perf_counter())
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad()
        marks.append(time.perf_counter())
        times.append([*np.diff(marks), marks[-1] - marks[0]])
    middle = np.median(times[2:], axis=0)
    return dict(zip(("forward", "backward", "update", "step"), (round(1e3 * float(t), 2) for t in middle), strict=True))


def peak(shape, name):
    """Megabytes that an optimiser's update, or a whole step, adds to the memory of this process."""
    before = peak_memory_mb()
    if name == "step":
        time_steps(shape, rounds=2)
    else:
        update = updater(name, SHAPES[shape][0])
        for seed in range(2):
            update(gradient(*SHAPES[shape][:2], seed))
    return round(peak_memory_mb() - before)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--precision", action="store_true", help="compare 32 bits with bf16-mixed")
    options = parser.parse_args()
    results = []
    for shape in options.shape:
        if options.precision:
            results.append({"shape": shape, "ms": {p: time_steps(shape, p) for p in get_args(Precision)}})
            continue
        seconds, touched = race(shape)
        results.append(
            {
                "shape": shape,
                "features": SHAPES[shape][0],
                "rows touched": touched,
                "ms": {name: round(1e3 * took, 2) for name, took in seconds.items()},
                "times faster than dense": {n: round(seconds["dense Adam"] / t, 1) for n, t in seconds.items()},
                "peak MB": {name: run_alone(peak, shape, name) for name in (*OPTIMISERS, "step")},
                "step ms": time_steps(shape),
            }
        )
    if not options.precision:
        shown = Table("shape", "optimiser", "ms an update", "times as fast as dense", "peak MB")
        for row in results:
            for name, took in row["ms"].items():
                shown.add_row(
                    row["shape"], name, *map(str, (took, row["times faster than dense"][name], row["peak MB"][name]))
                )
        Console(width=110).print(shown)
    print(json.dumps({"threads": torch.get_num_threads(), "batch": BATCH, "results": results}))


if __name__ == "__main__":
    main()
