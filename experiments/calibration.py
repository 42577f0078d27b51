"""Calibrated probabilities and chosen label sets of the default model on test splits.

    .venv/bin/python experiments/calibration.py [--only cooking-stackexchange ...] [--data DIR] [--models DIR]

For each dataset: the expected calibration error of the five best labels, micro-F1 and sample-F1 of the label sets that
`predict --auto` chooses, the median score of labels that are right, and the largest micro-F1 of any fixed number of
labels. That number is chosen on the test split, in favour of the fixed number; calibration and threshold come from
held-out rows of the training split. With `--models` the models are written there. DIR of `--data` is by default the
folder that HOLOBIND_DATA names. The last line printed is JSON.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from holobind_paper.datasets import data_folder

import holobind as hb

DATASETS = ["cooking-stackexchange", "tibkat-core-en", "gutenberg-lcsh", "yso-en"]
BARS = {"calibration error": 2.0, "micro-F1": {"cooking-stackexchange": 57.5, "tibkat-core-en": 36.0}}
MAX_FIXED = 8  # labels of every row
MAX_CANDIDATES = 30  # best labels of a row, in which hits are counted


def run(name: str, folder: Path, models: Path | None) -> dict[str, float]:
    data = hb.data.load(folder / name)
    model = hb.learn(data.train, label_names=data.label_names, tfidf=data.tfidf)
    if models is not None:
        model.save(models / f"{name}.safetensors")
    assert data.test is not None
    found = model.evaluate(data.test, dataset=name)
    scores, candidates = model.top_k(model.inputs_of(data.test), MAX_CANDIDATES)
    median = float(np.median(scores[hb.metrics.hits(data.test.Y, candidates)]))
    top = candidates[:, :MAX_FIXED]
    fixed = [hb.metrics.f1(data.test.Y, top[:, :k])["micro"] for k in range(1, MAX_FIXED + 1)]
    best = {"fixed micro-F1": max(fixed), "fixed labels": 1 + int(np.argmax(fixed))}
    values = {"P@1": found["P@1"], **found.sets, **best, "median score of hits": median, "rows": found.n_rows}
    return {key: round(value, 2) for key, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--only", nargs="+", default=DATASETS, metavar="DATASET")
    parser.add_argument("--models", type=Path, help="folder to write the models to")
    options = parser.parse_args()
    results = {}
    for name in options.only:
        results[name] = run(name, options.data, options.models)
        sys.stdout.write(f"{name:24s} {results[name]}\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps({"bars": BARS, "results": results}) + "\n")


if __name__ == "__main__":
    main()
