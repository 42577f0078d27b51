"""A layer and the query loss of fixed label vectors on the CPU: a matrix product and one compiled pass in place of
some thirty small kernels.

At the paper's small shapes a whole training step takes a millisecond, half of which those kernels were.
"""

from math import isnan
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, empty, float32, is_grad_enabled, scalar_tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# Sums may be reordered, which lets them run on vector units; NaN and infinity keep their meaning.
_REORDER = {"reassoc", "contract", "nsz"}
_BLOCK = 16  # rows of four-byte numbers whose columns are a line of cache

# Labels, offsets, p (x) c and m (x) c as rings or as tables, the number of labels, and whether they are rings: what has
# no gradient is one argument, as each takes its time.
Question = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], NDArray[np.float32], int, bool]


class FusedQuery(Function):
    """mean over rows |Y| - <s, p (x) e> / |s| + <s, m (x) e> / (|s| |e|), as proven at `losses.query_loss`.

        s = h W' + b,    or h itself where there is no W

    The slope of the loss by s comes out of the pass that computes it; what is left for backward are two products.
    Rings hold each base twice in a row, so that every roll of it is a slice (`OrbitCodebook`); tables hold each vector,
    one after the other. A label outside of the space, offsets that make no sense or a NaN raise FloatingPointError: the
    caller then looks for what is wrong.

    Shapes: (rows, in), (d, in), (d), (total), (rows), 2 x (bases * 2 d) or 2 x (L * d) -> ()
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor | None, bias: Tensor | None, question: Question) -> Tensor:
        # W h' in place of h W' is the same sums in an order that takes a fifth less time.
        s = h.detach().contiguous().numpy() if weight is None else weight.mm(h.t()).numpy().T
        rows, d = s.shape
        slope, slope_of_bias = empty(rows, d, dtype=float32), empty(d, dtype=float32)
        offset = np.zeros(d, np.float32) if bias is None else bias.detach().numpy()
        total = _query(s, *question, slope.numpy(), offset, slope_of_bias.numpy())
        if isnan(total):
            raise FloatingPointError
        ctx.save_for_backward(h, weight)
        ctx.slopes = slope, slope_of_bias
        return scalar_tensor(total, dtype=float32)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Only where gradients get a graph of their own is there a second derivative to refuse, which takes time.
        return _gradients_once(ctx, grad) if is_grad_enabled() else _gradients(ctx, grad)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    h, weight = ctx.saved_tensors
    slope, slope_of_bias = ctx.slopes
    if grad.item() != 1:
        slope, slope_of_bias = slope * grad, slope_of_bias * grad
    if weight is None:
        return slope, None, None, None
    of_h, _, of_bias, _ = ctx.needs_input_grad
    return slope.mm(weight) if of_h else None, slope.t().mm(h), slope_of_bias if of_bias else None, None


_gradients_once: Any = once_differentiable(_gradients)


@njit(inline="always")
def _vector(numbers, label, d, rings):  # type: ignore[no-untyped-def]
    start = label // d * 3 * d + d - label if rings else label * d
    return numbers[start : start + d]  # a slice, as its indices need no checks


def _query_rows(
    s: NDArray[np.float32],
    labels: NDArray[np.int64],
    offsets: NDArray[np.int64],
    asked: NDArray[np.float32],
    absent: NDArray[np.float32],
    n_labels: int,
    rings: bool,
    slope: NDArray[np.float32],
    bias: NDArray[np.float32],
    slope_of_bias: NDArray[np.float32],
) -> float:
    """The mean over rows; its gradients are written to `slope` and `slope_of_bias`. `s` comes without the bias."""
    rows, d = s.shape
    present, missing = np.empty(d, np.float32), np.empty(d, np.float32)
    block = np.empty((_BLOCK, d), np.float32)  # some rows of `s`, whatever its order in memory
    one = np.float32
    total = 0.0
    slope_of_bias[:] = 0
    if rows == 0:
        return 0.0 if len(labels) == 0 else np.nan
    if offsets[0] != 0:
        return np.nan
    for row in range(rows):
        if row % _BLOCK == 0:
            for j in range(d):
                for i in range(_BLOCK):  # a fixed number, which is unrolled: at the end the last row is repeated
                    block[i, j] = s[min(row + i, rows - 1), j]
        first = offsets[row]
        last = offsets[row + 1] if row + 1 < rows else len(labels)
        if last < first or last > len(labels):
            return np.nan
        for at in range(first, last):
            if labels[at] < 0 or labels[at] >= n_labels:
                return np.nan
        # Two labels in a pass, as it is the sums that are read and written again; an odd one comes first.
        odd = (last - first) % 2
        if odd:
            yes, no = _vector(asked, labels[first], d, rings), _vector(absent, labels[first], d, rings)
            for j in range(d):
                present[j], missing[j] = yes[j], no[j]
        else:
            present[:] = 0
            missing[:] = 0
        for at in range(first + odd, last, 2):
            yes, no = _vector(asked, labels[at], d, rings), _vector(absent, labels[at], d, rings)
            yes_too, no_too = _vector(asked, labels[at + 1], d, rings), _vector(absent, labels[at + 1], d, rings)
            for j in range(d):
                present[j] += yes[j] + yes_too[j]
                missing[j] += no[j] + no_too[j]
        x, out = block[row % _BLOCK], slope[row]
        size, square, right, wrong = one(0), one(0), one(0), one(0)
        for j in range(d):
            x[j] += bias[j]
            size += missing[j] * missing[j]
            square += x[j] * x[j]
            right += x[j] * present[j]
            wrong += x[j] * missing[j]
        over_size = one(0) if size == 0 else one(1) / np.sqrt(size)
        scale = one(1)
        if not (square > 1e-30 and square < 1e30):  # squares out of range: once more, on a row of length about 1
            largest = np.abs(x).max()
            scale = one(1) / largest if largest > 1e-37 else one(0)
            square, right, wrong = one(0), one(0), one(0)
            for j in range(d):
                square += (x[j] * scale) * (x[j] * scale)
                right += (x[j] * scale) * present[j]
                wrong += (x[j] * scale) * missing[j]
        total += last - first
        # A row so short that its square vanishes has no direction that can be trusted.
        short = square == 0 or np.sqrt(np.float64(square)) / scale < np.sqrt(np.float64(np.finfo(np.float32).tiny))
        over_length = one(0) if short else one(1) / np.sqrt(square)
        cosine = (right - wrong * over_size) * over_length
        total -= cosine
        a = over_length * scale / one(rows)
        b, c = a * over_size, cosine * over_length
        for j in range(d):
            out[j] = (c * (x[j] * scale) - present[j]) * a + b * missing[j]
            slope_of_bias[j] += out[j]
    return total / rows


# A NaN among the inputs must come out as one, not as an exception of division.
_query: Any = njit(fastmath=_REORDER, nogil=True, cache=True, error_model="numpy")(_query_rows)
