"""The closed-form encoder: products of sparse and dense matrices three ways, then whole fits with the choice of l2.

    .venv/bin/python benchmarks/bench_solve.py [--data ../shared/data] [--only bibtex ...] [--no-products]

A fit is one call of `ridge` with no options on rows of length 1, in the dimension that `dimension` gives; its time has
the choice of l2 in it, and compiling too if nothing is compiled yet. The test part is only scored, at the end.
The last line printed is JSON.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import sparse
from sklearn.preprocessing import normalize

import holobind as hb
from holobind import metrics
from holobind.ridge_knn._linalg import product
from holobind.ridge_knn.ridge import apply, default_dim, solve_ridge

NAMES = ["bibtex", "delicious", "cooking-stackexchange", "tibkat-core-en"]
BARS = {
    "bibtex": {"P@1": 64.5, "P@5": 29.0, "PSP@1": 50.0, "wall": 10},
    "cooking-stackexchange": {"P@1": 72.5, "wall": 10},
    "tibkat-core-en": {"P@1": 43.8, "wall": 40},
}


def milliseconds(work):
    work()
    took = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return round(1000 * statistics.median(took), 1)


def products(X, widths=(64, 1024)):
    """X V and X' V for dense V of some widths."""
    rows = []
    for which, A in (("X", X), ("X'", sparse.csr_matrix(X.T))):
        pointers, ids = (torch.from_numpy(part.astype(np.int64)) for part in (A.indptr, A.indices))
        T = torch.sparse_csr_tensor(pointers, ids, torch.from_numpy(A.data), A.shape)
        for width in widths:
            V = np.random.default_rng(0).normal(size=(A.shape[1], width)).astype(np.float32)
            W = torch.from_numpy(V)
            rows.append(
                {
                    "matrix": which,
                    "columns": width,
                    "scipy": milliseconds(lambda A=A, V=V: A @ V),
                    "torch": milliseconds(lambda T=T, W=W: T @ W),
                    "holobind": milliseconds(lambda A=A, V=V: product(A, V)),
                }
            )
    return rows


def fit(name, dataset, train, test):
    book = hb.OrbitCodebook(dataset.n_labels, default_dim(dataset.n_labels))
    cpu = time.process_time()
    found = solve_ridge(train, dataset.train.Y, book)
    cpu = time.process_time() - cpu
    top = book.top_k(apply(test, found.weights, found.bias), 5)[1].numpy()
    precision = metrics.precision_at_k(dataset.test.Y, top)
    scored = metrics.psp_at_k(dataset.test.Y, top, metrics.propensity(dataset.train.Y))
    row = {"data": name, "dim": book.dim, "l2": round(found.l2, 3), "system": found.system}
    row |= {"iterations": found.iterations, "residual": float(f"{found.residual:.1e}")}
    row |= {"wall": round(found.seconds, 1), "cpu": round(cpu, 1)}
    row |= {f"P@{k}": round(float(precision[k - 1]), 2) for k in (1, 3, 5)}
    row |= {f"PSP@{k}": round(float(scored[k - 1]), 2) for k in (1, 3, 5)}
    row["missed"] = [
        bar for bar, limit in BARS.get(name, {}).items() if (row[bar] > limit if bar == "wall" else row[bar] < limit)
    ]
    return row


def show(title, rows):
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=160).print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", default=NAMES)
    parser.add_argument("--no-products", action="store_true")
    options = parser.parse_args()
    fits, products_of = [], {}
    for name in options.only:
        dataset = hb.data.load(options.data / name)
        train, test = (normalize(part.X) for part in (dataset.train, dataset.test))
        fits.append(fit(name, dataset, train, test))
        if not options.no_products and name == NAMES[-1]:
            products_of[name] = products(sparse.csr_matrix(train))
            show(f"milliseconds a product, {name}", products_of[name])
    show("whole fits, test part", fits)
    print(json.dumps({"threads": torch.get_num_threads(), "fits": fits, "products": products_of}))


if __name__ == "__main__":
    main()
