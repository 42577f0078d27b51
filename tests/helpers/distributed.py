"""What two processes do together, for tests/test_distributed.py: torchrun distributed.py FOLDER.

Every process writes what it found to FOLDER/rank.json and FOLDER/name.rank.safetensors.
"""

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from helpers.training import data, model, run, weights
from safetensors.torch import save_file

import holobind as hb
from holobind.training import loop as train

SHAPES = ("fc", "linear_skip", "bce", "cnn", "lstm")
UNEVEN = {"batch_size": 130, "epochs": 2}  # 391 rows: the last batch has one, so one process has none of it
LABELS, DIM = 1000, 32


class Signalled:
    """Examples of which the n-th batch comes with a signal."""

    sizes = None

    def __init__(self, inner, n):
        self.inner, self.left = inner, n

    def __len__(self):
        return len(self.inner)

    def batch(self, index):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGTERM)
        return self.inner.batch(index)


def plain(part, name, plan=None, **options):
    """Without dropout, whose draws depend on the number of processes."""
    made = model(part, name, dropout=0.0)
    return made, run(part, made, plan, **options)


def scored():
    """Heads whose top k every process finds alone, and all of them together."""
    part = data()
    X = part.X[:40]
    heads = {
        "orbit": hb.HolographicHead(None, LABELS, DIM),
        "random": hb.HolographicHead(None, LABELS, DIM, "random"),
        "query": hb.HolographicHead(None, LABELS, DIM, loss="query"),
        "one base": hb.HolographicHead(None, 20, DIM),  # the second process has nothing to score
        "linear": hb.LinearHead(None, LABELS),
    }
    seen = hb.metrics.Frequencies(torch.ones(LABELS).numpy(), 100)
    for name, head in heads.items():
        network = hb.networks.FC(X.shape[1], (8,), LABELS if name == "linear" else DIM, seed=4)
        yield name, hb.Model(network, head, seen), X


def main():
    place = Path(sys.argv[1])
    torch.set_num_threads(1)
    fabric = train.launch()
    rank, part = fabric.global_rank, data()
    found = {"world": fabric.world_size}

    def keep(name, made, at):
        save_file(weights(made), place / f"{name}.{rank}.safetensors")
        found[name] = asdict(at)

    for name in SHAPES:
        keep(name, *plain(part, name, fabric=fabric))
    keep("uneven", *plain(part, "linear_skip", UNEVEN, fabric=fabric))

    # One process is told to stop: both do, at the same step, and go on from the first one's checkpoint.
    made = model(part, "linear_skip")
    examples = made.examples(part.X)
    path = place / "checkpoint"
    try:
        mine = Signalled(examples, 20) if rank == 1 else examples
        train.fit(made, mine, part.Y, train.TrainConfig(**UNEVEN | {"batch_size": 16}), checkpoint=path, fabric=fabric)
    except train.Stopped:
        found["stopped"] = True
    torch.distributed.barrier()
    for name, options in (("resumed", {"checkpoint": path, "resume": True}), ("straight", {})):
        made = model(part, "linear_skip")
        plan = train.TrainConfig(**UNEVEN | {"batch_size": 16})
        keep(name, made, train.fit(made, made.examples(part.X), part.Y, plan, fabric=fabric, **options))

    try:
        lone = place / f"only-{rank}"
        (place / "only-0").write_bytes(b"")
        torch.distributed.barrier()
        plain(part, "fc", checkpoint=lone, resume=True, fabric=fabric)
    except hb.FileError as error:
        found["refused"] = str(error)

    for name, one, X in scored():
        alone, together = one.top_k(X, 7), one.top_k(X, 7, distributed=True)
        found[f"top {name}"] = [(alone[1] == together[1]).all().item(), float(abs(alone[0] - together[0]).max())]
    made = hb.learn(part, hb.ModelConfig())
    save_file(weights(made), place / f"solved.{rank}.safetensors")
    found["evaluation"] = [made.evaluate(part, distributed=yes).as_json() for yes in (False, True)]
    (place / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
