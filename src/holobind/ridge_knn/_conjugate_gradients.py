"""Conjugate gradients for several right sides at a time, with the system as an operator."""

from collections.abc import Callable

import numpy as np

from holobind._types import FloatArray
from holobind.ridge_knn._row_kernels import start_gradients, step_gradients
from holobind.ridge_knn.row_operator import Operator

MAX_ACTIVE_FRACTION = 0.75  # of the columns of a block: with fewer active ones, only these go on


def conjugate_gradients(
    operator: Operator,
    B: FloatArray,
    W: FloatArray,
    diagonal: FloatArray,
    l2: float,
    max_iterations: int,
    tolerance: float,
    any_active: Callable[[bool], bool] = bool,
    shrinks: bool = False,
) -> tuple[int, float, float]:
    """Solve (S + l2) W = B in place, from the start W, for each column; returns (iterations, |residual|^2, |B|^2).

    `diagonal` preconditions. Sums over unknowns are in float64, and a column's result does not depend on the others.

    any_active   whether any of the processes that iterate together still has a column to improve
    shrinks      whether columns that are solved may be left out, once they are many: products of the others then have
                 to be the same, to the bit

    Shapes: B, W (m, w), diagonal (m)
    """
    penalty = np.float32(l2)
    R, P = np.empty_like(B), np.empty_like(B)
    rho, residual_sq, target_sq = (np.zeros(B.shape[1]) for _ in range(3))
    Q = operator.normal_product(W) if any_active(bool(W.any())) else np.zeros_like(B)
    start_gradients(B, Q, W, diagonal, penalty, R, P, rho, residual_sq, target_sq)
    del Q
    columns, solution, residuals, total = np.arange(B.shape[1]), W, residual_sq, float(target_sq.sum())
    iterations = 0
    while iterations < max_iterations:
        active = residual_sq > tolerance**2 * target_sq
        if not any_active(bool(active.any())):
            break
        if shrinks and np.count_nonzero(active) <= MAX_ACTIVE_FRACTION * len(active):
            solution[:, columns], residuals[columns] = W, residual_sq
            columns = columns[active]
            W, R, P = (np.take(A, np.flatnonzero(active), axis=1) for A in (W, R, P))
            rho, residual_sq, target_sq = rho[active], residual_sq[active], target_sq[active]
        iterations += 1
        Q = operator.normal_product(P)
        step_gradients(Q, W, R, P, diagonal, penalty, tolerance, rho, residual_sq, target_sq)
        del Q
    if W is not solution:
        solution[:, columns], residuals[columns] = W, residual_sq
    return iterations, float(residuals.sum()), total
