"""The top k of an orbit of d = 1024, compiled: transforms of 16 rows at once. Importing this module imports numba.

Rows are the lanes of vector registers: element j of all 16 rows is stored together, and one instruction computes the
same butterfly of all of them. Two bases a and b share a complex transform of d elements:

    irfft(q a)[j] + i irfft(q b)[j] = ifft(q (a + i b))[j]        q, a, b: spectra of real vectors, all d frequencies

The transform is Stockham's with radix 4, which needs no reordering. d is fixed, so that all distances in memory are
known to the compiler; 1024 is the default of models with more labels. Scores are read while they are in the cache.
"""

import numpy as np
import torch
from torch import Tensor

from holobind._jit import compiled
from holobind._threads import by_rows
from holobind._topk import insert
from holobind._types import FloatArray, IntArray

DIM = 1024
LANES = 16
GROUPS = 64  # of the scores of a row with a base, which are first compared by their maxima
SIZE = DIM * LANES
PART = SIZE + 17 * LANES  # arrays at distances of multiples of 4096 bytes would wait for each other
WORKSPACE_BYTES = 4 * 6 * PART
_FAST = {"reassoc", "contract", "nsz"}
_angles = 2 * np.pi * np.arange(DIM) / DIM
_COSINES, _SINES = np.cos(_angles).astype(np.float32), np.sin(_angles).astype(np.float32)

PairSpectra = tuple[FloatArray, FloatArray]


def pair_spectra(conj_spectra: Tensor) -> PairSpectra:
    """(a + i b) / d of each two bases a and b, at all d frequencies: real and imaginary parts.

    Shapes: (bases, d // 2 + 1) complex -> 2 x (ceil(bases / 2), d)
    """
    half = conj_spectra.numpy() / np.float32(DIM)
    full = np.concatenate([half, half[:, -2:0:-1].conj()], 1)
    full = np.concatenate([full, np.zeros((len(full) % 2, DIM), full.dtype)])
    pairs = full[::2] + np.complex64(1j) * full[1::2]
    return np.ascontiguousarray(pairs.real, np.float32), np.ascontiguousarray(pairs.imag, np.float32)


def orbit_top_k(
    query: Tensor, spectra: PairSpectra, n_labels: int, k: int, values: FloatArray, labels: IntArray
) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row, largest first, and their labels; ties go to the lower label.

    query            spectra of rows, without NaN
    values, labels   what is added to the scores of some labels; labels ascend in each row, and those below 0 or above
                     the last one are ignored

    Shapes: (n, d // 2 + 1) complex, spectra of ceil(n_labels / d) bases, 2 x (n, m) -> 2 x (n, k)
    """
    parts = torch.view_as_real(query.contiguous()).numpy()
    best, ids = np.full((len(parts), k), -np.inf, np.float32), np.zeros((len(parts), k), np.int64)

    def rank(first: int, last: int) -> None:
        rows = slice(first, last)
        added = values[rows], labels[rows]
        workspace = np.empty(6 * PART, np.float32)
        arrays = (workspace[i * PART : i * PART + SIZE] for i in range(6))
        tables = *spectra, _COSINES, _SINES
        _top_k(parts[rows], *tables, n_labels, *added, *arrays, best[rows], ids[rows])

    by_rows(rank, len(parts))
    return torch.from_numpy(best), torch.from_numpy(ids)


@compiled(fastmath=_FAST)
def _top_k(  # type: ignore[no-untyped-def]
    query, pairs_re, pairs_im, cosines, sines, n_labels, values, labels, qr, qi, xr, xi, yr, yi, best, ids
):
    """Fill `best` and `ids`. The other arrays are a workspace, each of SIZE."""
    bounds, maxima = np.empty(GROUPS * LANES, np.float32), np.empty(GROUPS * LANES, np.float32)
    filled, next_added, groups = np.empty(LANES, np.int64), np.empty(LANES, np.int64), np.empty(GROUPS, np.int64)
    for top in range(0, len(query), LANES):
        n = min(LANES, len(query) - top)
        _fill_lanes(query[top : top + n], qr, qi)
        bounds[:], filled[:], next_added[:] = -np.inf, 0, 0
        for pair in range(len(pairs_re)):
            _transform(qr, qi, pairs_re[pair], pairs_im[pair], xr, xi, yr, yi, cosines, sines)
            for side in range(2):
                first, scores = (2 * pair + side) * DIM, yr if side == 0 else yi
                if first >= n_labels:
                    break
                if n_labels - first < DIM:  # other rolls of the last base are no labels
                    scores[(n_labels - first) * LANES :] = -np.inf
                last = min(first + DIM, n_labels)
                for lane in range(n):
                    at, row_labels, row_values = next_added[lane], labels[top + lane], values[top + lane]
                    while at < len(row_labels) and row_labels[at] < last:
                        if row_labels[at] >= first:  # also where a caller's labels do not ascend
                            scores[(row_labels[at] - first) * LANES + lane] += row_values[at]
                        at += 1
                    next_added[lane] = at
                if _group_maxima(scores, maxima, bounds):
                    for lane in range(n):
                        n_groups = 0
                        for group in range(GROUPS):
                            groups[n_groups] = group
                            n_groups += maxima[group * LANES + lane] > bounds[lane]
                        if n_groups:
                            found = best[top + lane], ids[top + lane]
                            _insert_groups(scores, lane, first, groups[:n_groups], *found, filled, bounds)


@compiled()
def _insert_groups(scores, lane, first, groups, row_best, row_ids, filled, bounds):  # type: ignore[no-untyped-def]
    """Insert the scores of some groups, in the order of labels, so that the lower one of two equal ones comes first."""
    k = len(row_best)
    for roll in range(0, DIM, GROUPS):
        for group in groups:
            score = scores[(roll + group) * LANES + lane]
            filled[lane] = insert(score, first + roll + group, row_best, row_ids, filled[lane])
    if filled[lane] == k:
        for group in range(GROUPS):
            bounds[group * LANES + lane] = row_best[k - 1]


@compiled()
def _fill_lanes(query, qr, qi):  # type: ignore[no-untyped-def]
    """Spectra of up to LANES rows, at all frequencies, element by element; 0 in other lanes."""
    qr[:], qi[:] = 0, 0
    for lane in range(len(query)):
        row = query[lane]
        for f in range(DIM // 2 + 1):
            qr[f * LANES + lane], qi[f * LANES + lane] = row[f, 0], row[f, 1]
        for f in range(1, DIM // 2):
            qr[(DIM - f) * LANES + lane], qi[(DIM - f) * LANES + lane] = row[f, 0], -row[f, 1]


@compiled(fastmath=_FAST)
def _transform(qr, qi, pair_re, pair_im, xr, xi, yr, yi, cosines, sines):  # type: ignore[no-untyped-def]
    """y = the scores of all lanes with a pair of bases; x is overwritten."""
    _first_butterflies(qr, qi, pair_re, pair_im, yr, yi, cosines, sines)
    _butterflies(yr, yi, xr, xi, cosines, sines, 4)
    _butterflies(xr, xi, yr, yi, cosines, sines, 16)
    _butterflies(yr, yi, xr, xi, cosines, sines, 64)
    _butterflies(xr, xi, yr, yi, cosines, sines, 256)


@compiled(fastmath=_FAST, inline="always")
def _first_butterflies(qr, qi, pair_re, pair_im, yr, yi, cosines, sines):  # type: ignore[no-untyped-def]
    """The first pass, with stride 1, of q times the spectrum of a pair of bases."""
    n_groups, size = DIM // 4, np.uint64(LANES)
    step = size * np.uint64(n_groups)
    for p in range(n_groups):
        c1, s1, c2, s2, c3, s3 = cosines[p], sines[p], cosines[2 * p], sines[2 * p], cosines[3 * p], sines[3 * p]
        k0, l0, k1, l1 = pair_re[p], pair_im[p], pair_re[p + n_groups], pair_im[p + n_groups]
        k2, l2, k3, l3 = (
            pair_re[p + 2 * n_groups], pair_im[p + 2 * n_groups], pair_re[p + 3 * n_groups], pair_im[p + 3 * n_groups],
        )  # fmt: skip
        x0, y0 = np.uint64(p) * size, np.uint64(4 * p) * size
        x1, x2, x3 = x0 + step, x0 + step + step, x0 + step + step + step
        y1, y2, y3 = y0 + size, y0 + size + size, y0 + size + size + size
        for q in range(size):
            r0, i0, r1, i1 = qr[x0 + q], qi[x0 + q], qr[x1 + q], qi[x1 + q]
            r2, i2, r3, i3 = qr[x2 + q], qi[x2 + q], qr[x3 + q], qi[x3 + q]
            ar, ai, br, bi = k0 * r0 - l0 * i0, k0 * i0 + l0 * r0, k1 * r1 - l1 * i1, k1 * i1 + l1 * r1
            cr, ci, dr, di = k2 * r2 - l2 * i2, k2 * i2 + l2 * r2, k3 * r3 - l3 * i3, k3 * i3 + l3 * r3
            er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
            gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
            tr, ti, ur, ui, vr, vi = fr - hi, fi + hr, er - gr, ei - gi, fr + hi, fi - hr
            yr[y0 + q], yi[y0 + q] = er + gr, ei + gi
            yr[y1 + q], yi[y1 + q] = c1 * tr - s1 * ti, c1 * ti + s1 * tr
            yr[y2 + q], yi[y2 + q] = c2 * ur - s2 * ui, c2 * ui + s2 * ur
            yr[y3 + q], yi[y3 + q] = c3 * vr - s3 * vi, c3 * vi + s3 * vr


@compiled(fastmath=_FAST, inline="always")
def _butterflies(xr, xi, yr, yi, cosines, sines, stride):  # type: ignore[no-untyped-def]
    """One pass of an inverse transform with radix 4, from x to y."""
    n_groups, size = DIM // (4 * stride), np.uint64(stride * LANES)
    step = size * np.uint64(n_groups)
    for p in range(n_groups):
        c1, s1 = cosines[p * stride], sines[p * stride]
        c2, s2 = cosines[2 * p * stride], sines[2 * p * stride]
        c3, s3 = cosines[3 * p * stride], sines[3 * p * stride]
        x0, y0 = np.uint64(p) * size, np.uint64(4 * p) * size
        x1, x2, x3 = x0 + step, x0 + step + step, x0 + step + step + step
        y1, y2, y3 = y0 + size, y0 + size + size, y0 + size + size + size
        for q in range(size):
            ar, ai, br, bi = xr[x0 + q], xi[x0 + q], xr[x1 + q], xi[x1 + q]
            cr, ci, dr, di = xr[x2 + q], xi[x2 + q], xr[x3 + q], xi[x3 + q]
            er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
            gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
            tr, ti, ur, ui, vr, vi = fr - hi, fi + hr, er - gr, ei - gi, fr + hi, fi - hr
            yr[y0 + q], yi[y0 + q] = er + gr, ei + gi
            yr[y1 + q], yi[y1 + q] = c1 * tr - s1 * ti, c1 * ti + s1 * tr
            yr[y2 + q], yi[y2 + q] = c2 * ur - s2 * ui, c2 * ui + s2 * ur
            yr[y3 + q], yi[y3 + q] = c3 * vr - s3 * vi, c3 * vi + s3 * vr


@compiled(fastmath={"nnan", "nsz"})
def _group_maxima(scores, maxima, bounds):  # type: ignore[no-untyped-def]
    """The largest score of each group in each lane, and whether one of them is above its bound.

    Group g has the rolls g, g + GROUPS, g + 2 GROUPS and so on, so that maxima are vectorised over groups and lanes.
    """
    size, count = np.uint64(GROUPS * LANES), np.int32(0)
    maxima[:] = -np.inf
    for roll in range(np.uint64(0), np.uint64(SIZE), np.uint64(4 * GROUPS * LANES)):
        a, b, c, d = roll, roll + size, roll + size + size, roll + size + size + size
        for i in range(size):
            low, high = max(scores[a + i], scores[b + i]), max(scores[c + i], scores[d + i])
            maxima[i] = max(maxima[i], low, high)
    for i in range(size):
        count += np.int32(1 if maxima[i] > bounds[i] else 0)
    return count > 0
