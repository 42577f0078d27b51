"""Block conjugate gradients to a small tolerance: a factored block of the strongest features is the preconditioner.

    (X'X + l2) W = B

`_ridge_solvers` stops early and preconditions with the diagonal. A relative residual of 1e-4 takes it ten times as many
iterations, because frequent features are correlated. Here, the Gram matrix of the features with the largest sums of
squares is inverted once, and only the other features are preconditioned by the diagonal. That takes a third to a half
of these iterations.

Where X has many entries for each feature, the columns of a block search together (O'Leary 1980): every column takes the
best step in the space of the directions of all, which takes a third of the iterations again. With directions P of
length 1 that are orthogonal to each other,

    Q = A P,    G = P'Q,    W += P G^-1 P'R,    R -= Q G^-1 P'R,    S = M^-1 R,    P = orth(S - P G^-1 Q'S)

`orth` leaves out directions that depend on others, as for two equal columns, so that G is never singular (Ji and Li
2017, breakdown-free block conjugate gradients).
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from holobind._jit import compiled
from holobind._threads import num_threads, threaded
from holobind._types import CsrArray, FloatArray
from holobind.errors import OptionError
from holobind.ridge_knn._kernels import sparse_dense_product
from holobind.ridge_knn._linalg import BLOCK_COLUMNS, gram

MAX_BLOCK_FEATURES = 1024  # whose Gram matrix is inverted; twice as many save less time than they take
MAX_ITERATIONS = 300
# Entries of X, for each feature and column of a block, from which fewer sparse products pay for the dense ones
MIN_ENTRIES_PER_FEATURE = 0.8
MIN_EIGENVALUE = 1e-5  # relative to the largest, of the correlations of directions; rounding of float32 is below


class BlockSolver:
    """Solutions for the columns of any B, with one matrix X'X + l2.  Shapes: X (n, f)"""

    def __init__(self, X: CsrArray, l2: float) -> None:
        self.X, self.X_t, self.l2 = X, csr_array(X.T), np.float32(l2)
        squares = np.bincount(X.indices, X.data.astype(np.float64) ** 2, minlength=X.shape[1])
        self.diagonal = (squares + l2).astype(np.float32)
        self.block = np.sort(np.argsort(-squares, kind="stable")[:MAX_BLOCK_FEATURES])
        with num_threads(1):  # a second thread saves little of so short a time
            system = torch.from_numpy(gram(csr_array(self.X_t[self.block].T)).astype(np.float64))
            system.diagonal().add_(l2)
            factor, failed = torch.linalg.cholesky_ex(system)
            if failed:
                raise OptionError(
                    f"with l2 {l2:g} the system of these rows is singular to rounding; fit with a larger l2"
                )
            self.inverse = torch.cholesky_inverse(factor).float()

    def solve(self, B: FloatArray, tolerance: float, norms: FloatArray | None = None) -> tuple[FloatArray, float]:
        """W, and the largest relative residual of a column.

        norms   of columns, to which residuals are relative; None: those of B

        Shapes: (f, c), (c) -> (f, c), ()
        """
        W = np.empty(B.shape, np.float32)
        # Two blocks at least, and as many on any number of threads: the result depends on them by rounding.
        n_blocks = 2 * -(-B.shape[1] // (2 * BLOCK_COLUMNS))
        width = max(1, -(-B.shape[1] // max(n_blocks, 1)))
        shared = self.X.nnz > MIN_ENTRIES_PER_FEATURE * width * self.X.shape[1]
        solve = self._solve_block if shared else self._solve_columns

        def solve_block(start: int) -> float:
            block = np.s_[:, start : start + width]
            right = np.ascontiguousarray(B[block], np.float32)
            given = np.linalg.norm(right, axis=0) if norms is None else norms[start : start + width]
            given = given.astype(np.float32)
            W[block] = solve(right, given, tolerance)
            left = np.linalg.norm(right, axis=0)[given > 0] / given[given > 0]
            return float(left.max(initial=0))

        return W, max(threaded(solve_block, range(0, B.shape[1], width)), default=0.0)

    def _solve_block(self, R: FloatArray, norms: FloatArray, tolerance: float) -> FloatArray:
        """The solution by shared directions, on this thread. R is the right side, and becomes the residual."""
        W, S = np.zeros_like(R), np.empty_like(R)
        self._precondition(R, S)
        P = _orthonormal(S)
        for _ in range(MAX_ITERATIONS):
            if (np.einsum("ij,ij->j", R, R) <= (tolerance * norms) ** 2).all() or not P.shape[1]:
                break
            Q = self._normal_product(P)
            G = _products(P, Q)
            steps = np.linalg.solve(G, _products(P, R))
            W += _times(P, steps)
            R -= _times(Q, steps)
            self._precondition(R, S)
            P = _orthonormal(np.subtract(S, _times(P, np.linalg.solve(G, _products(Q, S)))))
        return W

    def _solve_columns(self, R: FloatArray, norms: FloatArray, tolerance: float) -> FloatArray:
        """The solution by a step for each column, on this thread. R is the right side, and becomes the residual."""
        A, A_t = ((M.indptr, M.indices, M.data) for M in (self.X, self.X_t))
        W, U, Q, S = np.zeros_like(R), np.empty((self.X.shape[0], R.shape[1]), np.float32), np.empty_like(R), R.copy()
        self._precondition(R, S)
        P, rho = S.copy(), np.einsum("ij,ij->j", R, S)
        limits = (tolerance * norms) ** 2
        for _ in range(MAX_ITERATIONS):
            active = np.einsum("ij,ij->j", R, R) > limits
            if not active.any():
                break
            sparse_dense_product(*A, P, U)
            sparse_dense_product(*A_t, U, Q)
            curvature = _add_penalty(P, self.l2, Q)
            steps = np.where(active & (curvature > 0), rho / np.where(curvature > 0, curvature, 1), 0)
            _step(steps.astype(np.float32), P, Q, W, R)
            self._precondition(R, S)
            rho_next = np.einsum("ij,ij->j", R, S)
            _turn(np.where(rho > 0, rho_next / np.where(rho > 0, rho, 1), 0).astype(np.float32), S, P)
            rho = rho_next
        return W

    def _normal_product(self, P: FloatArray) -> FloatArray:
        """(X'X + l2) P.  Shapes: (f, c) -> (f, c)"""
        U, Q = np.empty((self.X.shape[0], P.shape[1]), np.float32), np.empty_like(P)
        for M, V, out in ((self.X, P, U), (self.X_t, U, Q)):
            sparse_dense_product(M.indptr, M.indices, M.data, V, out)
        Q += self.l2 * P
        return Q

    def _precondition(self, R: FloatArray, out: FloatArray) -> None:
        np.divide(R, self.diagonal[:, None], out=out)
        out[self.block] = torch.mm(self.inverse, torch.from_numpy(R[self.block])).numpy()


def _products(A: FloatArray, B: FloatArray) -> NDArray[np.float64]:
    """A'B.  Shapes: (f, a), (f, b) -> (a, b)"""
    return torch.mm(torch.from_numpy(A).T, torch.from_numpy(B)).double().numpy()


def _times(A: FloatArray, B: NDArray[Any]) -> FloatArray:
    """A B.  Shapes: (f, a), (a, b) -> (f, b)"""
    return torch.mm(torch.from_numpy(A), torch.from_numpy(B.astype(np.float32))).numpy()


def _orthonormal(S: FloatArray) -> FloatArray:
    """Columns of length 1, orthogonal to each other, that span those of S.  Shapes: (f, c) -> (f, at most c)"""
    gram = _products(S, S)
    lengths = np.sqrt(np.diagonal(gram))
    scales = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    values, vectors = np.linalg.eigh(gram * scales[:, None] * scales)
    kept = values > MIN_EIGENVALUE * max(float(values[-1]), 1e-300)
    return _times(S, scales[:, None] * vectors[:, kept] / np.sqrt(values[kept]))


@compiled(fastmath=True)
def _add_penalty(P, l2, Q):  # type: ignore[no-untyped-def]
    """Q += l2 P; the sums of P Q over columns."""
    curvature = np.zeros(P.shape[1], np.float32)
    for i in range(len(P)):
        for c in range(P.shape[1]):
            Q[i, c] += l2 * P[i, c]
            curvature[c] += P[i, c] * Q[i, c]
    return curvature


@compiled(fastmath=True)
def _step(steps, P, Q, W, R):  # type: ignore[no-untyped-def]
    """W += steps P, R -= steps Q."""
    for i in range(len(P)):
        for c in range(P.shape[1]):
            W[i, c] += steps[c] * P[i, c]
            R[i, c] -= steps[c] * Q[i, c]


@compiled(fastmath=True)
def _turn(steps, S, P):  # type: ignore[no-untyped-def]
    """P = S + steps P."""
    for i in range(len(P)):
        for c in range(P.shape[1]):
            P[i, c] = S[i, c] + steps[c] * P[i, c]
