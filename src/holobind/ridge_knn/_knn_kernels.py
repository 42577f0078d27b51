"""Compiled kernels of `knn_index`, each for one thread.

The score of a query with row i is (s_i a_i) >> 16, where s_i is a sum of products of integers and a_i the row's factor.
A feature has either a dense column or a list of rows; an entry of a list is 256 times the row plus its level.

Rows are sorted by their `reach`, largest first: a_i times the norm of the row's levels of features with columns. By
Cauchy and Schwarz columns add at most |q| reach_i to s_i a_i, where q are the query's levels of features with columns.
So columns are added for the first rows only. All other rows need the sum of lists, and columns only where this sum is
large enough for what columns can add.

This needs a lower bound of the k-th best score. If nothing is negative, at least k rows reach the query's level of a
feature times the k-th largest level of it, and the k-th largest sum of lists is the next bound. If something is
negative, columns are added for all rows.
"""

import numpy as np

from holobind._jit import compiled
from holobind.ridge_knn._kernels import add_columns

BUCKET_ROWS = 1024  # consecutive rows with one bound
TILE_ROWS = 8192  # rows whose scores are computed together, so that dense columns stay in the cache
GROUP_SIZE = 8  # sums that are first compared by their maximum
SAFETY = 1 + 1e-9  # for roundings of bounds in float64
MAX_SEED_ROWS = 4096  # rows of a list whose sums give a bound
UNIT_LENGTH = 127 << 14  # about a_i times the norm of the levels of a row
MAX_SUM = np.int16((1 << 15) - 1)  # no sum is as large
_U = np.uint64  # unsigned: compiled code need not handle negative indices


@compiled()
def search_rows(  # type: ignore[no-untyped-def]
    indptr, ids, levels, column_of, columns, list_ends, entries, factors, reach, max_factors, min_factor, rows_of,
    feature_seeds, min_features, buffer, cosines, neighbours,
):  # fmt: skip
    """The best k rows of each query, by scores, ties to the lowest row.

    reach           the largest one of the rows of each bucket and of all behind it
    max_factors     the largest factor of each bucket, and of all, in the last element
    rows_of         the row that each sorted row was
    feature_seeds   the k-th largest level of each feature; empty if rows have negative levels
    buffer          zeros, also afterwards

    Shapes: reach (buckets), max_factors (buckets + 1), buffer (queries that are searched together, n)
    """
    n, start, scores = len(factors), indptr[0], buffer.reshape(-1)
    width, n_buckets = _U(n), len(reach)
    maxima, groups = np.empty(n // GROUP_SIZE, np.int16), np.empty(n // GROUP_SIZE, np.uint64)
    found, found_sums = np.empty(n + 1, np.uint32), np.empty(n + 1, np.int16)
    lowest, max_entries = np.empty(n_buckets, np.int16), 0
    for r in range(len(indptr) - 1):
        max_entries = max(max_entries, indptr[r + 1] - indptr[r])
    offsets, query_levels = np.empty(max_entries, np.uint64), np.empty(max_entries, np.int16)
    cuts, bounds = np.empty(len(buffer), np.int64), np.empty(len(buffer), np.int64)
    counts = np.empty(len(buffer), np.int64)  # of the best rows found so far
    for first in range(0, len(indptr) - 1, len(buffer)):
        last, largest_cut = min(first + len(buffer), len(indptr) - 1), 0
        for r in range(first, last):
            i, low, high = r - first, indptr[r], indptr[r + 1]
            cuts[i], counts[i] = 0, 0
            if high - low < min_features:
                continue
            bound, strength, list_strength, positive, best_list = _query_bounds(
                low, high, start, ids, levels, column_of, feature_seeds, min_factor
            )
            _add_lists(low, high, start, ids, levels, column_of, list_ends, entries, _U(i) * width, scores)
            if best_list >= 0:
                n_found = _U(0)
                end = min(list_ends[best_list] + MAX_SEED_ROWS, list_ends[best_list + 1])
                for t in range(_U(list_ends[best_list]), _U(end)):
                    found_sums[n_found] = scores[_U(i) * width + _U(entries[t] >> 8)]
                    n_found += _U(1)
                kth = _kth_largest(found_sums, n_found, cosines.shape[1], np.int16(1))
                bound = max(bound, (np.int64(kth) * min_factor) >> 16)
            cut = _cut(strength, reach, bound, n) if positive else n
            if cut < n or (positive and strength * reach[n_buckets - 1] < list_strength * UNIT_LENGTH):
                for b in range(n_buckets):
                    lowest[b] = _lowest_sum(bound, strength * reach[b], max_factors[b])
                n_found = _take_sums(
                    low, high, start, ids, levels, column_of, list_ends, entries, scores, _U(i) * width,
                    lowest, found, found_sums,
                )  # fmt: skip
                used = 0
                for j in range(low, high):
                    c, q = column_of[ids[j]], levels[j - start]
                    if c >= 0 and q != 0:
                        offsets[used], query_levels[used] = _U(c) * width, q
                        used += 1
                kth = _kth_largest(found_sums, n_found, cosines.shape[1], np.int16(1))
                n_best = _insert_found(
                    n_found, kth, 1, found, found_sums, offsets, query_levels, used, columns, factors, rows_of,
                    cosines[r], neighbours[r],
                )  # fmt: skip
                if n_best == cosines.shape[1]:
                    bound = max(bound, np.int64(cosines[r, n_best - 1]))
                cut = _cut(strength, reach, bound, n)
                for b in range(n_buckets):
                    lowest[b] = _lowest_sum(bound, strength * reach[b], max_factors[b])
                n_found = _give_back(n_found, cut, lowest, found, found_sums, scores, _U(i) * width)
                counts[i] = _insert_found(
                    n_found, np.int16(1), bound, found, found_sums, offsets, query_levels, used, columns, factors,
                    rows_of, cosines[r], neighbours[r],
                )  # fmt: skip
            cuts[i], bounds[i], largest_cut = cut, bound, max(largest_cut, cut)
        for top in range(0, largest_cut, TILE_ROWS):
            for r in range(first, last):
                if top >= cuts[r - first]:
                    continue
                used, size = 0, _U(min(TILE_ROWS, cuts[r - first] - top))
                for j in range(indptr[r], indptr[r + 1]):
                    c, q = column_of[ids[j]], levels[j - start]
                    if c >= 0 and q != 0:
                        offsets[used], query_levels[used] = _U(c) * width + _U(top), q
                        used += 1
                add_columns(scores, _U(r - first) * width + _U(top), size, columns, offsets, query_levels, used)
        for r in range(first, last):
            cut, base = cuts[r - first], _U(r - first) * width
            if cut > 0:
                _best_of_first(
                    scores, base, cut, factors, max_factors[n_buckets], min_factor, bounds[r - first], rows_of, maxima,
                    groups, cosines[r], neighbours[r], counts[r - first],
                )  # fmt: skip
                for i in range(_U(cut)):
                    scores[base + i] = 0


@compiled()
def _query_bounds(first, last, start, ids, levels, column_of, feature_seeds, min_factor):  # type: ignore[no-untyped-def]
    """A lower bound of the k-th best positive score, norms of the levels of features with columns and with lists, and
    whether no product is negative.
    """
    list_seed, best_list = np.int64(0), -1
    seed, squares, list_squares, positive = np.int64(0), np.int64(0), np.int64(0), len(feature_seeds) > 0
    for j in range(first, last):
        f, q = ids[j], np.int64(levels[j - start])
        positive &= q >= 0
        if positive:
            seed = max(seed, q * feature_seeds[f])
        if column_of[f] >= 0:
            squares += q * q
        else:
            list_squares += q * q
            if positive and q * feature_seeds[f] > list_seed:
                list_seed, best_list = q * feature_seeds[f], f
    bound = max(np.int64(1), (seed * min_factor) >> 16) if positive else np.int64(1)
    return (
        bound,
        np.sqrt(np.float64(squares)) * SAFETY,
        np.sqrt(np.float64(list_squares)),
        positive,
        best_list if positive else -1,
    )


@compiled()
def _cut(strength, reach, bound, n):  # type: ignore[no-untyped-def]
    """The number of first rows, of whole buckets, behind which columns alone cannot add up to a score of `bound`."""
    bucket = 0
    while bucket < len(reach) and strength * reach[bucket] >= bound << 16:
        bucket += 1
    return min(bucket * BUCKET_ROWS, n)


@compiled()
def _add_lists(first, last, start, ids, levels, column_of, list_ends, entries, base, scores):  # type: ignore[no-untyped-def]
    """scores[base + row] += the query's level times the row's, over all lists of a query."""
    for j in range(first, last):
        f, q = ids[j], levels[j - start]
        if column_of[f] < 0 and q != 0:
            for t in range(_U(list_ends[f]), _U(list_ends[f + 1])):
                at = base + _U(entries[t] >> 8)
                scores[at] = np.int16(scores[at] + q * np.int8(entries[t]))


@compiled()
def _best_of_first(  # type: ignore[no-untyped-def]
    scores, base, cut, factors, max_factor, min_factor, bound, rows_of, maxima, groups, best, rows, filled
):  # fmt: skip
    """Insert the scores of the first rows that reach a bound into the k best.

    The k-th largest of the groups' maxima is a lower bound of the k-th largest sum; only groups that can reach it are
    read again. Group i of q groups has the sums i, i + q, i + 2 q and so on, so that maxima are vectorised over i.
    """
    k, q = len(best), _U(cut // GROUP_SIZE)
    if filled == k:
        bound = max(bound, np.int64(best[k - 1]))
    for i in range(q):
        maxima[i] = 0
    for g in range(_U(0), _U(GROUP_SIZE), _U(4)):
        a = base + g * q
        b, c, d = a + q, a + q + q, a + q + q + q
        for i in range(q):
            maxima[i] = max(maxima[i], scores[a + i], scores[b + i], scores[c + i], scores[d + i])
    lowest = _lowest_sum(bound, 0.0, max_factor)
    kth = _kth_largest(maxima, q, k, lowest)
    if kth > lowest:
        bound = max(bound, (np.int64(kth) * min_factor) >> 16)
        lowest = _lowest_sum(bound, 0.0, max_factor)
    n_groups = _U(0)
    for i in range(q):
        groups[n_groups] = i
        n_groups += _U(1 if maxima[i] >= lowest else 0)
    for g in range(_U(GROUP_SIZE)):
        for j in range(n_groups):
            at = g * q + groups[j]
            if scores[base + at] >= lowest:
                filled = _insert(_score(scores[base + at], factors[at]), bound, rows_of[at], best, rows, filled)


@compiled()
def _take_sums(  # type: ignore[no-untyped-def]
    first, last, start, ids, levels, column_of, list_ends, entries, scores, base, lowest, found, sums
):  # fmt: skip
    """Rows whose sum of lists is large enough, and these sums; all sums become 0. Their number."""
    n_found = _U(0)
    for j in range(first, last):
        f = ids[j]
        if column_of[f] < 0 and levels[j - start] != 0:
            for t in range(_U(list_ends[f]), _U(list_ends[f + 1])):
                row = _U(entries[t] >> 8)
                total = scores[base + row]
                scores[base + row] = 0  # so that a row is found once
                found[n_found], sums[n_found] = row, total
                n_found += _U(1 if total >= lowest[row // _U(BUCKET_ROWS)] else 0)
    return n_found


@compiled()
def _insert_found(  # type: ignore[no-untyped-def]
    n_found, lowest, bound, found, sums, offsets, query_levels, used, columns, factors, rows_of, best, rows
):  # fmt: skip
    """The k best of the found rows whose sum of lists is at least `lowest`, with columns added; their number."""
    filled = 0
    for t in range(n_found):
        if sums[t] >= lowest:
            row, total = _U(found[t]), np.int64(sums[t])
            for u in range(used):
                total += query_levels[u] * columns[offsets[u] + row]
            filled = _insert(_score(total, factors[row]), bound, rows_of[row], best, rows, filled)
    return filled


@compiled()
def _give_back(n_found, cut, lowest, found, sums, scores, base):  # type: ignore[no-untyped-def]
    """Write the sums of the first rows back to scores, and keep the others that are large enough; their number."""
    n_kept = _U(0)
    for t in range(n_found):
        row, total = _U(found[t]), sums[t]
        if row < _U(cut):
            scores[base + row] = total
        found[n_kept], sums[n_kept] = row, total
        n_kept += _U(1 if row >= _U(cut) and total >= lowest[row // _U(BUCKET_ROWS)] else 0)
    return n_kept


@compiled()
def _score(total, factor):  # type: ignore[no-untyped-def]
    return np.int16((np.int32(total) * np.int32(factor)) >> np.int32(16))


@compiled()
def _lowest_sum(bound, added, max_factor):  # type: ignore[no-untyped-def]
    """The smallest positive sum s with s max_factor + added >= 2^16 bound, or a smaller one; at most MAX_SUM."""
    wanted = (np.float64(bound << 16) - added) / max(np.float64(max_factor), 1.0) / SAFETY
    return np.int16(min(max(np.ceil(wanted), 1.0), np.float64(MAX_SUM)))


@compiled()
def _insert(score, bound, row, best, rows, filled):  # type: ignore[no-untyped-def]
    """Insert a score that reaches a bound into the `filled` best so far, equal ones by row; the new count."""
    k = len(best)
    if score < bound or (filled == k and (score < best[k - 1] or (score == best[k - 1] and row > rows[k - 1]))):
        return filled
    p = min(filled, k - 1)
    while p > 0 and (score > best[p - 1] or (score == best[p - 1] and row < rows[p - 1])):
        best[p], rows[p] = best[p - 1], rows[p - 1]
        p -= 1
    best[p], rows[p] = score, row
    return min(filled + 1, k)


@compiled()
def _kth_largest(values, n, k, lowest):  # type: ignore[no-untyped-def]
    """The k-th largest of the first n values, or `lowest` if fewer than k reach it, by bisection."""
    low, high = np.int64(lowest), 1 << 15
    while high - low > 1:
        middle = (low + high) >> 1
        bound, count = np.int16(middle), 0
        for first in range(_U(0), n, _U(1 << 14)):
            count += _count_reaching(values, first, min(first + _U(1 << 14), n), bound)
        if count >= k:
            low = middle
        else:
            high = middle
    return np.int16(low)


@compiled()
def _count_reaching(values, first, last, bound):  # type: ignore[no-untyped-def]
    count = np.int16(0)  # as wide as the values, so that the loop is vectorised
    for i in range(first, last):
        count = np.int16(count + (1 if values[i] >= bound else 0))
    return count


@compiled()
def dense_squares(indptr, ids, levels, column_of, out):  # type: ignore[no-untyped-def]
    """out = the sum of squares of each row's levels of features with columns."""
    for r in range(len(indptr) - 1):
        total = np.int64(0)
        for j in range(indptr[r], indptr[r + 1]):
            if column_of[ids[j]] >= 0:
                total += np.int64(levels[j]) * np.int64(levels[j])
        out[r] = total


@compiled()
def fill_index(indptr, ids, levels, rows_of, column_of, list_ends, entries, columns, level_counts):  # type: ignore[no-untyped-def]
    """Write the rows, sorted, to columns and lists; count the levels 0 to 127 of features with columns.

    Shapes: columns (c, n) and level_counts (c, 128) of zeros
    """
    filled = list_ends[:-1].copy()  # where the next entry of each list goes
    for i in range(len(rows_of)):
        for j in range(indptr[rows_of[i]], indptr[rows_of[i] + 1]):
            f, level = ids[j], levels[j]
            c = column_of[f]
            if c >= 0:
                columns[c, i] = level
                level_counts[c, level & 127] += 1
            else:
                entries[filled[f]] = (np.int64(i) << 8) | (level & 255)
                filled[f] += 1


@compiled()
def kth_levels(column_of, level_counts, list_ends, entries, k, out):  # type: ignore[no-untyped-def]
    """out = the k-th largest level of each feature, 0 where fewer rows have it; no level may be negative."""
    counts = np.empty(128, np.int64)
    for f in range(len(column_of)):
        if column_of[f] >= 0:
            counts[:] = level_counts[column_of[f]]
        else:
            counts[:] = 0
            if list_ends[f + 1] - list_ends[f] >= k:
                for t in range(list_ends[f], list_ends[f + 1]):
                    counts[entries[t] & 127] += 1
        level, reached = 127, counts[127]
        while level > 0 and reached < k:
            level -= 1
            reached += counts[level]
        out[f] = level
