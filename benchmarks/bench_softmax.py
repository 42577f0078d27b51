"""log sum exp over all labels and its gradient: the compiled pass of an orbit codebook beside torch's operations.

    .venv/bin/python benchmarks/bench_softmax.py [--labels 300000] [--dims 400 1024 3000] [--rows 4 5 8 16 64]

The least CPU time over --repeats, in turns, one thread by default; the first call, which compiles or loads, is not
counted. The error is the largest of an element of the gradient against float64, for both. The last line is JSON.
"""

import argparse
import json
import math
import time

import torch

import holobind as hb
from holobind.codebooks import _limits as limits


def result(codebook, v):
    v = v.clone().requires_grad_()
    codebook.log_sum_exp(v).sum().backward()
    return v.grad


def compare(labels, dim, rows, repeats):
    codebook = hb.OrbitCodebook(labels, dim)
    v = torch.randn(rows, dim, generator=torch.Generator().manual_seed(0))
    exact = result(codebook, v.double())
    seconds, error = {}, {}
    ways = {"compiled": 0, "torch": math.inf}
    for turn in range(repeats + 1):
        for way, limit in ways.items():
            limits.MIN_SCORES_FOR_COMPILED_SOFTMAX = limits.MIN_ROWS_FOR_COMPILED_SOFTMAX = limit
            began = time.process_time()
            grad = result(codebook, v)
            if turn:
                seconds[way] = min(seconds.get(way, math.inf), time.process_time() - began)
            error[way] = float((grad - exact).abs().max())
    return {
        "d": dim,
        "rows": rows,
        **{f"{way}, ms": round(1e3 * took, 2) for way, took in seconds.items()},
        "times as fast": round(seconds["torch"] / seconds["compiled"], 2),
        **{f"{way}, error": float(f"{size:.1e}") for way, size in error.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=300_000)
    parser.add_argument("--dims", type=int, nargs="+", default=[400, 1024, 2048, 3000, 4096])
    parser.add_argument("--rows", type=int, nargs="+", default=[4, 5, 8, 16, 64])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = []
    for dim in options.dims:
        for rows in options.rows:
            found.append(compare(options.labels, dim, rows, options.repeats))
            print(found[-1], flush=True)
    print(json.dumps({"labels": options.labels, "threads": options.threads, "results": found}))


if __name__ == "__main__":
    main()
