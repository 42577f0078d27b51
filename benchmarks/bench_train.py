"""`holobind train DATA` without options, as a user calls it: wall time of the whole command, and accuracy on test.

    .venv/bin/python benchmarks/bench_train.py [--data DIR] [--only bibtex ...]

One run with the default seed, 0; `experiments/accuracy/final.py` gives the mean of three seeds. DIR is by default the
folder that HOLOBIND_DATA names. The last line printed is JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holobind_paper.datasets import data_folder

# Lowest accuracy, and longest wall time in seconds, that count as reached.
TARGETS = {
    "bibtex": {"P@1": 64.5, "P@5": 29.0, "PSP@1": 50.0, "wall": 10},
    "cooking-stackexchange": {"P@1": 72.5, "wall": 10},
    "tibkat-core-en": {"P@1": 43.8, "wall": 40},
}


def train(data: Path, folder: Path) -> dict[str, float]:
    """Run the command; its wall time, training time, file size and test metrics."""
    model = str(folder / "model.safetensors")
    command = [sys.executable, "-m", "holobind", "train", str(data), "--out", model, "--json"]
    began = time.perf_counter()
    summary = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    wall = time.perf_counter() - began
    test = summary["test"]
    accuracy = {f"{name}@{k}": round(test[name][k - 1], 2) for name in ("P", "PSP") for k in (1, 3, 5)}
    return {
        "wall": round(wall, 2),
        "training": summary["training seconds"],
        "MB": round(summary["bytes"] / 1e6, 1),
        **accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="DATASET")
    options = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            rows[name] = row = train(options.data / name, Path(folder))
            targets = TARGETS[name].items()
            missed = [key for key, target in targets if (row[key] > target if key == "wall" else row[key] < target)]
            print(name, row, f"misses {', '.join(missed)}" if missed else "reaches every target")
    print(json.dumps({"bench": "train", "rows": rows}))


if __name__ == "__main__":
    main()
