"""Predictions of a folder of Parquet files: rows a second of `holobind predict`, and with `--ray` of 1 and 2 workers.

    .venv/bin/python benchmarks/bench_batch.py [--files 16] [--rows 20000] [--workers 1 2]

Texts are drawn from 5,000 words, and have 500 labels. Every measurement is the command as a user runs it. "in all" has
the start of Python, and of Ray; "after the first files" counts rows and seconds from the time at which as many files
are written as there are workers. The plain command runs with one thread and with all; a worker of Ray has one thread.
Run it on an idle machine. The last line printed is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import holobind as hb

N_WORDS, N_LABELS, WORDS_PER_TEXT, TRAINING_ROWS = 5000, 500, 12, 5000


def make_texts(n, rng):
    """Texts whose first word says the label; other words are drawn by Zipf's law."""
    labels = rng.integers(0, N_LABELS, n)
    words = np.minimum(rng.zipf(1.3, (n, WORDS_PER_TEXT - 1)), N_WORDS - 1)
    texts = [" ".join([f"topic{label}", *(f"word{i}" for i in row)]) for label, row in zip(labels, words, strict=True)]
    return texts, labels


def measure(model, source, out, rows, threads=None, workers=None):
    """Run the command once."""
    environment = {**os.environ, "RAY_worker_niceness": "0"}  # Ray's workers are of low priority by default
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    ray = [] if workers is None else ["--ray", "--workers", str(workers)]
    command = [sys.executable, "-m", "holobind", "predict", str(model), str(source), "--out", str(out), *ray]
    began = time.time()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    written = sorted(file.stat().st_mtime for file in out.glob("*.parquet"))
    n_first = workers or 1
    later = len(written) - n_first
    spent = written[-1] - written[n_first - 1] if later > 0 else 0.0
    return {
        "rows a second, in all": round(rows * len(written) / (time.time() - began)),
        "rows a second, after the first files": round(rows * later / spent) if spent else None,
        "seconds until the first file": round(written[0] - began, 1),
        "seconds in all": round(time.time() - began, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a file")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="numbers of workers of Ray")
    options = parser.parse_args()
    rng, results = np.random.default_rng(0), {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        texts, labels = make_texts(TRAINING_ROWS, rng)
        model = place / "model.safetensors"
        hb.HolographicClassifier(text=True).fit(texts, [[f"label{label}"] for label in labels]).save(model)
        (place / "in").mkdir()
        for i in range(options.files):
            texts, _ = make_texts(options.rows, rng)
            table = pa.table({"id": np.arange(options.rows), "text": texts})
            pq.write_table(table, place / "in" / f"part-{i:03}.parquet")
        runs = {"plain, 1 thread": {"threads": 1}, "plain, all threads": {}}
        runs |= {f"Ray, {n} workers": {"workers": n} for n in options.workers}
        for run, how in runs.items():
            out = place / run.replace(" ", "-")
            results[run] = measure(model, place / "in", out, options.rows, **how)
            print(f"{run:20} {results[run]}", flush=True)
    print(json.dumps({"files": options.files, "rows of a file": options.rows, **results}))


if __name__ == "__main__":
    main()
