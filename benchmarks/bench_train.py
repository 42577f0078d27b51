"""`holobind train DATA` without options, as a user calls it: wall time of the whole command, and accuracy on test.

    .venv/bin/python benchmarks/bench_train.py [--data ../shared/data] [--only bibtex ...]

The last line printed is JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BARS = {
    "bibtex": {"P@1": 64.5, "P@5": 29.0, "PSP@1": 50.0, "wall": 10},
    "cooking-stackexchange": {"P@1": 72.5, "wall": 10},
    "tibkat-core-en": {"P@1": 43.8, "wall": 40},
}


def train(data: Path, place: Path) -> dict:
    command = [
        sys.executable,
        "-m",
        "holobind",
        "train",
        str(data),
        "--out",
        str(place / "model.safetensors"),
        "--json",
    ]
    began = time.perf_counter()
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    wall = time.perf_counter() - began
    test = told["test"]
    accuracy = {f"{name}@{k}": round(test[name][k - 1], 2) for name in ("P", "PSP") for k in (1, 3, 5)}
    return {
        "wall": round(wall, 2),
        "training": told["training seconds"],
        "MB": round(told["bytes"] / 1e6, 1),
        **accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=BARS, default=list(BARS))
    asked = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for name in asked.only:
            found[name] = row = train(asked.data / name, Path(place))
            short = [m for m, bar in BARS[name].items() if (row[m] > bar if m == "wall" else row[m] < bar)]
            print(name, row, f"misses {', '.join(short)}" if short else "reaches every bar")
    print(json.dumps({"bench": "train", "rows": found}))


if __name__ == "__main__":
    main()
