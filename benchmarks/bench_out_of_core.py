"""The closed form in little memory, on several processes, and with ever more rows: CPU seconds and peak memory.

    .venv/bin/python benchmarks/bench_out_of_core.py --data ../shared/data/yso-en --memory none 2GB --processes 1 2
    .venv/bin/python benchmarks/bench_out_of_core.py --curve 100000 300000 1000000 --plot docs/figures/rows.png

The first form runs `holobind train DATA --no-text` in new processes, one for each memory with all threads, and then
with one thread in each of several processes as torchrun starts them; it reports what the system counted for each
process: CPU seconds, wall time and peak resident memory. Scores of two models are compared on 2,000 test rows. The
second form draws rows of 76 features out of 1,000,000 and of 5 labels out of 670,091 into files, and trains the ridge
regression with a dim of 64 in a memory of 2 GB (the kNN step and label trees do not fit there). The last line is JSON.
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
from memory import peak_memory_mb, run_alone

FEATURES, LABELS, ROW_FEATURES, ROW_LABELS, DIM = 1_000_000, 670_091, 76, 5, 64
COMPARED_ROWS, CHUNK_ROWS = 2000, 50_000
PORT = 29_741


def train(data, out, memory, processes, threads):
    """Train a model in processes of its own: wall seconds, and CPU seconds and peak MB of each process."""
    options = [] if memory == "none" else ["--memory", memory]
    command = [sys.executable, "-m", "holobind", "train", str(data), "--no-text", "--out", str(out), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    if processes > 1:
        several = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_PORT": PORT}
        environment |= {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in several.items()}}
    began, before = time.perf_counter(), loopback_bytes()
    children = []
    for rank in range(processes):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {}
        children.append(subprocess.Popen(command, env=environment | ranks, stdout=subprocess.DEVNULL))
    found = {"memory": memory, "processes": processes, "threads": threads, "CPU seconds": [], "peak MB": []}
    for child in children:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} failed")
        found["CPU seconds"].append(round(usage.ru_utime + usage.ru_stime))
        found["peak MB"].append(round(usage.ru_maxrss / 1024))
    found |= {
        "wall seconds": round(time.perf_counter() - began),
        "MB over loopback": round((loopback_bytes() - before) / 1e6),
    }
    return found


def loopback_bytes():
    """Bytes that came in over the loopback interface since the system started."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:"))


def compare(data, one, other):
    """The largest difference of scores of the top 5, and the fraction of rows with the same top 5."""
    import holobind as hb

    X = hb.data.load(data, texts=False).test.X[:COMPARED_ROWS]
    (a, labels), (b, others) = (hb.load(path).top_k(X, 5) for path in (one, other))
    return {"score difference": float(np.abs(a - b).max()), "same top 5": float((labels == others).all(1).mean())}


def draw_rows(n, generator, size, columns):
    """Distinct columns of a power law for each row, ascending: ids and offsets."""
    drawn = (10 * ((columns + 10) / 10) ** generator.random((n, size)) - 10).astype(np.int64)
    drawn = np.sort((drawn * 7919) % columns, axis=1)
    fresh = np.append(np.ones((n, 1), bool), drawn[:, 1:] > drawn[:, :-1], axis=1)
    return drawn[fresh].astype(np.int32), fresh.sum(1)


def scaled_run(n_rows):
    """Train on so many rows, which lie in files; what it took, in this process alone."""
    import holobind as hb
    from holobind.data.csr import from_arrays, scratch_array

    generator = np.random.default_rng(0)
    arrays = {"x": (ROW_FEATURES, FEATURES), "y": (ROW_LABELS, LABELS)}
    ids = {name: scratch_array(n_rows * size, np.int32) for name, (size, _) in arrays.items()}
    values, ends = scratch_array(n_rows * ROW_FEATURES, np.float32), {name: [0] for name in arrays}
    for first in range(0, n_rows, CHUNK_ROWS):
        for name, (size, columns) in arrays.items():
            drawn, counts = draw_rows(min(CHUNK_ROWS, n_rows - first), generator, size, columns)
            start = ends[name][-1]
            ids[name][start : start + len(drawn)] = drawn
            if name == "x":
                values[start : start + len(drawn)] = 0.5 + generator.random(len(drawn), np.float32)
            ends[name] += (start + np.cumsum(counts)).tolist()
    n_x, n_y = ends["x"][-1], ends["y"][-1]
    X = from_arrays(values[:n_x], ids["x"][:n_x], np.array(ends["x"]), (n_rows, FEATURES))
    Y = from_arrays(np.ones(n_y, np.int32), ids["y"][:n_y], np.array(ends["y"]), (n_rows, LABELS))
    before, began = peak_memory_mb(), time.process_time()
    config = hb.ModelConfig(dim=DIM, text=False)
    model = hb.learn(hb.data.Split(X, Y), config, hb.TrainConfig(memory="2GB"), quantised=True)
    seconds = time.process_time() - began
    ridge = model.metadata["ridge"]
    return {
        "rows": n_rows,
        "entries": n_x,
        "CPU seconds": round(seconds, 1),
        "CPU microseconds a row": round(1e6 * seconds / n_rows, 1),
        "peak MB": round(peak_memory_mb()),
        "peak MB before": round(before),
        "system": ridge["system"],
        "iterations": ridge["iterations"],
        "notes": model.metadata.get("memory notes", []),
    }


def plot(runs, path):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    rows = [run["rows"] for run in runs]
    left.loglog(rows, [run["CPU seconds"] for run in runs], "o-")
    right.semilogx(rows, [run["peak MB"] for run in runs], "o-")
    left.set(xlabel="rows", ylabel="CPU seconds", title="training")
    right.set(xlabel="rows", ylabel="peak memory, MB", ylim=(0, None), title="in a memory of 2 GB")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="dataset to train on")
    parser.add_argument("--memory", nargs="*", default=["none", "2GB"])
    parser.add_argument("--processes", nargs="*", type=int, default=[], help="with one thread each")
    parser.add_argument("--curve", nargs="*", type=int, default=[], help="numbers of rows")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    results = {}
    if options.data is not None:
        with tempfile.TemporaryDirectory() as folder:
            runs, models = [], []
            settings = [(memory, 1, os.cpu_count()) for memory in options.memory]
            for memory, processes, threads in [*settings, *(("none", n, 1) for n in options.processes)]:
                models.append(Path(folder) / f"{len(models)}.safetensors")
                runs.append(train(options.data, models[-1], memory, processes, threads))
                runs[-1] |= compare(options.data, models[0], models[-1]) if len(models) > 1 else {}
                print(json.dumps(runs[-1]), flush=True)
            results["data"], results["runs"] = options.data.name, runs
    curve = []
    for n_rows in options.curve:
        curve.append(run_alone(scaled_run, n_rows))
        print(json.dumps(curve[-1]), flush=True)
    if options.plot is not None and curve:
        plot(curve, options.plot)
    print(json.dumps(results | {"curve": curve}))


if __name__ == "__main__":
    main()
