"""The 30 training rows nearest to test rows: cosines in eight bits (`networks.near`) beside float32 products by scipy.

    .venv/bin/python benchmarks/bench_near.py [--data ../shared/data] [--only bibtex ...] [--rows 2000]

Rows a second of both, the best of three passes each in turn, and how many of the 30 are the same. scipy's product is
cut into portions of 256 rows and ranked by numpy's argpartition, on one thread; ours has torch's number. The last line
printed is JSON.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind.data.csr import normalise_rows
from holobind.ridge_knn.knn_index import KnnIndex

NAMES = ("bibtex", "delicious", "cooking-stackexchange", "tibkat-core-en")
K = 30


def by_scipy(memory, rows):
    found, across = np.empty((rows.shape[0], K), np.int64), memory.T.tocsr()
    for first in range(0, rows.shape[0], 256):
        cosines = (rows[first : first + 256] @ across).toarray()
        found[first : first + 256] = np.argpartition(-cosines, K, axis=1)[:, :K]
    return found


def measured(folder, most):
    dataset = hb.data.load(folder)
    memory, rows = normalise_rows(dataset.train.X), normalise_rows(dataset.test.X[:most])
    began = time.perf_counter()
    near = KnnIndex(memory, np.ones(memory.shape[1], np.float32))
    built = time.perf_counter() - began
    ways = {"scipy": lambda: by_scipy(memory, rows), "eight bits": lambda: near(rows, K)[1]}
    found, took = {name: way() for name, way in ways.items()}, dict.fromkeys(ways, np.inf)
    for _ in range(3):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            took[name] = min(took[name], time.perf_counter() - began)
    same = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(*found.values(), strict=True)])
    return {
        "data": dataset.name,
        "rows": memory.shape[0],
        "scipy rows/s": round(rows.shape[0] / took["scipy"]),
        "eight bits rows/s": round(rows.shape[0] / took["eight bits"]),
        "ratio": round(took["scipy"] / took["eight bits"], 1),
        "the same of 30, %": round(100 * same, 1),
        "seconds to build": round(built, 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--only", nargs="+", default=list(NAMES))
    parser.add_argument("--rows", type=int, default=2000)
    chosen = parser.parse_args()
    results = [measured(chosen.data / name, chosen.rows) for name in chosen.only if (chosen.data / name).is_dir()]
    shown = Table(*(results[0] if results else ()))
    for row in results:
        shown.add_row(*(f"{value:,}" if isinstance(value, int | float) else value for value in row.values()))
    Console(width=140).print(shown)
    print(json.dumps({"threads": torch.get_num_threads(), "results": results}))


if __name__ == "__main__":
    main()
