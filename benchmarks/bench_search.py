"""The top 5 of very many labels: orbit and random codebooks against the dense product and faiss, in one run.

    make bench-deps && .venv/bin/python benchmarks/bench_search.py [--shape 670091x3000 ...] [--batch 1 16 256]

All methods rank the vectors of the orbit codebook for the same random queries; the random codebook ranks its own. The
dense product and faiss use one matrix of L x d floats, 8 GB at 670,091 x 3000; faiss.knn is what IndexFlatIP.search
calls, without a copy of the matrix. Every round runs the methods in turn. A turn is one call that is not timed, because
the caches hold the data of the method before, and three timed calls, of which the fastest counts. A method that takes
more than a second runs once a round, and one that has used up its seconds skips the remaining rounds. Times are medians
over rounds. `identical`: the orbit's labels are those of the dense product, or, where two scores differ by less than
float32 rounding, its scores are. Targets compare with the faster of the two orders of the dense product. The last line
printed is JSON.
"""

import argparse
import json
import statistics
import time

import faiss
import torch
from rich.console import Console
from rich.table import Table

import holobind as hb

SHAPES = ("30938x400", "30938x3000", "205443x3000", "670091x3000")
K, ROUNDS, SECONDS = 5, 7, 5.0
TARGET_SPEEDUPS = {("205443x3000", 1): 60, ("205443x3000", 16): 60, ("670091x3000", 1): 60, ("670091x3000", 16): 40}
MAX_MEMORY_FRACTION = 0.001  # of the dense matrix, at d = 3000


def dense_table(book):
    table = torch.empty(book.n_labels, book.dim)
    for ids in torch.arange(book.n_labels).split(2000):
        table[ids[0] : ids[-1] + 1] = book.vectors(ids)
    return table


def identical(found, exact):
    (scores, ids), (wanted, labels) = found, exact
    return bool(torch.isclose(scores, wanted, atol=1e-4).all()) and bool(
        ((ids == labels) | (wanted.diff(dim=1, append=wanted[:, :1]).abs() < 1e-4)).all()
    )


def median_seconds(methods, v):
    """Median seconds of each method."""
    times = {name: [] for name in methods}
    spent = dict.fromkeys(methods, 0.0)
    for _ in range(ROUNDS):
        for name, search in methods.items():
            if spent[name] > SECONDS:
                continue
            turn = []
            for _ in range(4):
                start = time.perf_counter()
                search(v)
                turn.append(time.perf_counter() - start)
                if turn[-1] > 1:  # compared with a second, cold caches do not count
                    break
            time.sleep(0.1)  # the threads of one library spin for a while, which slows the next one
            spent[name] += sum(turn)
            times[name].append(min(turn[1:] or turn))
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", default=SHAPES)
    parser.add_argument("--batch", nargs="+", type=int, default=(1, 16, 256))
    parser.add_argument("--without", nargs="+", default=())
    chosen = parser.parse_args()
    rows = []
    for shape in chosen.shape:
        n, d = map(int, shape.split("x"))
        book, random = hb.OrbitCodebook(n, d), hb.RandomCodebook(n, d)
        table = dense_table(book)
        memory = book._drawn_conj_spectra.nbytes / table.nbytes
        methods = {
            "orbit": lambda v, book=book: book.top_k(v, K),
            "dense": lambda v, table=table: (v @ table.T).topk(K),
            "dense, labels first": lambda v, table=table: (table @ v.T).T.contiguous().topk(K),
            "faiss": lambda v, table=table: faiss.knn(v.numpy(), table.numpy(), K, metric=faiss.METRIC_INNER_PRODUCT),
            "random": lambda v, random=random: random.top_k(v, K),
        }
        methods = {name: search for name, search in methods.items() if name not in chosen.without}
        for batch in chosen.batch:
            v = torch.randn(batch, d, generator=torch.Generator().manual_seed(batch))
            seconds = median_seconds(methods, v)
            target = TARGET_SPEEDUPS.get((shape, batch))
            times_faster = min(seconds["dense"], seconds["dense, labels first"]) / seconds["orbit"]
            rows.append(
                {
                    "labels": n,
                    "dim": d,
                    "batch": batch,
                    "ms": {name: round(1e3 * took, 3) for name, took in seconds.items()},
                    "times_faster_than": {
                        name: round(took / seconds["orbit"], 1) for name, took in seconds.items() if name != "orbit"
                    },
                    "times_faster": round(times_faster, 1),
                    "target": target,
                    "reached": target is None or times_faster >= target,
                    "memory_of_dense": memory,
                    "memory_reached": d != 3000 or memory <= MAX_MEMORY_FRACTION,
                    "identical": identical(methods["orbit"](v), methods["dense"](v)),
                }
            )
        del table, methods
    names = "orbit", "dense", "dense, labels first", "faiss", "random"
    shown = Table("labels", "dim", "batch", *(f"{name}, ms" for name in names), "faster than dense", "target")
    for row in rows:
        ms = [row["ms"].get(name, "") for name in names]
        cells = row["labels"], row["dim"], row["batch"], *ms, f"{row['times_faster']:.1f}x", row["target"] or ""
        shown.add_row(*map(str, cells))
    Console(width=120).print(shown)
    print(json.dumps({"threads": torch.get_num_threads(), "k": K, "results": rows}))


if __name__ == "__main__":
    main()
