"""The closed form in little memory, on several processes, and with ever more rows: CPU seconds and peak memory.

    .venv/bin/python benchmarks/bench_out_of_core.py --data ../shared/data/yso-en --memory none 2GB --processes 1 2
    .venv/bin/python benchmarks/bench_out_of_core.py --data ../shared/data/yso-en --memory --processes 1 2 4 \
        --machines-plot docs/figures/machines.png
    .venv/bin/python benchmarks/bench_out_of_core.py --readers 50 200
    .venv/bin/python benchmarks/bench_out_of_core.py --curve 100000 1000000 10000000 --plot docs/figures/rows.png

The first two forms run `holobind train DATA --no-text` (with `--texts`, without that option) in new processes, one for
each memory with all threads, and then with one thread in each of several processes as torchrun starts them. It reports
what the system counted for each process: CPU seconds, wall time and peak resident memory. Scores of two models are
compared on 2,000 test rows. With two numbers of processes or more, the CPU seconds a + s / w of the slowest of w
processes are fitted to the runs, a being what every process does, and s what they share; the plot has the seconds of
1 to 256 machines by this model. More processes than cores are slower, but their CPU seconds are those of machines.

The third form reads tables of texts of so many MB, with their tf-idf features. The fourth form makes rows of 10
features and 5 labels out of 670,091 (`holobind data make synthetic`), with `--features` or a tenth as many features as
rows, parses them and trains the ridge regression with a dim of 32 in a memory of 2 GB, on one thread. With more than
four times as many features as rows the dual would be solved, which is another curve. The penalty is 1;
the kNN step and label trees, which would not fit at the largest size, are off. The last line is JSON.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from memory import peak_memory_mb, run_alone

ROWS_PER_FEATURE, LABELS, ROW_FEATURES, DIM = 10, 670_091, 10, 32
CURVE_MEMORY = "2GB"
COMPARED_ROWS = 2000
VOCABULARY, CHUNK_ROWS = 200_000, 20_000  # distinct words of the tables of texts, and rows that are drawn together
PORT = 29_741


def train(data, out, memory, processes, threads, texts):
    """Train a model in processes of its own: wall seconds, and CPU seconds and peak MB of each process."""
    options = [] if memory == "none" else ["--memory", memory]
    options += [] if texts else ["--no-text"]
    command = [sys.executable, "-m", "holobind", "train", str(data), "--out", str(out), *options]
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


def compare(data, one, other, texts):
    """The largest difference of scores of the top 5, and the fraction of rows with the same top 5."""
    import holobind as hb

    split = hb.data.load(data, texts=texts).test
    rows = (split.texts if texts else split.X)[:COMPARED_ROWS]
    (a, labels), (b, others) = (hb.load(path).top_k(rows, 5) for path in (one, other))
    return {"score difference": float(np.abs(a - b).max()), "same top 5": float((labels == others).all(1).mean())}


def time_model(runs, features, dim):
    """a and s of the CPU seconds a + s / w of the slowest of w processes, and the GB of the weights of two solutions.

    Of these, each process sends (w - 1) / w^2.
    """
    runs = [run for run in runs if run["threads"] == 1]
    processes = np.array([run["processes"] for run in runs], float)
    seconds = np.array([max(run["CPU seconds"]) for run in runs], float)
    (own, shared), *_ = np.linalg.lstsq(np.stack([np.ones(len(runs)), 1 / processes], 1), seconds, rcond=None)
    ratios = seconds / (own + shared / processes)
    return {
        "own seconds": round(float(own), 1),
        "shared seconds": round(float(shared), 1),
        "measured / predicted": {
            str(run["processes"]): round(r, 2) for run, r in zip(runs, ratios.tolist(), strict=True)
        },
        "GB of weights": round(8 * features * dim / 1e9, 3),
        "columns": dim,
    }


def plot_machines(model, path):
    """Seconds of 1 to 256 machines by the model, for three bandwidths, beside a speed-up without a limit."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    machines = 2 ** np.arange(9)
    # A block has at most 64 columns; from there on, products take longer for each column, 1.65 times at 32.
    width = np.minimum(model["columns"] / machines, 64)
    narrow = (64 / width) ** np.log2(1.65)
    figure, axes = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    alone = model["own seconds"] + model["shared seconds"]
    axes.loglog(machines, alone / machines, ":", color="grey", label="1 / machines", base=2)
    for gigabits in (1, 10, 100):
        swap = 8 * model["GB of weights"] / gigabits * (machines - 1) / machines**2
        seconds = model["own seconds"] + model["shared seconds"] * narrow / machines + swap
        axes.loglog(machines, seconds, "o-", markersize=3, label=f"{gigabits} Gbit/s", base=2)
    axes.axhline(model["own seconds"], color="C3", linewidth=0.8, label="what every machine does")
    axes.set(xlabel="machines of one core", ylabel="seconds", title="the closed form on yso-en, by the model")
    axes.set_xticks(machines, [str(w) for w in machines])
    ticks = [2**i for i in range(2, 9)]
    axes.set_yticks(ticks, [str(t) for t in ticks])
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def scaled_run(n_rows, folder):
    """Train on so many rows of a file of sparse text; CPU seconds of each step, in this process alone."""
    import holobind as hb

    config, memory = hb.ModelConfig(dim=DIM, text=False), hb.TrainConfig(memory=CURVE_MEMORY)
    small = hb.data.synthetic("eurlex-4k", scale=0.05).train
    hb.learn(small, config, memory, quantised=True)  # loads and compiles what a training needs
    before, began = peak_memory_mb(), time.process_time()
    split = hb.data.load(folder, memory_map=True).train
    parsed = time.process_time()
    config = hb.ModelConfig(dim=DIM, text=False, knn_weight=0.0, label_trees=0, l2=1.0)
    model = hb.learn(split, config, memory, quantised=True)
    seconds = time.process_time() - parsed
    ridge = model.metadata["ridge"]
    return {
        "rows": n_rows,
        "features": split.X.shape[1],
        "entries": int(split.X.indptr[-1]),
        "CPU seconds to parse": round(parsed - began, 1),
        "CPU seconds to train": round(seconds, 1),
        "rows a second": round(n_rows / (seconds + parsed - began)),
        "peak MB": round(peak_memory_mb()),
        "peak MB before": round(before),
        "system": ridge["system"],
        "iterations": ridge["iterations"],
        "notes": model.metadata.get("memory notes", []),
    }


def curve(sizes, features):
    """`scaled_run` of each number of rows; data is made, used and removed one after the other."""
    runs = []
    for n_rows in sizes:
        with tempfile.TemporaryDirectory() as folder, cache_in(f"{folder}/cache"):
            data = f"{folder}/rows"
            numbers = ["--features", str(features or max(n_rows // ROWS_PER_FEATURE, 1000)), "--labels", str(LABELS)]
            numbers += ["--points", str(n_rows), "--features-per-point", str(ROW_FEATURES), "--out", data]
            command = [sys.executable, "-m", "holobind", "data", "make", "synthetic", "amazon-670k", *numbers]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            made = {"GB of text": round((Path(data) / "train.txt").stat().st_size / 1e9, 2)}
            runs.append(run_alone(scaled_run, n_rows, data) | made)
        if len(runs) > 1:
            previous = runs[-2]
            more = sum(runs[-1][key] - previous[key] for key in ("CPU seconds to parse", "CPU seconds to train"))
            runs[-1]["CPU microseconds of a further row"] = round(1e6 * more / (n_rows - previous["rows"]), 1)
        print(json.dumps(runs[-1]), flush=True)
    return runs


@contextlib.contextmanager
def cache_in(folder):
    """Parsed files go to this folder."""
    before = os.environ.get("HOLOBIND_CACHE")
    os.environ["HOLOBIND_CACHE"] = folder
    try:
        yield
    finally:
        os.environ.pop("HOLOBIND_CACHE")
        if before is not None:
            os.environ["HOLOBIND_CACHE"] = before


def write_texts(path, megabytes):
    """Rows of about 100 characters of text and two labels, in the format of the suffix; words follow a power law."""
    generator = np.random.default_rng(0)
    words = [f"w{i:x}" for i in generator.permutation(VOCABULARY).tolist()]
    n_rows = int(megabytes * 1e6 / 130)

    def rows(n):
        ids = ((VOCABULARY + 10) / 10) ** generator.random((n, 18)) * 10 - 10
        for row, labels in zip(ids.astype(int).tolist(), generator.integers(0, 5000, (n, 2)).tolist(), strict=True):
            yield " ".join([words[min(i, VOCABULARY - 1)] for i in row]), [f"label{i}" for i in labels]

    sizes = [min(CHUNK_ROWS, n_rows - first) for first in range(0, n_rows, CHUNK_ROWS)]
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema({"text": pa.string(), "labels": pa.list_(pa.string())})
        with pq.ParquetWriter(path, schema) as file:
            for n in sizes:
                texts, labels = zip(*rows(n), strict=True)
                file.write_table(pa.table({"text": list(texts), "labels": list(labels)}, schema))
        return n_rows
    lines = {
        ".jsonl": lambda text, labels: json.dumps({"text": text, "labels": labels}),
        ".csv": lambda text, labels: f"{text},{'|'.join(labels)}",
        ".tsv": lambda text, labels: "\t".join([text, *labels]),
    }[path.suffix]
    with path.open("w") as file:
        file.write("text,labels\n" if path.suffix == ".csv" else "")
        for n in sizes:
            file.writelines(lines(text, labels) + "\n" for text, labels in rows(n))
    return n_rows


def read(path):
    """CPU seconds and peak memory of reading a file and of its tf-idf features, in this process alone."""
    import holobind as hb

    began, before = time.process_time(), peak_memory_mb()
    dataset = hb.data.load(path, memory_map=True)
    return {
        "CPU seconds": round(time.process_time() - began, 1),
        "peak MB": round(peak_memory_mb()),
        "peak MB before": round(before),
        "tf-idf": dataset.tfidf.streamed.summary(),
    }


def readers(sizes):
    """`read` of each format at each number of megabytes."""
    runs = []
    for suffix in (".jsonl", ".csv", ".tsv", ".parquet"):
        for megabytes in sizes:
            with tempfile.TemporaryDirectory() as folder, cache_in(f"{folder}/cache"):
                path = Path(folder) / f"train{suffix}"
                n_rows = write_texts(path, megabytes)
                runs.append({"format": suffix[1:], "rows": n_rows, "MB": round(path.stat().st_size / 1e6)})
                runs[-1] |= run_alone(read, path)
            print(json.dumps(runs[-1]), flush=True)
    return runs


def plot(runs, path):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    rows = [run["rows"] for run in runs]
    for step in ("parse", "train"):
        left.loglog(rows, [run[f"CPU seconds to {step}"] for run in runs], "o-", label=f"to {step}")
    right.semilogx(rows, [run["peak MB"] for run in runs], "o-", color="C2")
    right.axhline(parse_megabytes(CURVE_MEMORY), color="grey", linewidth=0.8)
    left.set(xlabel="rows", ylabel="CPU seconds", title="sparse text to a model")
    left.legend()
    right.set(xlabel="rows", ylabel="peak memory, MB", ylim=(0, None), title=f"--memory {CURVE_MEMORY}")
    figure.savefig(path, dpi=120)


def parse_megabytes(text):
    from holobind.training.allowed_values import parse_bytes

    return parse_bytes(text) / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="dataset to train on")
    parser.add_argument("--memory", nargs="*", default=["none", "2GB"])
    parser.add_argument("--texts", action="store_true", help="train on the texts of the dataset")
    parser.add_argument("--processes", nargs="*", type=int, default=[], help="with one thread each")
    parser.add_argument("--readers", nargs="*", type=int, default=[], help="megabytes of tables of texts to read")
    parser.add_argument("--curve", nargs="*", type=int, default=[], help="numbers of rows")
    parser.add_argument("--features", type=int, help="of every number of rows (default: a tenth of the rows)")
    parser.add_argument("--plot", type=Path, help="of the curve")
    parser.add_argument("--machines-plot", type=Path, help="seconds of 1 to 256 machines, by the model of the runs")
    options = parser.parse_args()
    results = {}
    if options.data is not None:
        with tempfile.TemporaryDirectory() as folder:
            runs, models = [], []
            settings = [(memory, 1, os.cpu_count()) for memory in options.memory]
            for memory, processes, threads in [*settings, *(("none", n, 1) for n in options.processes)]:
                models.append(Path(folder) / f"{len(models)}.safetensors")
                runs.append(train(options.data, models[-1], memory, processes, threads, options.texts))
                runs[-1] |= compare(options.data, models[0], models[-1], options.texts) if len(models) > 1 else {}
                print(json.dumps(runs[-1]), flush=True)
            results["data"], results["runs"] = options.data.name, runs
            if len(options.processes) > 1:
                import holobind as hb

                network = hb.load(models[-1]).network
                results["model"] = time_model(runs, network.n_features, network.out_features)
                if options.machines_plot is not None:
                    plot_machines(results["model"], options.machines_plot)
    if options.readers:
        results["readers"] = readers(options.readers)
    runs = curve(options.curve, options.features)
    if options.plot is not None and runs:
        plot(runs, options.plot)
    print(json.dumps(results | {"curve": runs}))


if __name__ == "__main__":
    main()
