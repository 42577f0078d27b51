"""kNN search: the 30 training rows nearest to test rows, by `KnnIndex` (eight bits) and by scipy's float32 products.

    .venv/bin/python benchmarks/bench_knn.py [--data DIR] [--only bibtex ...] [--rows 2000]

It prints the queries a second of both, the best of three alternating passes, and how many of the 30 neighbours agree.
scipy multiplies batches of 256 queries and ranks by numpy's argpartition, on one thread; `KnnIndex` has torch's number
of threads. The last line printed is JSON.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from holobind_paper.datasets import data_folder
from rich.console import Console
from rich.table import Table

import holobind as hb
from holobind.data.csr import normalise_rows
from holobind.ridge_knn import KnnIndex

NAMES = ("bibtex", "delicious", "cooking-stackexchange", "tibkat-core-en")
K = 30


def search_by_scipy(rows, queries):
    neighbours, transposed = np.empty((queries.shape[0], K), np.int64), rows.T.tocsr()
    for first in range(0, queries.shape[0], 256):
        cosines = (queries[first : first + 256] @ transposed).toarray()
        neighbours[first : first + 256] = np.argpartition(-cosines, K, axis=1)[:, :K]
    return neighbours


def measure(folder, max_queries):
    dataset = hb.data.load(folder)
    rows, queries = normalise_rows(dataset.train.X), normalise_rows(dataset.test.X[:max_queries])
    started = time.perf_counter()
    index = KnnIndex(rows, np.ones(rows.shape[1], np.float32))
    build_seconds = time.perf_counter() - started
    methods = {"scipy": lambda: search_by_scipy(rows, queries), "eight bits": lambda: index.search(queries, K)[1]}
    found, seconds = {name: search() for name, search in methods.items()}, dict.fromkeys(methods, np.inf)
    for _ in range(3):
        for name, search in methods.items():
            started = time.perf_counter()
            search()
            seconds[name] = min(seconds[name], time.perf_counter() - started)
    agreement = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(*found.values(), strict=True)])
    return {
        "data": dataset.name,
        "rows": rows.shape[0],
        "scipy queries/s": round(queries.shape[0] / seconds["scipy"]),
        "eight bits queries/s": round(queries.shape[0] / seconds["eight bits"]),
        "ratio": round(seconds["scipy"] / seconds["eight bits"], 1),
        "same neighbours, %": round(100 * agreement, 1),
        "seconds to build": round(build_seconds, 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--only", nargs="+", default=list(NAMES))
    parser.add_argument("--rows", type=int, default=2000, help="queries, at most")
    options = parser.parse_args()
    results = [measure(options.data / name, options.rows) for name in options.only if (options.data / name).is_dir()]
    table = Table(*(results[0] if results else ()))
    for row in results:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else value for value in row.values()))
    Console(width=140).print(table)
    print(json.dumps({"threads": torch.get_num_threads(), "results": results}))


if __name__ == "__main__":
    main()
