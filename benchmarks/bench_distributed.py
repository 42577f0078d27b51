"""Two processes beside one: rows a second, and bytes moved a step against what docs/scaling.md says they should be.

    .venv/bin/python benchmarks/bench_distributed.py [--batch 512] [--steps 8] [--loss softmax query]

Every process has one thread, so that two of them have twice the processor of one. They train an FC network (512, 512)
with a holographic head on synthetic data in the shape of Amazon-670K, a tenth of it, and talk by gloo over the loopback
interface, whose counter says what was moved (run it alone: others' traffic counts, too). Then both predict the top 5 of
as many rows, each alone and together, each with half of the labels. The last line printed is JSON.
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
from holobind.training import loop as train

SET, SCALE = "amazon-670k", 0.1


class Enough(Exception):  # noqa: N818
    pass


def moved():
    """Bytes that came in over the loopback interface so far."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:"))


def work(batch, steps, loss):
    torch.set_num_threads(1)
    part = hb.data.synthetic(SET, scale=SCALE).train
    network = hb.networks.FC(part.X.shape[1], (512, 512))
    model = hb.Model(network, hb.HolographicHead(512, part.Y.shape[1], 1024, loss=loss), metrics.frequencies(part.Y))
    fabric = train.launch()
    marks, touched = [], []
    examples = model.examples(part.X)
    cut = examples.batch
    world = fabric.world_size

    def counted(index):
        marks.append((time.perf_counter(), moved()))
        if len(marks) == steps + 4:  # the same step in every process
            raise Enough
        rows = cut(index)
        touched.append(len(rows.ids.unique()))
        return rows

    examples.batch = counted
    with suppress(Enough):
        plan = train.TrainConfig(batch_size=batch, validation=0.0, epochs=1000)
        train.fit(model, examples, part.Y, plan, fabric=fabric)
    model.eval()
    (began, before), (ended, after) = marks[3], marks[-1]
    dense = sum(p.numel() for p in model.parameters() if p is not model.network.first.weight)
    rows = float(np.mean(touched[4:]))
    width = model.network.first.weight.shape[1]
    found = {
        "loss": loss,
        "processes": world,
        "rows a second": round(batch * steps / (ended - began)),
        "MB moved a step": round((after - before) / steps / 1e6, 3),
        "MB by the formula": round((world - 1) * (2 * 4 * dense + world * rows * (4 * width + 8)) / 1e6, 3),
        "dense parameters": dense,
        "rows touched by a process": round(rows),
        "a dense first layer would move MB": round(
            (world - 1) * 2 * 4 * sum(p.numel() for p in model.parameters()) / 1e6
        ),
    }
    X = part.X[:1024]
    for name, together in (("alone", False), ("together", True)):
        model.top_k(X[:64], distributed=together)
        if world > 1:
            torch.distributed.barrier()
        began = time.perf_counter()
        model.top_k(X, distributed=together)
        found[f"rows predicted a second by each, {name}"] = round(X.shape[0] / (time.perf_counter() - began))
    if fabric.global_rank == 0:
        print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--loss", nargs="+", default=["softmax", "query"])
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.batch, chosen.steps, chosen.loss[0])
        return
    results = []
    for loss, processes in itertools.product(chosen.loss, (1, 2)):
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        mine = [__file__, "--work", "--batch", str(chosen.batch), "--steps", str(chosen.steps), "--loss", loss]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *launch, *mine]
        done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
        results.append(json.loads(done.stdout.splitlines()[-1]))
        for name, value in results[-1].items():
            print(f"{name:45} {value if isinstance(value, str) else f'{value:,}'}")
        print()
    pairs = zip(chosen.loss, results[::2], results[1::2], strict=True)
    faster = {loss: round(two["rows a second"] / one["rows a second"], 2) for loss, one, two in pairs}
    print(json.dumps({"batch": chosen.batch, "results": results, "two processes are faster by": faster}))


if __name__ == "__main__":
    main()
