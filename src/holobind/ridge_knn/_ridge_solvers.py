"""The two solvers of `solve_ridge`: Cholesky factorisation and conjugate gradients."""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from holobind._processes import ALONE, Processes
from holobind._threads import task_threads, threaded
from holobind._types import CsrArray, FloatArray, IntArray, ProgressCallback, RowIndex
from holobind.codebooks import Codebook, OrbitCodebook
from holobind.data.csr import release_pages, row_range, take_rows
from holobind.data.holdout import MAX_HELD_OUT_ROWS, holdout
from holobind.errors import OptionError
from holobind.metrics import ndcg_at_k
from holobind.ridge_knn._conjugate_gradients import conjugate_gradients
from holobind.ridge_knn._kernels import add_slices
from holobind.ridge_knn._linalg import BLOCK_COLUMNS, gram, product
from holobind.ridge_knn.candidates import shared_top_k
from holobind.ridge_knn.fit_checkpoint import NO_CHECKPOINT, FitCheckpoint
from holobind.ridge_knn.row_operator import DualOperator, GramOperator, Operator, RowOperator, costs

MAX_TARGET_BYTES = 1 << 22  # of the targets of some rows
MAX_RIGHT_SIDE_BYTES = 1 << 28  # that the search for l2 keeps
CG_VECTORS = 5  # of the size of a block of columns: right side, solution, residual, direction and product


@dataclass
class RidgeProblem:
    """X and the targets T of a ridge regression, and the choice of the system to solve.

    The targets have d columns, or where L <= d the L columns of Y; `columns` is their number. Several processes solve
    for a share of the columns each, `own_columns`.

    Y              1 for a label of a row, -1 for one that was rejected for it
    row_roots      square roots of the rows' weights, or None; rows with 0 are not part of the problem
    label_values   label weights, or None
    constant       value of the constant feature, which comes last; 0 for none
    dual           whether to solve the dual system
    memory         bytes for targets and for blocks of columns
    groups         ids of the groups that are held out as a whole, or None
    processes      that share the columns
    shard_rows     whether they share the rows as well, in the primal
    """

    X: CsrArray
    Y: CsrArray
    codebook: Codebook
    row_roots: FloatArray | None
    label_values: FloatArray | None
    constant: float
    dual: bool
    memory: int
    on_progress: ProgressCallback
    groups: IntArray | None = None
    processes: Processes = ALONE
    shard_rows: bool = False

    def __post_init__(self) -> None:
        self.targets_are_labels = self.codebook.n_labels <= self.codebook.dim
        self.columns = min(self.codebook.n_labels, self.codebook.dim)
        self.own_columns = self.processes.share(self.columns)
        self.shard_rows = self.shard_rows and not self.dual
        self.rows = RowOperator(self.X, self.row_roots, self.constant, self.processes if self.shard_rows else ALONE)
        self.n_unknowns = self.X.shape[0] if self.dual else self.rows.n_unknowns

    def row_ids(self) -> IntArray:
        """The rows that are part of the problem."""
        return np.arange(self.X.shape[0]) if self.row_roots is None else np.flatnonzero(self.row_roots)

    def subset(self, rows: RowIndex) -> "RidgeProblem":
        """The same problem on some of the rows, which are not copied."""
        row_roots = np.zeros(self.X.shape[0], np.float32)
        row_roots[rows] = 1 if self.row_roots is None else self.row_roots[rows]
        return replace(self, row_roots=row_roots)

    def targets(self, rows: RowIndex) -> FloatArray:
        """Targets of some rows, without the weights of rows.  Shapes: -> (rows, columns)"""
        Y = take_rows(self.Y, rows)
        if self.label_values is not None:
            Y = csr_array(Y @ diags_array(self.label_values))
        if self.targets_are_labels:
            return np.asarray(Y.toarray(), np.float32)
        labels, offsets = (torch.from_numpy(array.astype(np.int64)) for array in (Y.indices, Y.indptr[:-1]))
        return self.codebook.encode(labels, offsets, torch.from_numpy(np.array(Y.data, np.float32))).detach().numpy()

    def right_side(self, start: int, width: int) -> FloatArray:
        """Columns of X'T, or of T for the dual; columns after the last are 0.  Shapes: -> (unknowns, width)"""
        return self.rows.processes.exchange(np.array([start]), lambda column: self._right_side(int(column[0]), width))

    def _right_side(self, start: int, width: int) -> FloatArray:
        """`right_side` of the rows of this process."""
        total = np.zeros((self.n_unknowns, width), np.float32)
        height = max(1, MAX_TARGET_BYTES // (4 * width))
        n_targets = max(0, min(width, self.columns - start))
        for top, bottom in self.rows.blocks():
            for first in range(top, bottom, height):
                last = min(first + height, bottom)
                T = np.zeros((last - first, width), np.float32)
                self._add_targets(first, last, start, T[:, :n_targets])
                if self.row_roots is not None:
                    T *= self.row_roots[first:last, None]
                if self.dual:
                    total[first:last] = T
                else:
                    self.rows.add_transposed(first, last, T, total)
            release_pages(self.Y, top, bottom)
        return total

    def _add_targets(self, first: int, last: int, start: int, out: FloatArray) -> None:
        """Add columns of the targets of the rows first to last, without the weights of rows."""
        end = start + out.shape[1]
        has_slices = isinstance(self.codebook, OrbitCodebook) and self.codebook.bases is None  # trainable bases change
        if not (has_slices or self.targets_are_labels):
            out += self.targets(np.arange(first, last))[:, start:end]
            return
        indptr, labels, values = row_range(self.Y, first, last)
        low = int(indptr[0])
        labels, values = labels[low : int(indptr[-1])], values[low : int(indptr[-1])]
        values = values * (np.float32(1) if self.label_values is None else self.label_values[labels])
        if self.targets_are_labels or not isinstance(self.codebook, OrbitCodebook):
            wanted = np.flatnonzero((labels >= start) & (labels < end))
            row = np.repeat(np.arange(last - first), np.diff(indptr))
            out[row[wanted], labels[wanted] - start] = values[wanted]
            return
        starts = self.codebook.slice_starts(torch.from_numpy(labels.astype(np.int64))).numpy() + start
        block = np.zeros(out.shape, np.float32)
        add_slices(indptr - low, starts, values, self.codebook.doubled_bases().numpy(), block)
        out += block

    def primal(self, solution: FloatArray) -> FloatArray:
        """W from the unknowns of the system.  Shapes: (unknowns, c) -> (m, c)"""
        if not self.dual:
            return solution
        W = np.empty((self.rows.n_unknowns, solution.shape[1]), solution.dtype)

        def multiply_block(start: int) -> None:
            block = np.s_[:, start : start + BLOCK_COLUMNS]
            W[block] = self.rows.transposed_product(np.ascontiguousarray(solution[block]))

        for _ in threaded(multiply_block, range(0, W.shape[1], BLOCK_COLUMNS)):
            pass
        return W

    def all_columns(self, outputs: FloatArray) -> FloatArray:
        """The columns of all processes from those of this one.  Shapes: (n, own columns) -> (n, columns)"""
        return np.ascontiguousarray(np.concatenate(self.processes.gather(np.ascontiguousarray(outputs.T))).T)

    def outputs(self, rows: RowIndex, W: FloatArray) -> FloatArray:
        """Outputs x W of some rows, with the columns of all processes.  Shapes: (m, own columns) -> (rows, columns)"""
        return self.all_columns(product(self.rows.rows(rows, weighted=False), W))

    def ndcg(self, outputs: FloatArray, rows: RowIndex) -> float:
        """nDCG@5 of outputs for some rows, in percent.

        It weighs ranks better than the mean of P@1 and P@5, in which P@1 decides alone, as it is larger.
        """
        v = torch.from_numpy(outputs)
        v = self.codebook.weighted_sum(v) if self.targets_are_labels else v
        ranked = shared_top_k(self.processes, self.codebook, v, min(5, self.codebook.n_labels))[1].numpy()
        return float(ndcg_at_k(take_rows(self.Y, rows), ranked)[-1])


class RidgeSolver(Protocol):
    has_tolerance: ClassVar[bool]  # whether a smaller tolerance changes the solution
    costs: dict[str, float]  # estimated seconds of the ways that were compared

    @property
    def name(self) -> str:
        """How the system is solved."""
        ...

    def validate(self, l2: float, tolerance: float) -> float:
        """nDCG@5 on validation rows with this penalty, in percent."""
        ...

    def solve(self, l2: float, tolerance: float) -> tuple[FloatArray, int, float]:
        """The unknowns of the system, the number of iterations and the relative residual."""
        ...


class CholeskySolver:
    """Factorisation of the Gram matrix. Validation is exact leave-one-out, without another solution for each row:

        t_i - x_i W_(without i) = (t_i - x_i W) / (1 - h_i),      h_i = x_i' (X'X + l2)^-1 x_i

    and in the dual, with A = K T and K = (X X' + l2)^-1, the right side is A_i / K_ii. With groups, whole groups are
    left out, and rows i are blocks of rows: (I - H_gg)^-1 (T_g - X_g W), or K_gg^-1 A_g.
    """

    has_tolerance: ClassVar[bool] = False
    name: ClassVar[str] = "factored"

    def __init__(self, problem: RidgeProblem) -> None:
        self.problem = problem
        self.costs: dict[str, float] = {}
        ids = problem.row_ids()
        if problem.dual:
            self.gram = torch.from_numpy(gram(csr_array(problem.rows.rows(np.arange(problem.X.shape[0])).T)))
        else:
            self.gram = torch.from_numpy(GramOperator(problem.rows).gram)
        self.right = torch.from_numpy(problem.right_side(0, problem.columns))
        n = len(ids)
        if problem.groups is None:
            self.rows = ids[np.unique(np.linspace(0, n - 1, min(n, MAX_HELD_OUT_ROWS)).astype(np.intp))]
        else:
            groups = problem.groups[ids]
            rows = np.arange(n) if n <= MAX_HELD_OUT_ROWS else holdout(n, MAX_HELD_OUT_ROWS, 0, groups)[1]
            self.rows = ids[rows[np.argsort(groups[rows], kind="stable")]]  # groups are slices of them
        self.targets = problem.targets(self.rows)

    def validate(self, l2: float, tolerance: float) -> float:
        p, rows = self.problem, self.rows
        if p.groups is not None:
            return p.ndcg(self.targets - self._group_errors(l2, p.groups[rows]), rows)
        inverse = torch.cholesky_inverse(self._factor(l2, self.gram.dtype))
        solution = (inverse @ self.right.to(inverse.dtype)).to(self.right.dtype).numpy()
        if p.dual:
            errors = solution[rows] / inverse.diagonal().numpy()[rows, None]
            if p.row_roots is not None:
                errors /= p.row_roots[rows, None]
        else:
            X = p.rows.rows(rows)
            leverage = np.asarray(X.multiply(product(X, inverse.to(self.gram.dtype).numpy())).sum(1)).reshape(-1, 1)
            outputs = product(p.rows.rows(rows, weighted=False), solution)
            errors = (self.targets - outputs) / np.maximum(1 - leverage, 1e-6)
        return p.ndcg(self.targets - errors, rows)

    def _group_errors(self, l2: float, groups: IntArray) -> FloatArray:
        """Errors of rows by regressions without their groups, which are ascending.  Shapes: -> (rows, columns)"""
        p, rows = self.problem, self.rows
        inverse = torch.cholesky_inverse(self._factor(l2, torch.float64))
        solution = (inverse @ self.right.to(inverse.dtype)).to(self.right.dtype).numpy()
        K, roots = inverse.numpy(), 1 if p.row_roots is None else p.row_roots[rows, None]
        X_rows = p.rows.rows(rows, weighted=False)
        errors = solution[rows] if p.dual else (self.targets - product(X_rows, solution)) * roots
        ends = np.flatnonzero(np.append(groups[1:] != groups[:-1], True)) + 1
        for first, last in zip(np.append(0, ends[:-1]), ends, strict=True):
            group = rows[first:last]
            if p.dual:
                system = K[np.ix_(group, group)]
            else:
                X = p.rows.rows(group).astype(np.float64)
                system = np.eye(len(group)) - X @ (X @ K).T
            errors[first:last] = np.linalg.solve(system, errors[first:last].astype(np.float64))
        return np.asarray(errors / roots, np.float32)

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

    Validation holds rows out; each penalty starts from the solution for the one before. Processes solve for their share
    of the columns each, to the bit as one process would. Where they share the rows as well, they solve for a block of
    columns each at a time, and add up their products. Blocks that the checkpoint has, under the name of this stage of a
    fit, are not solved again.
    """

    has_tolerance: ClassVar[bool] = True

    def __init__(
        self,
        problem: RidgeProblem,
        max_iterations: int,
        seed: int,
        start: FloatArray | None,
        checkpoint: FitCheckpoint = NO_CHECKPOINT,
        stage: str = "solve",
    ) -> None:
        self.problem, self.max_iterations, self.start = problem, max_iterations, start
        self.checkpoint, self.stage, self.n_solutions = checkpoint, stage, 0
        ids = problem.row_ids()
        groups = None if problem.groups is None else problem.groups[ids]
        kept, held = holdout(len(ids), max(1, min(MAX_HELD_OUT_ROWS, len(ids) // 5)), seed, groups)
        self.kept, self.held = ids[kept], ids[held]
        self.search: tuple[RidgeProblem, Operator, dict[int, FloatArray], FloatArray] | None = None
        self.costs = {} if problem.dual else costs(problem.rows, problem.columns)
        fits = 4 * problem.n_unknowns**2 <= problem.memory // 2
        self.uses_gram = bool(self.costs) and fits and self.costs["gram"] < self.costs["rows"]

    @property
    def name(self) -> str:
        return "conjugate gradients" + (" with the Gram matrix" if self.uses_gram else "")

    def validate(self, l2: float, tolerance: float) -> float:
        if self.search is None:
            kept = self.problem.subset(self.kept)
            self.search = kept, self._operator(kept), {}, self._zeros(kept)
        kept, operator, right, solution = self.search
        self._iterate(kept, operator, right, solution, l2, tolerance, f"l2 {l2:.3g}")
        return self.problem.ndcg(self.problem.outputs(self.held, kept.primal(solution)), self.held)

    def solve(self, l2: float, tolerance: float) -> tuple[FloatArray, int, float]:
        p = self.problem
        solution = self.start
        if self.search is not None:
            if not p.dual:
                solution = self.search[3]
            self.search = None
        if solution is None:
            solution = self._zeros(p)
        iterations, residual = self._iterate(p, self._operator(p), None, solution, l2, tolerance, "solve")
        return solution, iterations, residual

    def _operator(self, p: RidgeProblem) -> Operator:
        if p.dual:
            return DualOperator(p.rows)
        return GramOperator(p.rows) if self.uses_gram else p.rows

    def _zeros(self, p: RidgeProblem) -> FloatArray:
        first, last = p.own_columns
        return np.zeros((p.n_unknowns, last - first), np.float32)

    def _iterate(
        self,
        p: RidgeProblem,
        operator: Operator,
        right: dict[int, FloatArray] | None,
        solution: FloatArray,
        l2: float,
        tolerance: float,
        stage: str,
    ) -> tuple[int, float]:
        """Improve `solution` in place; the largest number of iterations of a block, and the relative residual.

        right   blocks of the right side, by their first columns, that are kept where they are small enough; or None
        """
        diagonal = operator.squares() + np.float32(l2)
        together = p.shard_rows and p.processes.size > 1
        n_threads = task_threads()
        n_blocks = 1 if together else n_threads  # that are solved at a time
        own = -(-p.columns // p.processes.size)  # every process takes the same number of blocks of the same width
        block_bytes = solution.itemsize * (CG_VECTORS + (2 if together else 0)) * p.n_unknowns
        width = max(1, min(BLOCK_COLUMNS, -(-own // n_threads), p.memory // (n_threads * block_bytes)))
        width *= n_threads if together else 1
        keeps_right = right is not None and solution.nbytes <= MAX_RIGHT_SIDE_BYTES
        name = f"{self.stage}-{self.n_solutions}"
        self.n_solutions += 1

        def solve_block(start: int) -> tuple[int, float, float]:
            columns = min(width, own - start)
            block, block_name = solution[:, start : start + columns], f"{name}-{start}-{columns}"
            stored = self.checkpoint.load_block(block_name, (len(solution), columns), together=together)
            if stored is not None:
                block[:] = stored[0][:, : block.shape[1]]
                return stored[1]
            B = None if right is None else right.get(start)
            if B is None:
                B = p.right_side(p.own_columns[0] + start, columns)
            if keeps_right and right is not None:
                right[start] = B
            W = np.zeros((len(solution), columns), np.float32)
            W[:, : block.shape[1]] = block
            B[:, block.shape[1] :] = 0  # a column of the next process
            any_active = p.processes.any if together else bool
            shrinks = not together and not self.uses_gram  # dense products depend on the width by rounding
            result = conjugate_gradients(
                operator, B, W, diagonal, l2, self.max_iterations, tolerance, any_active, shrinks
            )
            block[:] = W[:, : block.shape[1]]
            self.checkpoint.save_block(block_name, W, result)
            return result

        starts = range(0, own, width)
        max_iterations, norms = 0, np.zeros(2)
        results = threaded(solve_block, starts) if n_blocks > 1 else map(solve_block, starts)
        for i, (iterations, *squares) in enumerate(results):
            max_iterations = max(max_iterations, iterations)
            norms += squares
            p.on_progress(stage, (i + 1) / len(starts))
        residual_sq, target_sq = p.processes.sum(norms)
        if p.processes.size > 1:
            max_iterations = int(max(each[0] for each in p.processes.gather(np.array([max_iterations]))))
        return max_iterations, float(residual_sq / target_sq) ** 0.5 if target_sq else 0.0
