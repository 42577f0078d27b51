"""A script for two processes, for tests/training/test_distributed.py: torchrun distributed.py FOLDER.

Every process writes its results to FOLDER/rank.json and FOLDER/name.rank.safetensors.
"""

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from helpers.ridge_knn import rare_words
from helpers.training import data, model, run, same, weights
from safetensors.torch import save_file
from torch import nn

import holobind as hb
from holobind._processes import ALONE, joined
from holobind.networks import SparseLinear
from holobind.networks.sharded import ShardedLinear
from holobind.ridge_knn import _ridge_solvers, fit_ridge_knn, ridge
from holobind.ridge_knn.fit_checkpoint import FitCheckpoint
from holobind.training import loop
from holobind.training.optimiser import RowAdam

SHAPES = ("fc", "linear_skip", "bce", "cnn", "lstm")
UNEVEN = {"batch_size": 130, "epochs": 2}  # 391 rows: the last batch has one, so one process has none of it
LABELS, DIM = 1000, 32


class Signalled:
    """Examples that raise SIGTERM with the n-th batch."""

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


def plain(split, name, config=None, shards=ALONE, **options):
    """Without dropout, whose draws depend on the number of processes."""
    made = model(split, name, dropout=0.0, shards=shards)
    return made, run(split, made, config, **options)


def scored():
    """Heads whose top k every process finds alone, and all of them together."""
    split = data()
    X = split.X[:40]
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


def train_shards(split, fabric, place, keep):
    """Train networks whose first layer is divided; what was seen of the weights and of the optimiser's state."""
    shards, seen = joined(), {}
    keep("sharded fc", *plain(split, "fc", shards=shards, fabric=fabric))
    keep("sharded uneven", *plain(split, "linear_skip", UNEVEN, shards=shards, fabric=fabric))
    path, make = place / "sharded checkpoint", loop.optimisers

    def watched(made, config):
        seen["layer"], seen["optimisers"] = made.network.first, make(made, config)
        return seen["optimisers"]

    loop.optimisers = watched
    config = loop.TrainConfig(**UNEVEN | {"batch_size": 16})

    def train(stop_at=0, **options):
        made = model(split, "linear_skip", shards=shards)
        examples = made.examples(split.X)
        return made, loop.fit(
            made, Signalled(examples, stop_at) if stop_at else examples, split.Y, config, fabric=fabric, **options
        )

    keep("sharded straight", *train())
    try:
        train(20 if shards.rank else 0, checkpoint=path)
    except loop.TrainingInterrupted:
        layer, (state,) = seen["layer"], [o.state for o in seen["optimisers"] if isinstance(o, RowAdam)]
        rows = {key: len(tensor) for key, tensor in state[layer.weight].items()}
        seen["rows"] = {"weight": len(layer.weight), **rows, "features": split.X.shape[1]}
    torch.distributed.barrier()
    keep("sharded resumed", *train(checkpoint=path, resume=True))
    loop.optimisers = make
    torch.distributed.barrier()
    made = model(split, "linear_skip")
    options = {"checkpoint": path, "resume": True, "fabric": fabric}
    keep("resumed whole", made, loop.fit(made, made.examples(split.X), split.Y, config, **options))
    for shard in (False, True):
        config = hb.TrainConfig(epochs=2, shard_features=shard, validation_fraction=0.2)
        made = hb.learn(split, hb.ModelConfig(network="fc", hidden=(16,), dim=16, loss="query"), config)
        save_file(weights(made), place / f"learned {shard}.{shards.rank}.safetensors")
    return seen["rows"]


def shard_differences(split):
    """Largest differences of a divided layer from a whole one: output, gradient, and clipped gradient."""
    shards = joined()
    whole, divided = SparseLinear(split.X.shape[1], 24, scale=0.3, seed=2), ShardedLinear(
        split.X.shape[1], 24, shards, scale=0.3, seed=2
    )  # fmt: skip
    examples, outputs = model(split).examples(split.X), []
    target = torch.randn(len(split), 24, generator=torch.Generator().manual_seed(1))
    cut = [0, 100, 137]  # rows of both processes
    for layer, (first, last) in ((whole, (0, 137)), (divided, (cut[shards.rank], cut[shards.rank + 1]))):
        rows = np.arange(first, last)
        outputs.append(layer(examples.batch(rows)))
        (outputs[-1] * target[rows]).sum().backward()
    alone = divided.own(whole.weight.grad.to_dense()) / shards.size  # the mean over processes
    differences = [
        abs(outputs[1] - outputs[0][cut[shards.rank] : cut[shards.rank + 1]]).max(),
        abs(divided.weight.grad.to_dense() - alone).max(),
    ]
    other = nn.Parameter(torch.ones(3))
    other.grad = torch.full((3,), 2.0)
    twin = nn.Parameter(torch.ones(3))
    twin.grad, whole.weight.grad = other.grad.clone(), whole.weight.grad / shards.size
    all_reduce = loop._Run.all_reduce.__get__(SimpleNamespace(fabric=loop.launch()))
    loop.clip_gradients(iter([whole.weight, twin]), 0.5)
    loop.clip_gradients(iter([divided.weight, other]), 0.5, {id(divided.weight)}, all_reduce)
    differences.append(abs(divided.weight.grad.to_dense() - divided.own(whole.weight.grad.to_dense())).max())
    differences.append(abs(other.grad - twin.grad).max())
    return [float(each) for each in differences]


def stop_and_resume_fit(folder, memory):
    """Solved blocks of a whole fit, of one that is stopped and of the rest; whether both networks are the same.

    memory   so small that rows are shared, or not
    """
    processes, solve, solved = joined(), _ridge_solvers.conjugate_gradients, [0]
    ridge.MAX_CHOLESKY_UNKNOWNS, _ridge_solvers.BLOCK_COLUMNS = 0, 8

    def fit(stop_at, **options):
        solved[0] = 0

        def solve_or_stop(*arguments):
            if solved[0] == stop_at:
                raise TimeoutError
            solved[0] += 1
            return solve(*arguments)

        _ridge_solvers.conjugate_gradients = solve_or_stop
        checkpoint = FitCheckpoint(folder, dict, processes, seconds=0, **options)
        return fit_ridge_knn(
            *rare_words(labels=60), dim=24, processes=processes, memory=memory, checkpoint=checkpoint
        ).network.state_dict()

    whole = fit(-1)
    counts = [solved[0]]
    stop_at = 6 if memory < 1 << 20 else 3 - processes.rank  # rows are shared by all at a time, columns are not
    try:
        fit(stop_at)
    except TimeoutError:
        counts.append(solved[0])
    torch.distributed.barrier()
    if memory < 1 << 20 and processes.rank == 0:  # as if the other process had died before it wrote its last block
        max(folder.glob("*.1.safetensors"), key=lambda file: file.stat().st_mtime_ns).unlink()
    torch.distributed.barrier()
    resumed = fit(-1, resume=True)
    ridge.MAX_CHOLESKY_UNKNOWNS = 2500
    return {"same": same(whole, resumed), "blocks": [*counts, solved[0]]}


def main():
    place = Path(sys.argv[1])
    torch.set_num_threads(1)
    fabric = loop.launch()
    rank, split = fabric.global_rank, data()
    found = {"world": fabric.world_size}

    def keep(name, made, at):
        save_file(weights(made), place / f"{name}.{rank}.safetensors")
        found[name] = asdict(at)

    for name in SHAPES:
        keep(name, *plain(split, name, fabric=fabric))
    keep("uneven", *plain(split, "linear_skip", UNEVEN, fabric=fabric))
    found["shards"] = train_shards(split, fabric, place, keep)
    found["shard differences"] = shard_differences(split)

    # One process gets SIGTERM: both stop at the same step, and resume from the first one's checkpoint.
    made = model(split, "linear_skip")
    examples = made.examples(split.X)
    path = place / "checkpoint"
    try:
        mine = Signalled(examples, 20) if rank == 1 else examples
        loop.fit(made, mine, split.Y, loop.TrainConfig(**UNEVEN | {"batch_size": 16}), checkpoint=path, fabric=fabric)
    except loop.TrainingInterrupted:
        found["stopped"] = True
    torch.distributed.barrier()
    for name, options in (("resumed", {"checkpoint": path, "resume": True}), ("straight", {})):
        made = model(split, "linear_skip")
        config = loop.TrainConfig(**UNEVEN | {"batch_size": 16})
        keep(name, made, loop.fit(made, made.examples(split.X), split.Y, config, fabric=fabric, **options))

    try:
        lone = place / f"only-{rank}"
        (place / "only-0").write_bytes(b"")
        torch.distributed.barrier()
        plain(split, "fc", checkpoint=lone, resume=True, fabric=fabric)
    except hb.FileError as error:
        found["refused"] = str(error)

    for name, one, X in scored():
        alone, together = one.top_k(X, 7), one.top_k(X, 7, distributed=True)
        found[f"top {name}"] = [(alone[1] == together[1]).all().item(), float(abs(alone[0] - together[0]).max())]
    processes = joined()
    start = np.array([1.0, 10.0]) * (rank + 1)
    found["collectives"] = {
        "sum": processes.sum(start.copy()).tolist(),
        "gather": [part.tolist() for part in processes.gather(np.full(rank + 1, rank))],
        "concatenate": processes.concatenate(np.full(rank + 1, rank)).tolist(),
        "by rows": processes.by_rows(20, lambda first, last: [3 * np.arange(first, last)])[0].tolist(),
        # Rank 0 multiplies what it gets by 2, and rank 1 by 3.
        "exchange": (processes.exchange(start, lambda x: x * (rank + 2)) / (rank + 1)).tolist(),
    }
    arrays = [np.full((rank + 1, other + 1), 10 * rank + other) for other in range(processes.size)]
    found["swapped"] = [array.tolist() for array in processes.swap(arrays)]
    found["tasks"] = list(processes.queue(range(40), range(40)))
    for name, memory in (("columns", 1 << 30), ("rows", 1 << 12)):
        found[f"resumed {name}"] = stop_and_resume_fit(place / f"fit {name}", memory)
    made = hb.learn(split, hb.ModelConfig())
    save_file(weights(made), place / f"solved.{rank}.safetensors")
    found["evaluation"] = [made.evaluate(split, distributed=yes).as_json() for yes in (False, True)]
    found["evaluation of shared rows"] = made.evaluate(split, processes=processes).as_json()
    made.save(place / "shared.safetensors", processes=processes)
    if rank == 0:
        made.save(place / "alone.safetensors")
        files = [(place / f"{name}.safetensors").read_bytes() for name in ("alone", "shared")]
        found["file of shared compression"] = files[0] == files[1]
    alone, shared = made.rank(split.X, 5), made.rank(split.X, 5, processes=processes)
    found["shared ranking"] = [bool((one == other).all()) for one, other in zip(alone, shared, strict=True)]
    (place / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
