"""A script for two processes, for tests/training/test_distributed.py: torchrun distributed.py FOLDER.

Every process writes its results to FOLDER/rank.json and FOLDER/name.rank.safetensors.
"""

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from helpers.ridge_knn import rare_words
from helpers.training import data, model, run, same, weights
from safetensors.torch import save_file

import holobind as hb
from holobind._processes import joined
from holobind.ridge_knn import _ridge_solvers, fit_ridge_knn, ridge
from holobind.ridge_knn.fit_checkpoint import FitCheckpoint
from holobind.training import loop

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


def plain(split, name, config=None, **options):
    """Without dropout, whose draws depend on the number of processes."""
    made = model(split, name, dropout=0.0)
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
        # Rank 0 multiplies what it gets by 2, and rank 1 by 3.
        "exchange": (processes.exchange(start, lambda x: x * (rank + 2)) / (rank + 1)).tolist(),
    }
    for name, memory in (("columns", 1 << 30), ("rows", 1 << 12)):
        found[f"resumed {name}"] = stop_and_resume_fit(place / f"fit {name}", memory)
    made = hb.learn(split, hb.ModelConfig())
    save_file(weights(made), place / f"solved.{rank}.safetensors")
    found["evaluation"] = [made.evaluate(split, distributed=yes).as_json() for yes in (False, True)]
    (place / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
