"""Ridge regression from sparse features onto sums of label vectors, in closed form.

    W = argmin |X W - T|^2 + l2 |W|^2,      T = Y C        X (n, f) sparse, Y (n, L) sparse, C (L, d) the codebook

The scores of a row are the codebook's scores of x W. Only present labels are encoded. W is linear in T, so where
L <= d the system is solved for Y itself, one column a label, and encoded afterwards: W = W_Y C. For orthonormal label
vectors (an orbit codebook with L <= d) that is exactly one-versus-rest ridge. With L > d, d columns stand for L labels.

    (X'X + l2) W = X'T                      the primal system, f x f
    (X X' + l2) A = T,    W = X'A           the dual system, n x n

Small systems are solved by Cholesky factorisation, and l2 is chosen by exact leave-one-out predictions. Large ones are
solved by conjugate gradients on blocks of columns that stay in the cache, and l2 is chosen on held-out rows.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from holobind._checks import one_of, positive
from holobind._processes import ALONE, Processes
from holobind._threads import num_threads
from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback
from holobind.codebooks.base import Codebook
from holobind.codebooks.registry import default_dim  # noqa: F401 - the size that a regression has by default
from holobind.data.csr import binary_labels, checked_csr
from holobind.errors import OptionError, ShapeError
from holobind.ridge_knn._ridge_solvers import CholeskySolver, ConjugateGradientSolver, RidgeProblem, RidgeSolver
from holobind.ridge_knn.fit_checkpoint import NO_CHECKPOINT, FitCheckpoint
from holobind.ridge_knn.row_operator import RowOperator

DEFAULT_MEMORY = 1 << 30  # bytes
DEFAULT_TOLERANCE = 0.05  # of the relative residual; the model with kNN chooses its own
MAX_CHOLESKY_UNKNOWNS = 2500  # above, conjugate gradients are faster (benchmarks/bench_ridge.py)
MAX_SINGLE_THREAD_UNKNOWNS = 2048  # up to here, a second thread saves 17 % of the time for 33 % more processor time
FIRST_TOLERANCE, MIN_TOLERANCE, TOLERANCE_STEP = 0.3, 0.01, 10**0.5  # where the tolerance is chosen
MIN_TOLERANCE_GAIN = 0.3  # points of nDCG@5 for which the tolerance is made smaller by a step
X_BYTES = 8  # of an entry of X
L2_STEP = 10**0.5  # ratio of neighbouring penalties in the search
MAX_L2_STEPS = 6  # from the start of the search, to either side


@dataclass(frozen=True)
class RidgeSolution:
    """The result of `solve_ridge`.

    weights     W, (f, d) float32
    bias        what is added to every x W, (d) float32
    l2          the penalty, given or chosen
    system      "primal" or "dual", and how it was solved: "factored" or "conjugate gradients"
    iterations  the largest number that any column took; 0 where factored
    residual    |B - (S + l2) W| / |B| for the system (S + l2) W = B that was solved
    tolerance   of the relative residual of each column, given or chosen; None if not given, where factored
    converged   whether `residual` is within the tolerance
    seconds     wall time of the whole, with the choice of l2
    validation  (l2, nDCG@5 in percent) for every l2 that was tried, in order of l2
    steps       (tolerance, l2) of each tolerance that was chosen in turn, the last of which is that of the solution
    plan        estimated seconds of one processor with the rows and with the Gram matrix; empty if not compared
    unknowns    W with the constant feature's weights as its last row, if there is one: `weights` is a view of it
    """

    weights: Tensor
    bias: Tensor
    l2: float
    system: str
    iterations: int
    residual: float
    tolerance: float | None
    converged: bool
    seconds: float
    validation: list[tuple[float, float]]
    steps: list[tuple[float, float]]
    plan: dict[str, float] = field(default_factory=dict)
    unknowns: FloatArray | None = None

    def weight_blocks(self, codebook: Codebook, processes: Processes, height: int) -> Iterator[Tensor]:
        """W with the codebook's dimensions as columns, `height` rows at a time, from the columns of all processes.

        Blocks are dealt out to the processes in turn: each gets its own ones only.
        """
        blocks = self.weights.split(height)
        if processes.size == 1:
            yield from blocks
            return
        for first in range(0, len(blocks), processes.size):
            # The next block of each process; behind the last one there is none.
            columns = [block.T.contiguous().numpy() for block in blocks[first : first + processes.size]]
            columns += [columns[0][:, :0]] * (processes.size - len(columns))
            W = torch.from_numpy(np.concatenate(processes.swap(columns))).T.contiguous()
            if len(W):
                yield _encoded(W, codebook, processes)

    def full_bias(self, codebook: Codebook, processes: Processes) -> Tensor:
        """The bias with the codebook's dimensions, from those of all processes."""
        bias = torch.from_numpy(processes.concatenate(np.ascontiguousarray(self.bias.numpy())))
        return _encoded(bias[None], codebook, processes)[0]

    def __str__(self) -> str:
        warning = "" if self.converged else "; NOT CONVERGED: allow more iterations or a larger l2"
        return (
            f"l2 {self.l2:.3g}, {self.system}, {self.iterations} iterations, "
            f"relative residual {self.residual:.1e}, {self.seconds:.1f} s{warning}"
        )

    def summary(self) -> dict[str, Any]:
        """How it was solved, as JSON values for a model's metadata."""
        return {
            "l2": self.l2,
            "system": self.system,
            "iterations": self.iterations,
            "residual": self.residual,
            "tolerance": self.tolerance,
            "converged": self.converged,
            "seconds": round(self.seconds, 2),
            "validation": [[round(l2, 6), round(ndcg, 3)] for l2, ndcg in self.validation],
        }


def _encoded(W: Tensor, codebook: Codebook, processes: Processes) -> Tensor:
    """Rows of W from the columns of all processes, which have not encoded them yet where L <= d."""
    return codebook.weighted_sum(W).detach() if processes.size > 1 and codebook.n_labels <= codebook.dim else W


def solve_ridge(
    X: CsrArray,
    Y: CsrArray,
    codebook: Codebook,
    l2: float | None = None,
    *,
    bias: float = 0.3,
    weights: FloatArray | None = None,
    label_weights: FloatArray | None = None,
    rejected: CsrArray | None = None,
    tolerance: float | None = DEFAULT_TOLERANCE,
    search_only: bool = False,
    max_iterations: int = 100,
    system: str | None = None,
    direct: bool | None = None,
    memory: int = DEFAULT_MEMORY,
    seed: int = 0,
    groups: IntArray | None = None,
    start: RidgeSolution | None = None,
    overwrite_start: bool = False,
    processes: Processes = ALONE,
    shard_rows: bool | None = None,
    checkpoint: FitCheckpoint = NO_CHECKPOINT,
    stage: str = "solve",
    on_progress: ProgressCallback | None = None,
) -> RidgeSolution:
    """Solve for W and the bias; choose l2 if none is given.

        W = argmin sum_i weights[i] |x_i W - t_i|^2 + l2 |W|^2,      t_i = sum over i's labels of label_weights[l] c_l

    Rows should have a norm of about 1; l2 is searched around their mean squared norm.

    bias            value of a constant feature of every row, as a fraction of the root mean square of the rows' norms.
                    It is penalised like the others; 0 for none.
    rejected        labels whose targets are minus those of present ones
    tolerance       relative residual at which conjugate gradients stop for a column. P@1 and P@5 have stopped changing
                    before 0.05 on most data; comparisons with other solvers want 1e-5. None: start at 0.3, and go on
                    while held-out rows gain.
    search_only     choose l2 and the tolerance alone: weights and bias of the result have no columns
    system, direct  "primal" or "dual", and whether to factor; by default the cheaper way
    memory          bytes, about, in addition to X and W
    seed            of the held-out rows
    groups          ids from 0 on: l2 and the tolerance are chosen on held-out groups instead of rows
    start           a solution of nearly the same system, which saves iterations of conjugate gradients
    overwrite_start   use its memory for the new solution
    processes       that call it together with the same arguments. Each gets the weights and the bias of its share of
                    the columns: of d, or where L <= d of the L labels, whose weights are then not yet encoded
    shard_rows      whether they share the rows as well: each then reads only its own, and every product is exchanged.
                    By default where X takes more than `memory`
    checkpoint, stage   where blocks of columns are stored as they are solved, and under which name; a factored solution
                    is not stored

    The arrays of X may be mapped from a file. Rows of weight 0 are not copied, but skipped. The number of threads
    (torch's) changes the result only where the system is factored, and there by rounding.

    Shapes: X (n, f), Y and rejected (n, L), weights (n), label_weights (L), groups (n) -> W (f, d), bias (d)
    """
    started = time.perf_counter()
    _check_options(l2, bias, tolerance, max_iterations, system, memory)
    groups = _check_groups(groups, X.shape[0], weights)
    X, Y, row_roots, label_values = _check_data(X, Y, codebook, weights, label_weights)
    if rejected is not None:
        Y = csr_array(Y - binary_labels(checked_csr(rejected, "solve_ridge: rejected", Y.shape[1])))
    report = on_progress or (lambda *_: None)
    n_rows = X.shape[0] if row_roots is None else int(np.count_nonzero(row_roots))
    shard_rows = X_BYTES * int(X.indptr[-1]) > memory if shard_rows is None else shard_rows
    mean_square = _mean_square(X, row_roots, processes if shard_rows else ALONE) or 1.0
    constant = bias * mean_square**0.5
    shape = n_rows, X.shape[1] + bool(bias)
    if direct is None:
        direct = min(shape) <= MAX_CHOLESKY_UNKNOWNS and 16 * min(shape) ** 2 <= memory
    # The diagonal preconditions the primal better: at f = 3 n both take the same time, at f = 8 n the dual takes half.
    system = system or ("primal" if shape[1] <= (1 if direct else 4) * n_rows else "dual")
    problem = RidgeProblem(
        X, Y, codebook, row_roots, label_values, constant, system == "dual", memory, report, groups, processes,
        shard_rows and processes.size > 1,
    )  # fmt: skip
    first_guess = None
    if start is not None and not problem.dual and not problem.targets_are_labels:
        first, last = problem.own_columns
        wanted = X.shape[1], last - first
        if start.weights.shape != wanted or start.bias.shape != wanted[1:]:
            raise ShapeError(
                f"solve_ridge: start has weights of shape {tuple(start.weights.shape)} and a bias of shape "
                f"{tuple(start.bias.shape)}; a solution of this system has {wanted} and {wanted[1:]}"
            )
        first_guess = _primal_unknowns(start, constant, overwrite_start)
    single_thread = direct and min(shape) <= MAX_SINGLE_THREAD_UNKNOWNS
    with num_threads(1) if single_thread else nullcontext():
        solver: RidgeSolver
        if direct:
            solver = CholeskySolver(problem)
        else:
            solver = ConjugateGradientSolver(problem, max_iterations, seed, first_guess, checkpoint, stage)
        steps, validation = _choose(solver, l2, tolerance, mean_square, can_validate=n_rows > 1)
        used, l2 = steps[-1]
        if search_only:
            solution, iterations, residual = np.empty((problem.n_unknowns, 0), np.float32), 0, 0.0
        else:
            solution, iterations, residual = solver.solve(l2, used)
        unknowns = problem.primal(solution)
        if direct:
            first, last = problem.own_columns
            unknowns = unknowns[:, first:last]
        W = torch.from_numpy(unknowns)
        if problem.targets_are_labels and processes.size == 1 and not search_only:
            W = codebook.weighted_sum(W).detach()
    return RidgeSolution(
        weights=W[:-1] if bias else W,
        bias=W[-1] * constant if bias else W.new_zeros(W.shape[1]),
        l2=l2,
        system=f"{system}, {solver.name}",
        iterations=iterations,
        residual=residual,
        tolerance=used if solver.has_tolerance else tolerance,
        converged=residual <= used,
        seconds=time.perf_counter() - started,
        validation=validation,
        steps=steps,
        plan=solver.costs,
        unknowns=W.numpy(),
    )


def _primal_unknowns(start: RidgeSolution, constant: float, overwrite: bool) -> FloatArray:
    """The unknowns of the primal system from a solution; those of the constant feature come last."""
    n, d = start.weights.shape
    W = start.unknowns if overwrite else None
    if W is None or W.shape != (n + bool(constant), d):
        W = np.empty((n + bool(constant), d), np.float32)
        W[:n] = start.weights.numpy()
    if constant:  # which may be another one
        W[n] = start.bias.numpy() / constant
    return W


def _mean_square(X: CsrArray, row_roots: FloatArray | None, processes: Processes) -> float:
    """The mean squared norm of the rows that have a weight."""
    present = None if row_roots is None else (row_roots > 0).astype(np.float32)
    squares = float(RowOperator(X, present, 0.0, processes).squares().sum(dtype=np.float64))
    return squares / (X.shape[0] if present is None else int(np.count_nonzero(present)))


def _choose(
    solver: RidgeSolver, l2: float | None, tolerance: float | None, start: float, *, can_validate: bool
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Tolerances and their l2, chosen where they are None, and the validation of the last choice of l2.

    The tolerance starts large and becomes smaller while held-out rows gain by that; l2 is then searched again.
    """
    validation: list[tuple[float, float]] = []
    last: tuple[float, float, float] | None = None  # l2, tolerance and score: a repetition would change nothing

    def validate(l2: float, tolerance: float) -> float:
        nonlocal last
        if last is None or last[:2] != (l2, tolerance):
            last = l2, tolerance, solver.validate(l2, tolerance)
        return last[2]

    def search(tolerance: float, start: float) -> float:
        nonlocal validation
        if l2 is not None or not can_validate:
            return start
        best, validation = _search_l2(lambda each: validate(each, tolerance), start)
        return best

    chosen = tolerance or FIRST_TOLERANCE
    steps = [(chosen, search(chosen, start if l2 is None else float(l2)))]
    while tolerance is None and can_validate and solver.has_tolerance and chosen > MIN_TOLERANCE * (1 + 1e-6):
        smaller, at_l2 = max(chosen / TOLERANCE_STEP, MIN_TOLERANCE), steps[-1][1]
        before = validate(at_l2, chosen)
        if validate(at_l2, smaller) - before <= MIN_TOLERANCE_GAIN:
            break
        chosen = smaller
        steps.append((chosen, search(chosen, at_l2)))
    return steps, validation


def _search_l2(validate: Callable[[float], float], start: float) -> tuple[float, list[tuple[float, float]]]:
    """Hill climbing on a geometric grid of penalties from `start`, until both neighbours of the best are worse.

    The choice is the top of the parabola, in log l2, through the best and its neighbours. It takes
    no further solution, agrees with the best of a grid of half the step (bibtex, cooking), and averages three scores.
    """
    scores: dict[int, float] = {}
    untried = [0, 1, -1]
    while untried:
        for k in untried:
            scores[k] = validate(start * L2_STEP**k)
        best = max(scores, key=lambda k: (scores[k], k))  # of equal ones the largest penalty, the simplest model
        untried = [k for k in (best - 1, best + 1) if k not in scores and abs(k) <= MAX_L2_STEPS]
    low, top, high = (scores.get(k, scores[best]) for k in (best - 1, best, best + 1))
    curvature = 2 * top - low - high
    has_top = abs(best) < MAX_L2_STEPS and curvature > 0
    l2 = start * L2_STEP ** (best + ((high - low) / (2 * curvature) if has_top else 0))
    return l2, [(start * L2_STEP**k, scores[k]) for k in sorted(scores)]


def _check_options(
    l2: float | None, bias: float, tolerance: float | None, max_iterations: int, system: str | None, memory: int
) -> None:
    if l2 is not None and not (np.isfinite(l2) and l2 > 0):
        raise OptionError(f"solve_ridge: l2 must be a positive number, or None to choose it; got {l2}")
    if not (np.isfinite(bias) and bias >= 0):
        raise OptionError(f"solve_ridge: bias must be a finite number, 0 or larger (0 for none); got {bias}")
    if tolerance is not None and not 0 < tolerance < 1:
        raise OptionError(
            f"solve_ridge: tolerance is a relative residual between 0 and 1, or None to choose it; got {tolerance}"
        )
    positive("solve_ridge", "max_iterations", max_iterations)
    positive("solve_ridge", "memory", memory)
    one_of("solve_ridge", "system", system, ("primal", "dual", None))


def _check_data(
    X: CsrArray, Y: CsrArray, codebook: Codebook, weights: FloatArray | None, label_weights: FloatArray | None
) -> tuple[CsrArray, CsrArray, FloatArray | None, FloatArray | None]:
    """X in float32 and Y of ones, the roots of the rows' weights, and label weights."""
    X, Y = (checked_csr(matrix, f"solve_ridge: {name}") for name, matrix in (("X", X), ("Y", Y)))
    if X.shape[0] != Y.shape[0] or X.shape[0] == 0:
        raise ShapeError(
            "solve_ridge: X and Y must have the same number of rows, at least 1; "
            f"got {X.shape[0]} and {Y.shape[0]} rows"
        )
    if Y.shape[1] != codebook.n_labels:
        raise ShapeError(f"solve_ridge: Y has {Y.shape[1]} labels, but the codebook has {codebook.n_labels}")
    X, Y = X.astype(np.float32, copy=False), binary_labels(Y)
    row_roots = _check_weights("weights", weights, X.shape[0])
    label_values = _check_weights("label_weights", label_weights, Y.shape[1])
    if row_roots is not None:
        row_roots = np.sqrt(row_roots)
        if not row_roots.any():
            raise OptionError("solve_ridge: all weights are 0; at least one must be positive")
    return X, Y, row_roots, label_values


def _check_groups(groups: IntArray | None, n: int, weights: FloatArray | None) -> IntArray | None:
    """Groups; None where all rows that have a weight are of one group."""
    if groups is None:
        return None
    groups = np.asarray(groups)
    if groups.shape != (n,) or groups.dtype.kind not in "iu" or (n and groups.min() < 0):
        raise ShapeError(f"solve_ridge: groups must be {n} ids, 0 or larger; got {groups.dtype} {groups.shape}")
    present = groups
    if weights is not None and len(weights) == n:
        present = groups[np.asarray(weights) > 0]
    return groups if len(present) and (present != present[0]).any() else None


def _check_weights(name: str, weights: FloatArray | None, n: int) -> FloatArray | None:
    if weights is None:
        return None
    array = np.asarray(weights, np.float64)
    if array.shape != (n,):
        raise ShapeError(f"solve_ridge: {name} must have shape ({n},), got {array.shape}")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise OptionError(f"solve_ridge: {name} must be finite and not negative")
    return array.astype(np.float32)
