"""A training step with the full softmax over up to ten million labels, and a run at three million that learns.

    .venv/bin/python benchmarks/bench_three_million.py [--labels 10000 100000 ...] [--steps 9]
    .venv/bin/python benchmarks/bench_three_million.py --learn --minutes 50

A step is forward, loss over all labels, backward and Adam (fused) of a head of 512 x 3000, on random activations, batch
16, five labels a row. Beside it are the same head without the compiled softmax ("by torch") and `nn.Linear`, where its
weights, gradient and moments fit 4 GB. Times are the median over the steps, and the least CPU time of a step, which
other processes disturb less (`--threads 1`). Peak memory is measured in a process of its own: the maximum of the
resident memory during three steps, less what was resident before the head was made.

--learn trains a network from scratch: a bag of eight features (of 200,000) for each label, of which a row shows five
among five random ones; labels follow a power law (probability 1 / rank). P@1 is measured on new rows, beside the
frequency of the most frequent label, which a model that learned nothing reaches. The last line printed is JSON.
"""

import argparse
import json
import math
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from memory import peak_memory_mb, run_alone

import holobind as hb
from holobind.codebooks import _limits as limits
from holobind.networks import SparseBatch, SparseLinear
from holobind.training.optimiser import optimisers

HIDDEN, DIM, BATCH, LABELS_A_ROW = 512, 3000, 16, 5
LABELS = (10_000, 100_000, 670_091, 3_000_000, 10_000_000)
MIN_SCORES = limits.MIN_SCORES_FOR_COMPILED_SOFTMAX
MAX_LINEAR_LABELS = (4 << 30) // (4 * 4 * (HIDDEN + 1))  # weights, gradient and two moments of float32
FEATURES, SHOWN, NOISE, OF_A_LABEL, LEARN_BATCH, TEST_ROWS = 200_000, 5, 5, 8, 32, 512


def stepper(kind, labels):
    linear = kind == "linear"
    head = hb.LinearHead(HIDDEN, labels, "softmax") if linear else hb.HolographicHead(HIDDEN, labels, DIM)
    limits.MIN_SCORES_FOR_COMPILED_SOFTMAX = math.inf if kind == "by torch" else MIN_SCORES
    optimiser = torch.optim.Adam(head.parameters(), fused=True)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, HIDDEN, generator=generator)
    ids = torch.randint(labels, (BATCH * LABELS_A_ROW,), generator=generator)
    offsets = torch.arange(0, len(ids), LABELS_A_ROW)

    def step():
        optimiser.zero_grad()
        head.loss(x, ids, offsets).backward()
        optimiser.step()

    return step


def seconds(kind, labels, n):
    """Median of the time of a step, and the least CPU time."""
    step, times, cpu = stepper(kind, labels), [], []
    for _ in range(n + 2):
        began, used = time.perf_counter(), time.process_time()
        step()
        times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return statistics.median(times[2:]), min(cpu[2:])


def peak_megabytes(kind, labels):
    stepper(kind, 200 if kind == "linear" else -(-MIN_SCORES // BATCH))()  # so that all that loads once is loaded
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak starts again from what is resident now
    before = peak_memory_mb()
    step = stepper(kind, labels)
    for _ in range(3):
        step()
    return round(peak_memory_mb() - before, 1)


def rows(n, labels, rng):
    """Labels by a power law, and their features: some of the label's own, and noise."""
    label = np.minimum(np.exp(rng.random(n) * np.log(labels + 1)).astype(np.int64) - 1, labels - 1)  # P ~ 1 / rank
    which = np.argsort(rng.random((n, OF_A_LABEL)), 1)[:, :SHOWN]
    own = (label[:, None] * 2_654_435_761 + which * 40_503 + (label[:, None] >> 7) * 97) % FEATURES
    ids = np.concatenate([own, rng.integers(FEATURES, size=(n, NOISE))], 1)
    values = torch.full((ids.size,), ids.shape[1] ** -0.5)
    offsets = torch.arange(0, ids.size, ids.shape[1])
    return torch.from_numpy(label), SparseBatch(torch.from_numpy(ids.ravel()), offsets, values)


def learn(labels, minutes, max_steps):
    first = SparseLinear(FEATURES, HIDDEN, scale=(3 / HIDDEN) ** 0.5)
    head = hb.HolographicHead(HIDDEN, labels, DIM, seed=0)
    model = torch.nn.ModuleList([first, head])
    config = hb.TrainConfig(learning_rate=1e-3, feature_learning_rate=1e-2)
    found = optimisers(model, config)
    rng, began, used, step = np.random.default_rng(0), time.perf_counter(), time.process_time(), 0
    while step < max_steps and time.perf_counter() - began < 60 * minutes:
        done = max(step / max_steps, (time.perf_counter() - began) / (60 * minutes))
        for optimiser in found:
            for group in optimiser.param_groups:
                group["lr"] = config.schedule(done) * optimiser.defaults["lr"]
        label, batch = rows(LEARN_BATCH, labels, rng)
        loss = head.loss(torch.relu(first(batch)), label)
        loss.backward()
        for optimiser in found:
            optimiser.step()
            optimiser.zero_grad()
        step += 1
        if step % 50 == 0:
            print(f"step {step}: loss {float(loss.detach()):.3f}, {time.process_time() - used:.0f} CPU s", flush=True)
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    model.eval()
    label, batch = rows(TEST_ROWS, labels, np.random.default_rng(1))
    with torch.inference_mode():
        best = head.top_k(torch.relu(first(batch)), 1)[1][:, 0]
    counts = np.log(labels + 1)
    return {
        "labels": labels,
        "steps": step,
        "batch": LEARN_BATCH,
        "P@1": round(100 * float((best == label).float().mean()), 2),
        "P@1 by frequency": round(100 * float(np.log(2) / counts), 2),
        "seconds": round(wall),
        "CPU seconds": round(cpu),
        "peak MB of the process": round(peak_memory_mb()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=list(LABELS))
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--learn", action="store_true")
    parser.add_argument("--minutes", type=float, default=50.0)
    parser.add_argument("--max-steps", type=int, default=4000)
    parser.add_argument("--learn-labels", type=int, default=3_000_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.learn:
        print(json.dumps(learn(options.learn_labels, options.minutes, options.max_steps)))
        return
    found = []
    for labels in options.labels:
        for kind in ("holographic", "by torch", "linear"):
            if kind == "linear" and labels > MAX_LINEAR_LABELS:
                continue
            took, cpu = seconds(kind, labels, options.steps)
            peak = run_alone(peak_megabytes, kind, labels)
            row = {"labels": labels, "head": kind, "seconds": round(took, 4), "CPU seconds": round(cpu, 4)}
            found.append(row | {"peak MB": peak})
            print(f"{labels:12,} {kind:12s} {took:8.4f} s {cpu:8.4f} CPU s {peak:8.1f} MB", flush=True)
    print(json.dumps({"threads": options.threads, "batch": BATCH, "dim": DIM, "hidden": HIDDEN, "steps": found}))


if __name__ == "__main__":
    main()
