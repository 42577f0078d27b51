"""The default trained networks (`--network fc`, cnn, lstm) against the closed form (`holobind train` without options).

    .venv/bin/python experiments/accuracy/trained.py cooking-stackexchange tibkat-core-en [--split test] [--text]
    .venv/bin/python experiments/accuracy/trained.py cooking-stackexchange --text --networks fc cnn lstm [--rows 5000]

All get the same rows and the same inputs: the features of the data, or with --text the texts. cnn and lstm, which read
texts, have the smaller sizes of experiments/text_networks.py; "cnn alone" and "lstm alone" have no linear path, and
the softmax loss. Everything is chosen on held-out rows of the rows to train on. CPU seconds are those of the whole fit,
with its choices. "reached" tells whether a network is at most 0.5 of P@1 and 0.3 of P@5 below the closed form, in at
most three times its CPU time. The last line printed is JSON.
"""

import argparse
import json
import time

import numpy as np
import torch
from common import load_splits, take_rows

import holobind as hb
from holobind.data import Split

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
CNN = {"network": "cnn", "embedding_dim": 64, "filters": 32, "hidden": (256,)}
LSTM = {"network": "lstm", "embedding_dim": 128, "hidden_size": 96}
NETWORKS = {
    "fc": {"network": "fc"},
    "cnn": CNN,
    "lstm": LSTM,
    "cnn alone": {**CNN, "loss": "softmax"},
    "lstm alone": {**LSTM, "loss": "softmax"},
}


def measure(train, test, text, seed, options):
    began = time.process_time()
    model = hb.learn(train, hb.ModelConfig(text=text, seed=seed, **options), hb.TrainConfig(seed=seed))
    seconds = time.process_time() - began
    evaluation = model.evaluate(test)
    found = {name: round(float(evaluation[name]), 2) for name in METRICS} | {"CPU seconds": round(seconds, 1)}
    return found | {name: model.metadata[name] for name in ("extra_scores",) if name in model.metadata}


def reached(found, closed_form):
    return {
        "P@1": found["P@1"] >= closed_form["P@1"] - 0.5,
        "P@5": found["P@5"] >= closed_form["P@5"] - 0.3,
        "time": found["CPU seconds"] <= 3 * closed_form["CPU seconds"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--text", action="store_true", help="texts in place of the data's features")
    parser.add_argument("--networks", nargs="+", default=["fc"], choices=list(NETWORKS))
    parser.add_argument("--rows", type=int, help="train on the first rows only, and measure on as many at most")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    models = {"closed form": {}, **{name: NETWORKS[name] for name in options.networks}}
    small = hb.data.synthetic("eurlex-4k", scale=0.05).train
    for network in ("linear", "fc"):  # numba compiles
        hb.learn(Split(small.X, small.Y), hb.ModelConfig(dim=64, network=network)).top_k(small.X[:9], 1)
    found = []
    for name in options.datasets:
        train, test = load_splits(name, options.split)
        if options.rows:
            train, test = (take_rows(part, np.arange(min(options.rows, len(part)))) for part in (train, test))
        for seed in options.seeds:
            row = {"dataset": name, "seed": seed}
            for model, settings in models.items():
                row[model] = measure(train, test, options.text, seed, settings)
                print(name, model, row[model], flush=True)
            row["reached"] = {name: reached(row[name], row["closed form"]) for name in options.networks}
            found.append(row)
    settings = {"split": options.split, "text": options.text, "rows": options.rows}
    print(json.dumps({**settings, "results": found}))


if __name__ == "__main__":
    main()
