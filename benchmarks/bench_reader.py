"""Speed and memory of the reader of sparse text, compared with read(), scikit-learn and napkinXC, on a file of 100 MB.

    make bench-deps && .venv/bin/python benchmarks/bench_reader.py [--quick]

Times are CPU seconds of all threads of the process, because a reader that keeps more cores busy is not cheaper. In each
round all readers run in turn, so that a slow moment of the machine affects all of them. Times and ratios are medians
over the rounds; "rounds" has the times of each round. The two slow readers run only in the first round. A read() of
100 MB spends most of its time on new memory pages; right after the slow readers it reuses their pages and takes a fifth
of the time. The parser is compiled (or loaded) before the first round by reading a tiny file. Peak memory is that of a
new process that reads the file once. The last line printed is JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array

import holobind as hb
from holobind.data import sparse_text

LIMITS = {
    "parse / read()": 6.0,
    "cached / read()": 2.0,
    "parse / sklearn": 1 / 10,
    "parse / napkinXC": 1 / 3,
    "peak memory / arrays": 4.0,
}
# The peak is VmHWM, because ru_maxrss of a new process starts with the peak of its parent.
PEAK_SCRIPT = """
import sys
from pathlib import Path
from holobind.data import sparse_text
def resident(what):
    return 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(what))
sparse_text.read(Path(sys.argv[1]), cache=False)
before = resident("VmRSS")
split, _ = sparse_text.read(Path(sys.argv[2]), cache=False)
print(resident("VmHWM") - before)
"""


def generate(path, megabytes):
    """Write points like those of Amazon-670K: about 76 features with four decimals, 5 labels."""
    generator = np.random.default_rng(0)
    points, features, labels = megabytes * 1000, 135_909, 670_091

    def rows(columns, mean):
        sizes = 1 + generator.poisson(mean - 1, points)
        row = np.repeat(np.arange(points, dtype=np.int64), sizes)
        keys = np.unique(row * columns + (columns * generator.random(len(row)) ** 3).astype(np.int64))
        return csr_array((np.ones(len(keys), np.int32), np.divmod(keys, columns)), shape=(points, columns))

    X = rows(features, 84).astype(np.float32)
    X.data = np.maximum(generator.random(X.nnz), 1e-4).round(4).astype(np.float32)
    hb.data.write(hb.data.Dataset(hb.data.Split(X, rows(labels, 5.45))), path)


def by_sklearn(path):
    from sklearn.datasets import load_svmlight_file

    with path.open("rb") as file:
        file.readline()  # skip the header, which scikit-learn would read as a point
        return load_svmlight_file(file, multilabel=True, dtype=np.float32, zero_based=True)


def by_napkinxc(path):
    from napkinxc.datasets import load_libsvm_file

    return load_libsvm_file(str(path), labels_format="csr_matrix")


def cpu(function, *arguments):
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def peak(tiny, path):
    done = subprocess.run([sys.executable, "-c", PEAK_SCRIPT, tiny, path], capture_output=True, text=True, check=True)
    return int(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 MB and 3 rounds instead of 100 MB and 9")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as place:
        os.environ["HOLOBIND_CACHE"] = f"{place}/cache"
        path, tiny = Path(place) / "points.txt", Path(place) / "tiny.txt"
        generate(path, 10 if quick else 100)
        tiny.write_text("0 1:1\n")
        readers = {
            "read()": path.read_bytes,
            "parse": lambda: sparse_text.read(path, cache=False),
            "cached": lambda: sparse_text.read(path),
        }
        slow = {"sklearn": lambda: by_sklearn(path), "napkinXC": lambda: by_napkinxc(path)}
        sparse_text.read(tiny, cache=False)
        split, _ = sparse_text.read(path)  # fills the cache
        arrays = sum(a.nbytes for m in (split.X, split.Y) for a in (m.data, m.indices, m.indptr))
        theirs = by_sklearn(path)[0]
        same = theirs.nnz == split.X.nnz and np.array_equal(theirs.data, split.X.data)
        del split, theirs
        rounds = []
        for turn in range(3 if quick else 9):
            order = list((readers | slow if turn == 0 else readers).items())
            order = order[turn % len(order) :] + order[: turn % len(order)]
            rounds.append({name: cpu(reader) for name, reader in order})
            print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        size = path.stat().st_size
        memory = peak(tiny, path)
    seconds = {name: statistics.median(r[name] for r in rounds if name in r) for name in (*readers, *slow)}
    ratios = {
        f"{a} / {b}": statistics.median(r[a] / r[b] for r in rounds if b in r)
        for a, b in (("parse", "read()"), ("cached", "read()"), ("parse", "sklearn"), ("parse", "napkinXC"))
    }
    ratios["peak memory / arrays"] = memory / arrays
    table = Table("reader", "CPU s", "MB per CPU second")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.3f}", f"{size / value / 1e6:.0f}")
    limits = Table("ratio", "measured", "limit", "")
    for name, value in ratios.items():
        limits.add_row(name, f"{value:.3f}", f"{LIMITS[name]:.3f}", "reached" if value <= LIMITS[name] else "MISSED")
    Console().print(table, limits)
    reached = {name: ratios[name] <= limit for name, limit in LIMITS.items()}
    details = {
        "rounds": rounds,
        "bytes": size,
        "array bytes": arrays,
        "same values as sklearn": bool(same),
        "threads": os.cpu_count(),
    }
    print(json.dumps({**details, "cpu seconds": seconds, "ratios": ratios, "limits": LIMITS, "reached": reached}))


if __name__ == "__main__":
    main()
