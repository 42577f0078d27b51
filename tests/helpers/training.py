"""A small run of training, for tests: in this process, or as a script of its own that can be killed or distributed.

    training.py OUT [--checkpoint FILE] [--resume] [--every S] [--slow S] [--what fc|linear_skip|linear|bce|...] ...

writes the weights of the trained model to OUT.safetensors and its progress to OUT.json. With torchrun, a process writes
to OUT.rank.*.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import holobind as hb
from holobind import metrics
from holobind._processes import ALONE
from holobind.data.batches import TokenExamples
from holobind.networks import FC, AttentionLstm, XmlCnn
from holobind.training import loop
from holobind.training.config import split_options

CONFIG = {"epochs": 4, "batch_size": 32, "learning_rate": 3e-3, "patience": 0, "validation_fraction": 0.2, "seed": 5}


def configs(**options):
    """The two configs of some options."""
    return split_options(options)


def data():
    return hb.data.synthetic("bibtex", scale=0.1, seed=3).train


def model(split, what="fc", dropout=0.2, shards=ALONE):
    features, labels = split.X.shape[1], split.Y.shape[1]
    if what == "bce":
        network, head = FC(features, (24,), dropout=dropout, seed=1), hb.LinearHead(24, labels, seed=1)
    elif what == "linear_skip":
        small = {"dropout": dropout, "feature_dropout": dropout, "seed": 1, "shards": shards}
        network = FC(features, (24,), 16, linear_skip=True, **small)
        head = hb.HolographicHead(None, labels, 16, seed=1)
    elif what in ("cnn", "lstm"):
        small = {"embedding_dim": 8, "dropout": dropout, "embedding_dropout": dropout, "seed": 1}
        if what == "cnn":
            network = XmlCnn(features + 2, filters=4, bottleneck=12, **small)
        else:
            network = AttentionLstm(features + 2, hidden_size=6, layers=(12,), **small)
        head = hb.HolographicHead(12, labels, 16, seed=1)
    elif what == "linear":
        network, head = FC(features, (), 16, seed=1), hb.HolographicHead(None, labels, 16, seed=1)
    else:
        network = FC(features, (24, 24), dropout=dropout, seed=1, shards=shards)
        head = hb.HolographicHead(24, labels, 16, loss="query", seed=1)
    order = np.random.default_rng(2).permutation(labels) if what == "fc" else None
    return hb.Model(network, head, metrics.frequencies(split.Y), label_order=order)


def run(split, made, config=None, **options):
    examples = made.examples(split.X) if isinstance(made.network, FC) else words(split)
    return loop.fit(made, examples, split.Y, loop.TrainConfig(**CONFIG | (config or {})), **options)


def words(split):
    """The features of a row as the words of a text."""
    return TokenExamples((split.X.indices + 2).astype(np.int32), split.X.indptr.astype(np.int64))


def weights(made):
    return {name: tensor.clone() for name, tensor in made.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def main(arguments=None, connection=None):
    """The script; `connection` receives the epoch and step after every step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--every", type=float, default=600.0)
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to sleep after each step")
    parser.add_argument("--what", default="fc")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--config", type=json.loads, default={})
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    split = data()
    made = model(split, chosen.what, chosen.dropout)

    def report(state, config):
        if connection is not None:
            connection.send((state.epoch, state.step))
        time.sleep(chosen.slow)

    fabric = loop.launch()
    name = f"{chosen.out}.{fabric.global_rank}" if fabric.world_size > 1 else chosen.out
    options = {"checkpoint": chosen.checkpoint, "resume": chosen.resume, "checkpoint_seconds": chosen.every}
    try:
        state = run(split, made, chosen.config, on_progress=report, fabric=fabric, **options)
    except loop.TrainingInterrupted:
        Path(f"{name}.stopped").touch()
        return
    save_file(weights(made), f"{name}.safetensors")
    Path(f"{name}.json").write_text(json.dumps(asdict(state)))


if __name__ == "__main__":
    main()
