"""The linear encoder, solved in closed form: ridge regression from features onto sums of label vectors.

    W = argmin |X W - T|^2 + l2 |W|^2,      T = Y C        X (n, f) sparse, Y (n, L) sparse, C (L, d) the codebook

The scores of a row are the codebook's scores of x W. Only present labels are encoded. W is linear in T, so where
L <= d it is solved against Y itself, one column a label, and encoded afterwards: W = W_Y C, which for orthonormal
label vectors (an orbit codebook with L <= d) is exactly one-versus-rest ridge. Beyond, d columns stand for L.

    (X'X + l2) W = X'T                      the primal system, f x f
    (X X' + l2) A = T,    W = X'A           the dual system, n x n

Small systems are factored, and l2 is chosen by exact leave-one-out predictions; large ones are solved by conjugate
gradients in blocks of columns that stay in the cache, and l2 is chosen on rows held out.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from holobind._threads import on_threads, threaded
from holobind._types import CsrArray, FloatArray, ProgressCallback
from holobind.codebooks.base import Codebook
from holobind.data.csr import binary_labels
from holobind.errors import DTypeError, OptionError, ShapeError
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn._kernels import conjugate_gradients
from holobind.ridge_knn._linalg import WIDTH, gram, product

MEMORY = 1 << 30
DIRECT = 2500  # rows of the largest system that is factored; beyond, conjugate gradients are faster (bench_solve)
ALONE = 2048  # unknowns up to which one thread does it: two were a sixth faster for a third more of the processor
STEP = 10**0.5  # between two l2s of the search
HELD, FARTHEST = 2000, 6  # rows to validate on; steps the search may take from where it starts


@dataclass(frozen=True)
class RidgeSolution:
    """What `ridge` found.

    weights     (f, d) float32, W
    bias        (d) float32, what is added to every x W
    l2         the penalty, given or chosen
    system      "primal" or "dual", and how it was solved: "factored" or "conjugate gradients"
    iterations  the most that any column took; 0 where factored
    residual    |T' - (S + l2) W'| / |T'| of the system S that was solved
    converged   whether `residual` is within the tolerance asked for
    seconds     wall time of the whole, with the choice of l2
    validation  (l2, nDCG@5 in percent) for every l2 that was tried, in order of l2
    """

    weights: Tensor
    bias: Tensor
    l2: float
    system: str
    iterations: int
    residual: float
    converged: bool
    seconds: float
    validation: list[tuple[float, float]]

    def __str__(self) -> str:
        short = "" if self.converged else "; NOT CONVERGED: allow more iterations or a larger l2"
        return (
            f"l2 {self.l2:.3g}, {self.system}, {self.iterations} iterations, "
            f"relative residual {self.residual:.1e}, {self.seconds:.1f} s{short}"
        )


def default_dim(n_labels: int, most: int = 1024) -> int:
    """A dim for a label space: the first that is >= L and made of factors 2, 3 and 5, or `most` if L is beyond.

    Up to `most` the labels of an orbit are orthonormal and nothing is lost against one-versus-rest.
    """
    dim = min(n_labels, most)
    while dim < most and _without(_without(_without(dim, 2), 3), 5) > 1:
        dim += 1
    return dim


def solve_ridge(
    X: CsrArray,
    Y: CsrArray,
    codebook: Codebook,
    l2: float | None = None,
    *,
    bias: float = 0.3,
    weights: FloatArray | None = None,
    label_weights: FloatArray | None = None,
    tolerance: float = 0.05,
    max_iterations: int = 100,
    system: str | None = None,
    direct: bool | None = None,
    memory: int = MEMORY,
    seed: int = 0,
    start: RidgeSolution | None = None,
    on_progress: ProgressCallback | None = None,
) -> RidgeSolution:
    """Solve for the encoder, and choose l2 if none is given.

        W = argmin sum_i weights[i] |x_i W - t_i|^2 + l2 |W|^2,      t_i = sum over i's labels of label_weights[l] c_l

    Rows should have length 1 or so; l2 is searched for around their mean square. `bias` is one more feature that
    every point has, as a share of the root mean square of the rows' lengths, penalised like the others; 0 for none.
    `tolerance` is the relative residual at which conjugate gradients leave a column: 0.05, because P@1 and P@5 have
    stopped changing before (comparisons with other solvers want 1e-5). `system` and `direct` overrule the choice of
    the cheaper way. `start`, a solution of nearly the same, saves iterations where there are any. Beside X, its
    transpose and W, and in the search a second W, space is about `memory` bytes.

    The result depends on the seed through the rows held out. On the number of threads (torch's) it depends only where
    the system is factored, and there by rounding.
    Shapes: X (n, f), Y (n, L), weights (n), label_weights (L) -> W (f, d), bias (d)
    """
    began = time.perf_counter()
    _check_options(l2, bias, tolerance, max_iterations, system, memory)
    X, Y, roots, values = _check_data(X, Y, codebook, weights, label_weights)
    scale = float(X.data @ X.data) / X.shape[0] or 1.0
    constant = bias * scale**0.5
    if bias:
        X = sparse.csr_array(sparse.hstack([X, sparse.csr_array(np.full((X.shape[0], 1), constant, np.float32))]))
    if direct is None:
        direct = min(X.shape) <= DIRECT and 16 * min(X.shape) ** 2 <= memory
    # The diagonal preconditions the primal better: at f = 3 n both take as long, at f = 8 n the dual takes half.
    system = system or ("primal" if X.shape[1] <= (1 if direct else 4) * X.shape[0] else "dual")
    problem = _Problem(X, Y, codebook, roots, values, system == "dual", memory, on_progress or (lambda *_: None))
    from_ = None if start is None or problem.dual or problem.few else _stacked(start, constant if bias else None)
    validation: list[tuple[float, float]] = []
    with on_threads(1 if direct and min(X.shape) <= ALONE else torch.get_num_threads()):
        solver: _Solver = _Factored(problem) if direct else _Iterative(problem, tolerance, max_iterations, seed, from_)
        if l2 is None:
            l2, validation = _climb(solver.validate, scale) if X.shape[0] > 1 else (scale, [])
        solved, iterations, residual = solver.solve(float(l2))
        W = problem.finish(solved)
    return RidgeSolution(
        weights=W[:-1] if bias else W,
        bias=W[-1] * constant if bias else W.new_zeros(W.shape[1]),
        l2=float(l2),
        system=f"{system}, {'factored' if direct else 'conjugate gradients'}",
        iterations=iterations,
        residual=residual,
        converged=residual <= tolerance,
        seconds=time.perf_counter() - began,
        validation=validation,
    )


def apply(X: CsrArray, W: Tensor, bias: Tensor | None = None) -> Tensor:
    """X W + bias on all of torch's threads, for a sparse X.  Shapes: (n, f), (f, d), (d) -> (n, d)"""
    A = sparse.csr_array(X).astype(np.float32, copy=False)
    if A.shape[1] != W.shape[0]:
        raise ShapeError(f"apply: X has {A.shape[1]} features and W has {W.shape[0]}")
    found = torch.from_numpy(product(A, W.detach().cpu().float().numpy()))
    return found if bias is None else found.add_(bias.detach().cpu())


@dataclass
class _Problem:
    """X and T with the weights applied: columns are d, or L where that is fewer."""

    X: CsrArray
    Y: CsrArray
    book: Codebook
    roots: FloatArray | None
    values: FloatArray | None
    dual: bool
    memory: int
    tell: ProgressCallback

    def __post_init__(self) -> None:
        X = self.X if self.roots is None else sparse.csr_array(sparse.diags_array(self.roots) @ self.X)
        self.scaled, self.transposed = X, sparse.csr_array(X.T)
        self.few = self.book.n_labels <= self.book.dim
        self.columns = min(self.book.n_labels, self.book.dim)

    def part(self, rows: NDArray[np.intp]) -> "_Problem":
        roots = None if self.roots is None else self.roots[rows]
        return replace(self, X=self.X[rows], Y=self.Y[rows], roots=roots)

    def targets(self, rows: slice | NDArray[np.intp]) -> FloatArray:
        """T, or Y where that is narrower, without the weights of points.  Shapes: -> (rows, columns)"""
        Y = self.Y[rows]
        if self.values is not None:
            Y = sparse.csr_array(Y @ sparse.diags_array(self.values))
        if self.few:
            return np.asarray(Y.toarray(), np.float32)
        labels, offsets = (torch.from_numpy(part.astype(np.int64)) for part in (Y.indices, Y.indptr[:-1]))
        weights = None if self.values is None else torch.from_numpy(np.asarray(Y.data, np.float32))
        return self.book.encode(labels, offsets, weights).detach().numpy()

    def right_side(self) -> FloatArray:
        """X'T, or T for the dual, never with more than `memory` of T at once.  Shapes: -> (f or n, columns)"""
        n, f = self.X.shape
        total = np.zeros((n if self.dual else f, self.columns), np.float32)
        height = max(1, self.memory // (2 * total.itemsize * self.columns))
        for top in range(0, n, height):
            rows = slice(top, min(top + height, n))
            T = self.targets(rows)
            if self.roots is not None:
                T *= self.roots[rows, None]
            if self.dual:
                total[rows] = T
            else:
                total += product(self.transposed if height >= n else sparse.csr_array(self.scaled[rows].T), T)
        return total

    def primal(self, solved: FloatArray) -> FloatArray:
        """W from the system's unknowns.  Shapes: (f or n, columns) -> (f, columns)"""
        return product(self.transposed, solved) if self.dual else solved

    def finish(self, solved: FloatArray) -> Tensor:
        W = torch.from_numpy(self.primal(solved))
        return self.book.mix(W).detach() if self.few else W

    def score(self, vectors: FloatArray, rows: NDArray[np.intp]) -> float:
        """nDCG@5 of predictions for some rows: in a mean of P@1 and P@5 the former, which is larger, decides alone."""
        v = torch.from_numpy(vectors)
        found = self.book.top_k(self.book.mix(v) if self.few else v, min(5, self.book.n_labels))[1].numpy()
        return float(ndcg_at_k(self.Y[rows], found)[-1])


class _Solver:
    def validate(self, l2: float) -> float:
        raise NotImplementedError

    def solve(self, l2: float) -> tuple[FloatArray, int, float]:
        """The system's unknowns, iterations, relative residual."""
        raise NotImplementedError


class _Factored(_Solver):
    """Cholesky. Validation is leave-one-out, exactly and without another solution for each row:

        t_i - x_i W_(without i) = (t_i - x_i W) / (1 - h_i),      h_i = x_i' (X'X + l2)^-1 x_i

    and in the dual, with A = K T and K = (X X' + l2)^-1, the right side is A_i / K_ii.
    """

    def __init__(self, problem: _Problem) -> None:
        self.problem = problem
        self.gram = torch.from_numpy(gram(problem.scaled.T.tocsr() if problem.dual else problem.scaled))
        self.right = torch.from_numpy(problem.right_side())
        n = problem.X.shape[0]
        self.rows = np.unique(np.linspace(0, n - 1, min(n, HELD)).astype(np.intp))
        self.targets = problem.targets(self.rows)

    def validate(self, l2: float) -> float:
        p, rows = self.problem, self.rows
        inverse = torch.cholesky_inverse(self._factor(l2, self.gram.dtype))
        solved = (inverse @ self.right.to(inverse.dtype)).to(self.right.dtype).numpy()
        if p.dual:
            wrong = solved[rows] / inverse.diagonal().numpy()[rows, None]
            if p.roots is not None:
                wrong /= p.roots[rows, None]
        else:
            X = p.scaled[rows]
            seen = np.asarray(X.multiply(product(X, inverse.to(self.gram.dtype).numpy())).sum(1)).reshape(-1, 1)
            wrong = (self.targets - product(p.X[rows], solved)) / np.maximum(1 - seen, 1e-6)
        return p.score(self.targets - wrong, rows)

    def solve(self, l2: float) -> tuple[FloatArray, int, float]:
        residual = torch.inf
        solved = self.right
        for dtype in dict.fromkeys((self.gram.dtype, torch.float64)):
            solved = torch.cholesky_solve(self.right.to(dtype), self._factor(l2, dtype)).to(self.right.dtype)
            left = torch.addmm(self.right - l2 * solved, self.gram, solved, alpha=-1)
            residual = float(left.norm() / self.right.norm().clamp_min(torch.finfo(torch.float32).tiny))
            if residual < 1e-3:
                break
        return solved.numpy(), 0, residual

    def _factor(self, l2: float, dtype: torch.dtype) -> Tensor:
        system = self.gram.to(dtype, copy=True)
        system.diagonal().add_(l2)
        factor, failed = torch.linalg.cholesky_ex(system)
        if not failed:
            return factor
        if dtype != torch.float64:
            return self._factor(l2, torch.float64)
        raise OptionError(
            f"ridge: l2 {l2:g} is too small for these features, the system is singular; take a larger one"
        )


class _Iterative(_Solver):
    """Conjugate gradients with the diagonal as preconditioner; each l2 starts from the solution for the last one."""

    def __init__(
        self, problem: _Problem, tolerance: float, max_iterations: int, seed: int, start: FloatArray | None
    ) -> None:
        self.problem, self.tolerance, self.max_iterations, self.start = problem, tolerance, max_iterations, start
        order = np.random.default_rng(seed).permutation(problem.X.shape[0])
        held = max(1, min(HELD, len(order) // 5))
        self.held, self.kept = np.sort(order[:held]), np.sort(order[held:])
        self.search: tuple[_Problem, FloatArray, FloatArray] | None = None

    def validate(self, l2: float) -> float:
        if self.search is None:
            part = self.problem.part(self.kept)
            right = part.right_side()
            self.search = part, right, np.zeros_like(right)
        part, right, solved = self.search
        self._run(part, right, solved, l2, f"l2 {l2:.3g}")
        return self.problem.score(product(self.problem.X[self.held], part.primal(solved)), self.held)

    def solve(self, l2: float) -> tuple[FloatArray, int, float]:
        right = self.problem.right_side()
        solved = np.zeros_like(right) if self.start is None else self.start
        if self.search is not None:
            if not self.problem.dual:
                solved = self.search[2]
            self.search = None
        iterations, residual = self._run(self.problem, right, solved, l2, "solve")
        return solved, iterations, residual

    def _run(self, p: _Problem, right: FloatArray, solved: FloatArray, l2: float, stage: str) -> tuple[int, float]:
        first, second = (p.transposed, p.scaled) if p.dual else (p.scaled, p.transposed)
        diagonal = np.asarray(first.multiply(first).sum(0), right.dtype).ravel() + right.dtype.type(l2)
        a, b = ((m.indptr, m.indices, m.data) for m in (first, second))
        threads = torch.get_num_threads()
        each = right.itemsize * (6 * first.shape[1] + first.shape[0])
        width = max(1, min(WIDTH, -(-p.columns // threads), p.memory // (threads * each)))

        def block(start: int) -> tuple[int, float, float]:
            at = np.s_[:, start : start + width]
            B, W = np.ascontiguousarray(right[at]), np.ascontiguousarray(solved[at])
            done = conjugate_gradients(
                *a, *b, diagonal, right.dtype.type(l2), B, W, self.max_iterations, self.tolerance
            )
            solved[at] = W
            return done

        starts = range(0, p.columns, width)
        most, left, whole = 0, 0.0, 0.0
        for i, (iterations, rest, size) in enumerate(threaded(block, starts)):
            most, left, whole = max(most, iterations), left + rest, whole + size
            p.tell(stage, (i + 1) / len(starts))
        return most, (left / whole) ** 0.5 if whole else 0.0


def _stacked(start: RidgeSolution, constant: float | None) -> FloatArray:
    """The unknowns of the primal system, the weights of the constant feature last."""
    W = start.weights if constant is None else torch.cat([start.weights, start.bias[None] / constant])
    return np.array(W.numpy(), order="C")


def _climb(validate: Callable[[float], float], start: float) -> tuple[float, list[tuple[float, float]]]:
    """Try l2s on a geometric grid around `start`, uphill until both neighbours of the best are worse.

    The choice is the top of the parabola, in log l2, through the best and its neighbours: without another solution
    it is where a grid of half the step has its best (bibtex, cooking), and it averages over the noise of three.
    """
    scores: dict[int, float] = {}
    todo = [0, 1, -1]
    while todo:
        for k in todo:
            scores[k] = validate(start * STEP**k)
        best = max(scores, key=lambda k: (scores[k], k))  # among equals the simplest model
        todo = [k for k in (best - 1, best + 1) if k not in scores and abs(k) <= FARTHEST]
    low, top, high = (scores.get(k, scores[best]) for k in (best - 1, best, best + 1))
    bend = 2 * top - low - high
    inside = abs(best) < FARTHEST and bend > 0
    l2 = start * STEP ** (best + ((high - low) / (2 * bend) if inside else 0))
    return l2, [(start * STEP**k, scores[k]) for k in sorted(scores)]


def _without(n: int, factor: int) -> int:
    while n > 1 and n % factor == 0:
        n //= factor
    return n


def _check_options(
    l2: float | None, bias: float, tolerance: float, max_iterations: int, system: str | None, memory: int
) -> None:
    if l2 is not None and not (np.isfinite(l2) and l2 > 0):
        raise OptionError(f"ridge: l2 must be a positive number, or None to have it chosen; got {l2}")
    if not (np.isfinite(bias) and bias >= 0):
        raise OptionError(f"ridge: bias must be a number and not negative, 0 for none; got {bias}")
    if not 0 < tolerance < 1:
        raise OptionError(f"ridge: tolerance is a relative residual, between 0 and 1; got {tolerance}")
    if max_iterations < 1 or memory < 1:
        raise OptionError(f"ridge: max_iterations and memory must be positive, got {max_iterations} and {memory}")
    if system not in (None, "primal", "dual"):
        raise OptionError(f"ridge: system must be 'primal', 'dual' or None for the cheaper one; got {system!r}")


def _check_data(
    X: CsrArray, Y: CsrArray, book: Codebook, weights: FloatArray | None, label_weights: FloatArray | None
) -> tuple[CsrArray, CsrArray, FloatArray | None, FloatArray | None]:
    """CSR X in float32 and 0/1 Y, without points of weight 0; roots of weights."""
    for name, matrix in (("X", X), ("Y", Y)):
        if not sparse.issparse(matrix):
            raise DTypeError(
                f"ridge: {name} must be a scipy sparse matrix, got {type(matrix).__name__}; try csr_matrix"
            )
    if X.shape[0] != Y.shape[0] or X.shape[0] == 0:
        raise ShapeError(f"ridge: X and Y need one row for each point, got {X.shape[0]} and {Y.shape[0]} rows")
    if Y.shape[1] != book.n_labels:
        raise ShapeError(f"ridge: Y has {Y.shape[1]} labels and the codebook {book.n_labels}")
    X = sparse.csr_array(X).astype(np.float32, copy=False)
    if not np.isfinite(X.data).all():
        raise DTypeError("ridge: X holds a NaN or an infinite number")
    Y = binary_labels(Y)
    roots, values = _weights("weights", weights, X.shape[0]), _weights("label_weights", label_weights, Y.shape[1])
    if roots is not None:
        roots = np.sqrt(roots)
        X, Y, roots = X[roots > 0], Y[roots > 0], roots[roots > 0]
        if not len(roots):
            raise OptionError("ridge: all weights are 0")
    return X, Y, roots, values


def _weights(name: str, given: FloatArray | None, n: int) -> FloatArray | None:
    if given is None:
        return None
    array = np.asarray(given, np.float64)
    if array.shape != (n,):
        raise ShapeError(f"ridge: {name} needs {n} numbers, got shape {array.shape}")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise OptionError(f"ridge: {name} must be finite and not negative")
    return array.astype(np.float32)
