"""Clean-up among very many names: the orbit's FFT against the product with stored vectors, in one run.

    .venv/bin/python benchmarks/bench_cleanup.py

A time is the fastest of several calls in turn. The last line printed is JSON.
"""

import json
import time

import torch

import holobind as hb

DIM = 1024
ROUNDS = 7


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(n):
    vocabulary = hb.LargeVocabulary((f"name{i}" for i in range(n)), DIM)
    statement = vocabulary.parse(f"name7*name{n - 1} + name12*name34")
    stored = vocabulary.vectors
    answer = hb.unbind(statement, vocabulary["name7"])
    assert vocabulary.ask(statement, "name7")[0].name == f"name{n - 1}"
    calls = {"orbit": lambda: vocabulary.ask(statement, "name7"), "stored": lambda: torch.topk(stored @ answer, 5)}
    rounds = [{name: seconds(call) for name, call in calls.items()} for _ in range(ROUNDS)]
    fastest = {name: 1e3 * min(times[name] for times in rounds) for name in calls}
    megabytes = stored.numel() * 4 / 1e6
    orbit, dense = f"{fastest['orbit']:.2f} ms", f"{fastest['stored']:.2f} ms and {megabytes:,.0f} MB"
    print(f"{n:>9,} names: orbit {orbit}, stored vectors {dense}")
    return {"names": n, "orbit_ms": fastest["orbit"], "stored_ms": fastest["stored"], "stored_megabytes": megabytes}


def main():
    rows = [measure(n) for n in (10_000, 100_000, 1_000_000)]
    print(json.dumps({"dim": DIM, "threads": torch.get_num_threads(), "rows": rows}))


if __name__ == "__main__":
    main()
