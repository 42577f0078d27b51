"""What checkpoints of the closed form cost and save: CPU seconds of a fit without, with all stored, and resumed.

    .venv/bin/python benchmarks/bench_checkpoint.py [DATA] [--stop 0.5]

The second fit stores every result from its first second on; by default, the first minute is not stored. The third is a
fit that was stopped when a fraction of the blocks was solved, and then continued: its seconds are those after
the stop. The last line printed is JSON.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import holobind as hb
from holobind.data.csr import normalise_rows
from holobind.ridge_knn import _ridge_solvers, fit_ridge_knn
from holobind.ridge_knn.fit_checkpoint import FitCheckpoint


class StoppedError(Exception):
    """The fit was stopped."""


def measure(X, Y, stop_at=None, **options):
    """CPU seconds, solved blocks and the state of a fit; with `stop_at`, of one that ends after so many blocks."""
    solve, solved = _ridge_solvers.conjugate_gradients, [0]

    def counted(*arguments):
        if solved[0] == stop_at:
            raise StoppedError
        solved[0] += 1
        return solve(*arguments)

    _ridge_solvers.conjugate_gradients = counted
    state, began = None, time.process_time()
    try:
        state = fit_ridge_knn(X, Y, update=False, **options).network.state_dict()
    except StoppedError:
        pass
    finally:
        _ridge_solvers.conjugate_gradients = solve
    return {"CPU seconds": round(time.process_time() - began, 1), "solved blocks": solved[0]}, state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", nargs="?", default="tibkat-core-en", help="name below $HOLOBIND_DATA, or a path")
    parser.add_argument("--stop", type=float, default=0.5, help="fraction of the blocks after which the fit is stopped")
    options = parser.parse_args()
    split = hb.data.load(Path(os.environ.get("HOLOBIND_DATA", ".")) / options.dataset, texts=False).train
    X, Y = normalise_rows(split.X), split.Y
    fit_ridge_knn(X[:500], Y[:500], update=False)  # compiles
    found, states = {"dataset": options.dataset, "rows": X.shape[0], "features": X.shape[1], "labels": Y.shape[1]}, []
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / each for each in ("stored", "stopped")]
        found["without"], state = measure(X, Y)
        states.append(state)
        checkpoint = FitCheckpoint(folders[0], dict, seconds=0)
        found["stored"], state = measure(X, Y, checkpoint=checkpoint)
        states.append(state)
        found["MB stored"] = round(sum(file.stat().st_size for file in folders[0].iterdir()) / 1e6, 1)
        stop_at = int(options.stop * found["without"]["solved blocks"])
        found["stopped"], _ = measure(X, Y, stop_at, checkpoint=FitCheckpoint(folders[1], dict, seconds=0))
        found["resumed"], state = measure(X, Y, checkpoint=FitCheckpoint(folders[1], dict, seconds=0, resume=True))
        states.append(state)
    found["same bytes"] = all((states[0][name] == other[name]).all() for other in states[1:] for name in states[0])
    found["same bytes"] = bool(found["same bytes"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
