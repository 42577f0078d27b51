"""The two solvers of `solve_ridge`: Cholesky factorisation and conjugate gradients."""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from holobind._threads import threaded
from holobind._types import CsrArray, FloatArray, ProgressCallback, RowIndex
from holobind.codebooks.base import Codebook
from holobind.data.holdout import MAX_HELD_OUT_ROWS, holdout
from holobind.errors import OptionError
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn._kernels import conjugate_gradients
from holobind.ridge_knn._linalg import BLOCK_COLUMNS, gram, product

MAX_TARGET_BYTES = 1 << 28  # of the targets of some rows


@dataclass
class RidgeProblem:
    """X and the targets T of a ridge regression, and the choice of the system to solve.

    The targets have d columns, or where L <= d the L columns of Y; `columns` is their number.

    row_roots      square roots of the rows' weights, or None
    label_values   label weights, or None
    dual           whether to solve the dual system
    memory         bytes for targets and for blocks of columns
    """

    X: CsrArray
    Y: CsrArray
    codebook: Codebook
    row_roots: FloatArray | None
    label_values: FloatArray | None
    dual: bool
    memory: int
    on_progress: ProgressCallback

    def __post_init__(self) -> None:
        X = self.X if self.row_roots is None else csr_array(diags_array(self.row_roots) @ self.X)
        self.weighted_X, self.weighted_X_t = X, csr_array(X.T)
        self.targets_are_labels = self.codebook.n_labels <= self.codebook.dim
        self.columns = min(self.codebook.n_labels, self.codebook.dim)

    def subset(self, rows: RowIndex) -> "RidgeProblem":
        """The same problem on some of the rows."""
        row_roots = None if self.row_roots is None else self.row_roots[rows]
        return replace(self, X=self.X[rows], Y=self.Y[rows], row_roots=row_roots)

    def targets(self, rows: slice | RowIndex) -> FloatArray:
        """Targets of some rows, without the weights of rows.  Shapes: -> (rows, columns)"""
        Y = self.Y[rows]
        if self.label_values is not None:
            Y = csr_array(Y @ diags_array(self.label_values))
        if self.targets_are_labels:
            return np.asarray(Y.toarray(), np.float32)
        labels, offsets = (torch.from_numpy(array.astype(np.int64)) for array in (Y.indices, Y.indptr[:-1]))
        weights = None if self.label_values is None else torch.from_numpy(np.asarray(Y.data, np.float32))
        return self.codebook.encode(labels, offsets, weights).detach().numpy()

    def right_side(self) -> FloatArray:
        """X'T, or T for the dual, with few bytes of T at a time.  Shapes: -> (f or n, columns)"""
        n, f = self.X.shape
        total = np.zeros((n if self.dual else f, self.columns), np.float32)
        height = max(1, min(self.memory // 2, MAX_TARGET_BYTES) // (total.itemsize * self.columns))
        for top in range(0, n, height):
            rows = slice(top, min(top + height, n))
            T = self.targets(rows)
            if self.row_roots is not None:
                T *= self.row_roots[rows, None]
            if self.dual:
                total[rows] = T
            else:
                total += product(self.weighted_X_t if height >= n else csr_array(self.weighted_X[rows].T), T)
        return total

    def primal(self, solution: FloatArray) -> FloatArray:
        """W from the unknowns of the system.  Shapes: (f or n, columns) -> (f, columns)"""
        return product(self.weighted_X_t, solution) if self.dual else solution

    def weights(self, solution: FloatArray) -> Tensor:
        """W with the codebook's dimensions as columns.  Shapes: (f or n, columns) -> (f, d)"""
        W = torch.from_numpy(self.primal(solution))
        return self.codebook.weighted_sum(W).detach() if self.targets_are_labels else W

    def ndcg(self, outputs: FloatArray, rows: RowIndex) -> float:
        """nDCG@5 of outputs for some rows, in percent.

        It weighs ranks better than the mean of P@1 and P@5, in which P@1 decides alone, as it is larger.
        """
        v = torch.from_numpy(outputs)
        v = self.codebook.weighted_sum(v) if self.targets_are_labels else v
        ranked = self.codebook.top_k(v, min(5, self.codebook.n_labels))[1].numpy()
        return float(ndcg_at_k(self.Y[rows], ranked)[-1])


class RidgeSolver(Protocol):
    has_tolerance: ClassVar[bool]  # whether a smaller tolerance changes the solution

    def validate(self, l2: float, tolerance: float) -> float:
        """nDCG@5 on validation rows with this penalty, in percent."""
        ...

    def solve(self, l2: float, tolerance: float) -> tuple[FloatArray, int, float]:
        """The unknowns of the system, the number of iterations and the relative residual."""
        ...


class CholeskySolver:
    """Factorisation of the Gram matrix. Validation is exact leave-one-out, without another solution for each row:

        t_i - x_i W_(without i) = (t_i - x_i W) / (1 - h_i),      h_i = x_i' (X'X + l2)^-1 x_i

    and in the dual, with A = K T and K = (X X' + l2)^-1, the right side is A_i / K_ii.
    """

    def __init__(self, problem: RidgeProblem) -> None:
        self.problem = problem
        self.gram = torch.from_numpy(gram(problem.weighted_X.T.tocsr() if problem.dual else problem.weighted_X))
        self.right = torch.from_numpy(problem.right_side())
        n = problem.X.shape[0]
        self.rows = np.unique(np.linspace(0, n - 1, min(n, MAX_HELD_OUT_ROWS)).astype(np.intp))
        self.targets = problem.targets(self.rows)

    has_tolerance: ClassVar[bool] = False

    def validate(self, l2: float, tolerance: float) -> float:
        p, rows = self.problem, self.rows
        inverse = torch.cholesky_inverse(self._factor(l2, self.gram.dtype))
        solution = (inverse @ self.right.to(inverse.dtype)).to(self.right.dtype).numpy()
        if p.dual:
            errors = solution[rows] / inverse.diagonal().numpy()[rows, None]
            if p.row_roots is not None:
                errors /= p.row_roots[rows, None]
        else:
            X = p.weighted_X[rows]
            leverage = np.asarray(X.multiply(product(X, inverse.to(self.gram.dtype).numpy())).sum(1)).reshape(-1, 1)
            errors = (self.targets - product(p.X[rows], solution)) / np.maximum(1 - leverage, 1e-6)
        return p.ndcg(self.targets - errors, rows)

    def solve(self, l2: float, tolerance: float) -> tuple[FloatArray, int, float]:
        residual = torch.inf
        solution = self.right
        for dtype in dict.fromkeys((self.gram.dtype, torch.float64)):
            solution = torch.cholesky_solve(self.right.to(dtype), self._factor(l2, dtype)).to(self.right.dtype)
            difference = torch.addmm(self.right - l2 * solution, self.gram, solution, alpha=-1)
            residual = float(difference.norm() / self.right.norm().clamp_min(torch.finfo(torch.float32).tiny))
            if residual < 1e-3:
                break
        return solution.numpy(), 0, residual

    def _factor(self, l2: float, dtype: torch.dtype) -> Tensor:
        system = self.gram.to(dtype, copy=True)
        system.diagonal().add_(l2)
        factor, failed = torch.linalg.cholesky_ex(system)
        if not failed:
            return factor
        if dtype != torch.float64:
            return self._factor(l2, torch.float64)
        raise OptionError(
            f"solve_ridge: with l2 {l2:g} the system of these features is singular to rounding; take a larger l2"
        )


class ConjugateGradientSolver:
    """Conjugate gradients with the diagonal as preconditioner, on blocks of columns, each on one thread.

    Validation holds rows out; each penalty starts from the solution for the one before.
    """

    has_tolerance: ClassVar[bool] = True

    def __init__(self, problem: RidgeProblem, max_iterations: int, seed: int, start: FloatArray | None) -> None:
        self.problem, self.max_iterations, self.start = problem, max_iterations, start
        n = problem.X.shape[0]
        self.kept, self.held = holdout(n, max(1, min(MAX_HELD_OUT_ROWS, n // 5)), seed)
        self.search: tuple[RidgeProblem, FloatArray, FloatArray] | None = None  # kept rows, right side, solution

    def validate(self, l2: float, tolerance: float) -> float:
        if self.search is None:
            kept = self.problem.subset(self.kept)
            right = kept.right_side()
            self.search = kept, right, np.zeros_like(right)
        kept, right, solution = self.search
        self._iterate(kept, right, solution, l2, tolerance, f"l2 {l2:.3g}")
        return self.problem.ndcg(product(self.problem.X[self.held], kept.primal(solution)), self.held)

    def solve(self, l2: float, tolerance: float) -> tuple[FloatArray, int, float]:
        right = self.problem.right_side()
        solution = np.zeros_like(right) if self.start is None else self.start
        if self.search is not None:
            if not self.problem.dual:
                solution = self.search[2]
            self.search = None
        iterations, residual = self._iterate(self.problem, right, solution, l2, tolerance, "solve")
        return solution, iterations, residual

    def _iterate(
        self, p: RidgeProblem, right: FloatArray, solution: FloatArray, l2: float, tolerance: float, stage: str
    ) -> tuple[int, float]:
        """Improve `solution` in place; the largest number of iterations of a block, and the relative residual."""
        A, A_t = (p.weighted_X_t, p.weighted_X) if p.dual else (p.weighted_X, p.weighted_X_t)
        diagonal = np.asarray(A.multiply(A).sum(0), right.dtype).ravel() + right.dtype.type(l2)
        arrays = A.indptr, A.indices, A.data, A_t.indptr, A_t.indices, A_t.data
        n_threads = torch.get_num_threads()
        column_bytes = right.itemsize * (6 * A.shape[1] + A.shape[0])
        width = max(1, min(BLOCK_COLUMNS, -(-p.columns // n_threads), p.memory // (n_threads * column_bytes)))

        def solve_block(start: int) -> tuple[int, float, float]:
            block = np.s_[:, start : start + width]
            B, W = np.ascontiguousarray(right[block]), np.ascontiguousarray(solution[block])
            result = conjugate_gradients(*arrays, diagonal, right.dtype.type(l2), B, W, self.max_iterations, tolerance)
            solution[block] = W
            return result

        starts = range(0, p.columns, width)
        max_iterations, residual_sq, target_sq = 0, 0.0, 0.0
        for i, (iterations, block_residual_sq, block_target_sq) in enumerate(threaded(solve_block, starts)):
            max_iterations = max(max_iterations, iterations)
            residual_sq, target_sq = residual_sq + block_residual_sq, target_sq + block_target_sq
            p.on_progress(stage, (i + 1) / len(starts))
        return max_iterations, (residual_sq / target_sq) ** 0.5 if target_sq else 0.0
