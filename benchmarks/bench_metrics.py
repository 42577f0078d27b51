"""Seconds to compute all metrics of 5,000 points and of a million points, with 5 ranked labels each.

    .venv/bin/python benchmarks/bench_metrics.py

Each time is the minimum of three runs of `holobind.metrics.evaluate`, with propensities and bands, and has a limit.
The last line printed is JSON.
"""

import json
import time

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array

from holobind import metrics

CASES = {"5,000 points": (5_000, 3_993, 0.1), "1,000,000 points": (1_000_000, 670_091, 10.0)}


def case(points, labels):
    """Label sets of about 5.45 labels, and rankings of which about a third are hits."""
    generator = np.random.default_rng(0)
    sizes = 1 + generator.poisson(4.45, points)
    row = np.repeat(np.arange(points, dtype=np.int64), sizes)
    keys = np.unique(row * labels + (labels * generator.random(len(row)) ** 3).astype(np.int64))
    Y = csr_array((np.ones(len(keys), np.int32), np.divmod(keys, labels)), shape=(points, labels))
    # Five distinct labels, one from each fifth of the labels. The first true label replaces that of its fifth.
    fifth = labels // 5
    top = generator.integers(0, fifth, (points, 5)) + fifth * np.arange(5)
    first = Y.indices[Y.indptr[:-1]]
    top[np.arange(points), np.minimum(first // fifth, 4)] = first
    return Y, top


def main():
    table = Table("case", "seconds", "limit", "")
    results = {}
    for name, (points, labels, limit) in CASES.items():
        Y, top = case(points, labels)
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            metrics.evaluate(Y, top, Y)
            seconds.append(time.perf_counter() - start)
        results[name] = {"seconds": min(seconds), "limit": limit, "reached": min(seconds) <= limit}
        table.add_row(name, f"{min(seconds):.3f}", f"{limit}", "reached" if min(seconds) <= limit else "MISSED")
    Console().print(table)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
