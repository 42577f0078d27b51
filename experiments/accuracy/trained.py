"""The default trained network (`--network fc`) against the closed form (`holobind train` without options).

    .venv/bin/python experiments/accuracy/trained.py cooking-stackexchange tibkat-core-en [--split test] [--text]

Both get the same rows and the same inputs: the features of the data, or with --text the texts. Everything is chosen on
held-out rows of the rows to train on. CPU seconds are those of the whole fit, with its choices. "reached" tells whether
fc is at most 0.5 of P@1 and 0.3 of P@5 below the closed form, in at most three times its CPU time. The last line
printed is JSON.
"""

import argparse
import json
import time

import torch
from common import load_splits

import holobind as hb
from holobind.data import Split

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
MODELS = {"closed form": {}, "fc": {"network": "fc"}}


def measure(train, test, text, seed, options):
    began = time.process_time()
    model = hb.learn(train, hb.ModelConfig(text=text, seed=seed, **options), hb.TrainConfig(seed=seed))
    seconds = time.process_time() - began
    evaluation = model.evaluate(test)
    found = {name: round(float(evaluation[name]), 2) for name in METRICS} | {"CPU seconds": round(seconds, 1)}
    return found | {name: model.metadata[name] for name in ("extra_scores",) if name in model.metadata}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--text", action="store_true", help="texts in place of the data's features")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    small = hb.data.synthetic("eurlex-4k", scale=0.05).train
    for settings in MODELS.values():  # numba compiles
        hb.learn(Split(small.X, small.Y), hb.ModelConfig(dim=64, **settings)).top_k(small.X[:9], 1)
    found = []
    for name in options.datasets:
        train, test = load_splits(name, options.split)
        for seed in options.seeds:
            row = {"dataset": name, "seed": seed}
            for model, settings in MODELS.items():
                row[model] = measure(train, test, options.text, seed, settings)
                print(name, model, row[model], flush=True)
            closed, fc = row["closed form"], row["fc"]
            row["reached"] = {
                "P@1": fc["P@1"] >= closed["P@1"] - 0.5,
                "P@5": fc["P@5"] >= closed["P@5"] - 0.3,
                "time": fc["CPU seconds"] <= 3 * closed["CPU seconds"],
            }
            found.append(row)
    print(json.dumps({"split": options.split, "text": options.text, "results": found}))


if __name__ == "__main__":
    main()
