"""Two training processes against one: rows a second, and bytes moved in a step against the formula of docs/scaling.md.

    .venv/bin/python benchmarks/bench_distributed.py [--batch 512] [--steps 8] [--loss softmax query]

Every process has one thread, so that two processes have twice the cores of one. They train an FC network (512, 512)
with a holographic head on synthetic data with a tenth of the sizes of Amazon-670K. They communicate by gloo over the
loopback interface, whose byte counter gives what was moved; run the benchmark alone, because the traffic of other
programs counts as well. Two processes train with a first layer in each, and with one that they divide
(`TrainConfig.shard_features`). Then both processes predict the top 5 of 1,024 rows, first each for itself over all
labels, then distributed: each scores half of the labels. The last line printed is JSON.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

import holobind as hb
from holobind import metrics
from holobind._processes import ALONE, joined
from holobind.networks.sharded import join_shards
from holobind.training import loop

DATASET, SCALE = "amazon-670k", 0.1
WARM_UP_STEPS = 3
PREDICTED_ROWS = 1024


class EnoughError(Exception):
    """Enough training steps were timed."""


def bytes_received():
    """Bytes that came in over the loopback interface since the system started."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:"))


def work(batch_size, steps, loss, shard):
    """Train and predict in one of the processes; the first one prints what was measured."""
    torch.set_num_threads(1)
    split = hb.data.synthetic(DATASET, scale=SCALE).train
    fabric = loop.launch()
    network = hb.networks.FC(split.X.shape[1], (512, 512), shards=joined() if shard else ALONE)
    model = hb.Model(network, hb.HolographicHead(512, split.Y.shape[1], 1024, loss=loss), metrics.frequencies(split.Y))
    marks, touched, entries = [], [], []
    first_layer_rows, width = network.first.weight.shape
    examples = model.examples(split.X)
    make_batch = examples.batch
    world_size = fabric.world_size

    def counted_batch(index):
        marks.append((time.perf_counter(), bytes_received()))
        if len(marks) == steps + WARM_UP_STEPS + 1:  # the same step in every process
            raise EnoughError
        rows = make_batch(index)
        touched.append(len(rows.ids.unique()))
        entries.append(len(rows.ids))
        return rows

    examples.batch = counted_batch
    with suppress(EnoughError):
        config = hb.TrainConfig(batch_size=batch_size, validation_fraction=0.0, epochs=1000)
        loop.fit(model, examples, split.Y, config, fabric=fabric)
    join_shards(model)  # which `fit` does at its end
    model.eval()
    (began, before), (ended, after) = marks[WARM_UP_STEPS], marks[-1]
    dense = sum(p.numel() for p in model.parameters() if p is not model.network.first.weight)
    rows = float(np.mean(touched[WARM_UP_STEPS:]))
    sparse = world_size * rows * (4 * width + 8)
    if shard:
        sparse = 8 * width * batch_size + 12 * float(np.mean(entries[WARM_UP_STEPS:]))
    found = {
        "loss": loss,
        "processes": world_size,
        "first layer": "divided" if shard else "in every process",
        "rows a second": round(batch_size * steps / (ended - began)),
        "MB moved a step": round((after - before) / steps / 1e6, 3),
        "MB by the formula": round((world_size - 1) * (2 * 4 * dense + sparse) / 1e6, 3),
        "dense parameters": dense,
        "first-layer rows of a process": first_layer_rows,
        "first-layer rows touched by a process": round(rows),
        "MB that a dense first layer would move": round(
            (world_size - 1) * 2 * 4 * sum(p.numel() for p in model.parameters()) / 1e6
        ),
    }
    X = split.X[:PREDICTED_ROWS]
    for name, distributed in (("all labels", False), ("distributed labels", True)):
        model.top_k(X[:64], distributed=distributed)
        if world_size > 1:
            torch.distributed.barrier()
        began = time.perf_counter()
        model.top_k(X, distributed=distributed)
        found[f"rows predicted a second by each, {name}"] = round(X.shape[0] / (time.perf_counter() - began))
    if fabric.global_rank == 0:
        print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512, help="rows of a step, over all processes")
    parser.add_argument("--steps", type=int, default=8, help="steps that are timed")
    parser.add_argument("--loss", nargs="+", default=["softmax", "query"])
    parser.add_argument("--shard", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.batch, options.steps, options.loss[0], options.shard)
        return
    results = []
    for loss, (processes, shard) in itertools.product(options.loss, ((1, False), (2, False), (2, True))):
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        script = [__file__, "--work", "--batch", str(options.batch), "--steps", str(options.steps), "--loss", loss]
        script += ["--shard"] if shard else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *launcher, *script]
        done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
        results.append(json.loads(done.stdout.splitlines()[-1]))
        for name, value in results[-1].items():
            print(f"{name:52} {value if isinstance(value, str) else f'{value:,}'}")
        print()
    ratios = {}
    for name, place in (("two processes", 1), ("two processes, divided first layer", 2)):
        pairs = zip(options.loss, results[::3], results[place::3], strict=True)
        ratios[f"rows a second, {name} / one process"] = {
            loss: round(two["rows a second"] / one["rows a second"], 2) for loss, one, two in pairs
        }
    print(json.dumps({"batch": options.batch, "results": results, **ratios}))


if __name__ == "__main__":
    main()
