"""One update of a sparse first layer: dense Adam, torch's SparseAdam, and RowAdam by torch's operations and compiled.

    .venv/bin/python benchmarks/bench_optimiser.py [--shape tibkat delicious-200k] [--precision]

The shapes are those of tibkat-core-en (24,459 features x 512, 30 features a row) and of Delicious-200K's features
(782,585 x 512) with 76 features a row, at batch 256; features follow a power law. Each contender updates weights of its
own from the same gradients, one contender after the other; a time is the median over updates. The dense optimiser gets
its gradient dense; making it so is not counted. Peak memory is that of a process of its own for each: weights, gradient
and what the optimiser keeps. `step` is a whole training step of an FC network (512, 512) with a holographic head at
these shapes, in which the update is one part. `--precision` compares such steps in 32 bits with bf16-mixed.
The last line printed is JSON.
"""

import argparse
import json
import statistics
import time

import numpy as np
import torch
from memory import alone, high_water
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind import metrics
from holobind.data.batches import Rows
from holobind.networks import FC
from holobind.training import loop as train
from holobind.training import optimiser
from holobind.training.config import PRECISIONS

#                  features, features a row, labels, dim, rounds
SHAPES = {"tibkat": (24459, 30, 17569, 1024, 15), "delicious-200k": (782585, 76, 205443, 1024, 7)}
BATCH, WIDTH = 256, 512
NAMES = ("dense Adam", "SparseAdam", "RowAdam by operations", "RowAdam compiled")


def rows_of(features, each, seed):
    """The features of a batch, with a power law as in texts."""
    generator = np.random.default_rng(seed)
    drawn = 10 * ((features + 10) / 10) ** generator.random(BATCH * each) - 10
    order = np.random.default_rng(0).permutation(features)
    return torch.from_numpy(order[np.minimum(drawn.astype(np.int64), features - 1)])


def gradient(features, each, seed):
    ids = rows_of(features, each, seed).unique()
    values = torch.randn(len(ids), WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.sparse_coo_tensor(ids[None], values, (features, WIDTH), is_coalesced=True, check_invariants=False)


def updater(name, features):
    """A function that applies a sparse gradient, and how many seconds that took."""
    weight = torch.nn.Parameter(torch.zeros(features, WIDTH))
    if name == "dense Adam":
        adam = torch.optim.Adam([weight], fused=True)
        room = torch.zeros(features, WIDTH)
    else:
        adam = torch.optim.SparseAdam([weight]) if name == "SparseAdam" else optimiser.RowAdam([weight])

    def update(grad):
        if name == "dense Adam":
            room.zero_()
            room[grad.indices()[0]] = grad.values()
            weight.grad = room
        else:
            weight.grad = grad
        began = time.perf_counter()
        if name == "RowAdam by operations":
            kept, optimiser.compiled = optimiser.compiled, optimiser.by_operations
            adam.step()
            optimiser.compiled = kept
        else:
            adam.step()
        return time.perf_counter() - began

    return update


def race(shape):
    features, each, _, _, rounds = SHAPES[shape]
    grads = [gradient(features, each, seed) for seed in range(4)]
    times = {}
    for name in NAMES:  # one at a time in memory; the large one would need four times 5 GB otherwise
        update = updater(name, features)
        for grad in grads[:2]:
            update(grad)
        times[name] = [update(grads[i % 4]) for i in range(rounds)]
        del update
    return {name: statistics.median(took) for name, took in times.items()}, len(grads[0].values())


def made(shape):
    features, _, labels, dim, _ = SHAPES[shape]
    seen = metrics.Frequencies(np.ones(labels, np.int64), 100)
    return hb.Model(FC(features, (WIDTH, WIDTH)), hb.HolographicHead(WIDTH, labels, dim), seen)


def steps(shape, precision="32-true", rounds=7):
    """Seconds of a whole training step, and of its parts."""
    features, each, labels, _, _ = SHAPES[shape]
    model = made(shape)
    found = train.optimisers(model, train.TrainConfig())
    fabric = train.launch(precision)
    wrapped, *steppers = fabric.setup(model, *found)
    offsets = torch.arange(0, BATCH * each, each)
    values = torch.full((BATCH * each,), each**-0.5)
    wanted = torch.randint(labels, (BATCH * 3,), generator=torch.Generator().manual_seed(0))
    times = []
    for i in range(rounds + 2):
        rows = Rows(rows_of(features, each, i), offsets, values)
        marks = [time.perf_counter()]
        loss = wrapped(rows, wanted, torch.arange(0, BATCH * 3, 3))
        marks.append(time.perf_counter())
        fabric.backward(loss)
        train.clip(model.parameters(), 1.0)
        marks.append(time.perf_counter())
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad()
        marks.append(time.perf_counter())
        times.append([*np.diff(marks), marks[-1] - marks[0]])
    middle = np.median(times[2:], axis=0)
    return dict(zip(("forward", "backward", "update", "step"), (round(1e3 * float(t), 2) for t in middle), strict=True))


def peak(shape, name):
    before = high_water()
    if name == "step":
        steps(shape, rounds=2)
    else:
        update = updater(name, SHAPES[shape][0])
        for seed in range(2):
            update(gradient(*SHAPES[shape][:2], seed))
    return round(high_water() - before)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--precision", action="store_true")
    chosen = parser.parse_args()
    results = []
    for shape in chosen.shape:
        if chosen.precision:
            results.append({"shape": shape, "ms": {p: steps(shape, p) for p in PRECISIONS}})
            continue
        seconds, touched = race(shape)
        results.append(
            {
                "shape": shape,
                "features": SHAPES[shape][0],
                "rows touched": touched,
                "ms": {name: round(1e3 * took, 2) for name, took in seconds.items()},
                "times faster than dense": {n: round(seconds["dense Adam"] / t, 1) for n, t in seconds.items()},
                "peak MB": {name: alone(peak, shape, name) for name in (*NAMES, "step")},
                "step ms": steps(shape),
            }
        )
    if not chosen.precision:
        shown = Table("shape", "optimiser", "ms an update", "x dense", "peak MB")
        for row in results:
            for name, took in row["ms"].items():
                shown.add_row(
                    row["shape"], name, *map(str, (took, row["times faster than dense"][name], row["peak MB"][name]))
                )
        Console(width=110).print(shown)
    print(json.dumps({"threads": torch.get_num_threads(), "batch": BATCH, "results": results}))


if __name__ == "__main__":
    main()
