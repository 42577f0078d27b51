"""Compiled kernels of label trees, each for one thread; CSR matrices are passed as in `_kernels`."""

import numpy as np

from holobind._jit import compiled

# All of fastmath but the flags by which infinities and NaN may be taken for anything else.
_FAST = {"reassoc", "contract", "arcp", "nsz"}
MANY_CHANGES = 4  # where more than a quarter of the classifiers changes, weights of all of them are added at once
SCAN_FACTOR = 24  # a parent with fewer features than this times a row's is read from its first to its last
MIN_SORTED_ROWS = 64  # fewer rows are not sorted by the nodes that they ask
MAX_CHILDREN = 256  # of a node: their numbers are stored in eight bits
DENSE_UNIT = 16  # widths of dense rows of weights are multiples of it
_LCG_FACTOR, _LCG_STEP = np.uint64(6364136223846793005), np.uint64(1442695040888963407)  # Knuth's MMIX generator


@compiled()
def take_local_rows(indptr, ids, values, rows, local_of):  # type: ignore[no-untyped-def]
    """Some rows with their features renumbered in the order in which they occur.

    `local_of` holds -1 for each of the f features, before and after.

    Shapes: (n + 1), (e), (e), (m), (f) -> indptr (m + 1), ids, values, features
    """
    n_entries = 0
    for i in range(len(rows)):
        n_entries += indptr[rows[i] + 1] - indptr[rows[i]]
    out_indptr, out_ids = np.zeros(len(rows) + 1, np.int64), np.empty(n_entries, np.int32)
    out_values, features = np.empty(n_entries, np.float32), np.empty(min(n_entries, len(local_of)), np.int32)
    at, n_features = 0, 0
    for i in range(len(rows)):
        for j in range(indptr[rows[i]], indptr[rows[i] + 1]):
            feature = ids[j]
            if local_of[feature] < 0:
                local_of[feature] = n_features
                features[n_features] = feature
                n_features += 1
            out_ids[at], out_values[at] = local_of[feature], values[j]
            at += 1
        out_indptr[i + 1] = at
    for i in range(n_features):
        local_of[features[i]] = -1
    return out_indptr, out_ids, out_values, features[:n_features]


@compiled(fastmath=_FAST)
def fit_squared_hinges(  # type: ignore[no-untyped-def]
    indptr, ids, values, signs, cost, tolerance, max_epochs, seed, weights, alpha
):
    """Fit k linear classifiers with the squared hinge loss by dual coordinate descent (Hsieh et al. 2008).

        min |w_c|^2 / 2 + cost sum_i max(0, 1 - signs[i, c] w_c.x_i)^2          for each c < k

    Each row has a constant feature 1, whose weight comes last. Rows are visited in a new random order in each epoch. A
    visit improves all k classifiers: a row is read once for all of them, and sums over its features are vectorised over
    classifiers. Epochs end when the projected gradients of each classifier differ by less than the tolerance.

    Shapes: signs (n, k) int8, weights (f + 1, k) and alpha (n, k) of zeros
    """
    n, k = alpha.shape
    constant = len(weights) - 1
    diagonal, one, zero, infinity = np.float32(0.5) / cost, np.float32(1), np.float32(0), np.float32(np.inf)
    state = np.uint64(seed) * _LCG_FACTOR + _LCG_STEP
    order, inverse_norms, changed = np.arange(n), np.empty(n, np.float32), np.empty(k, np.int64)
    margins, changes = np.empty(k, np.float32), np.empty(k, np.float32)
    largest, smallest = np.empty(k, np.float32), np.empty(k, np.float32)
    for i in range(n):
        squared_norm = one + diagonal
        for j in range(indptr[i], indptr[i + 1]):
            squared_norm += values[j] * values[j]
        inverse_norms[i] = one / squared_norm
    for _ in range(max_epochs):
        for i in range(n):
            state = state * _LCG_FACTOR + _LCG_STEP
            other = i + np.int64((state >> np.uint64(33)) % np.uint64(n - i))
            order[i], order[other] = order[other], order[i]
        largest[:], smallest[:] = -infinity, infinity
        for i in order:
            j, last, bias = indptr[i], indptr[i + 1], weights[constant]
            for c in range(k):
                margins[c] = bias[c]
            while j + 4 <= last:
                a, b, d, e = weights[ids[j]], weights[ids[j + 1]], weights[ids[j + 2]], weights[ids[j + 3]]
                s, t, u, v = values[j], values[j + 1], values[j + 2], values[j + 3]
                for c in range(k):
                    margins[c] += s * a[c] + t * b[c] + u * d[c] + v * e[c]
                j += 4
            while j < last:
                a, s = weights[ids[j]], values[j]
                for c in range(k):
                    margins[c] += s * a[c]
                j += 1
            row_alpha, row_signs = alpha[i], signs[i]
            for c in range(k):
                sign, old = np.float32(row_signs[c]), row_alpha[c]
                gradient = sign * margins[c] - one + diagonal * old
                row_alpha[c] = max(old - gradient * inverse_norms[i], zero)
                changes[c] = (row_alpha[c] - old) * sign
                projected = gradient if old > zero else min(gradient, zero)
                largest[c], smallest[c] = max(largest[c], projected), min(smallest[c], projected)
            n_changed = 0
            for c in range(k):
                changed[n_changed] = c
                n_changed += changes[c] != zero
            if MANY_CHANGES * n_changed > k:
                for j in range(indptr[i], last):
                    a, s = weights[ids[j]], values[j]
                    for c in range(k):
                        a[c] += s * changes[c]
                for c in range(k):
                    bias[c] += changes[c]
            else:
                for u in range(n_changed):
                    c = changed[u]
                    for j in range(indptr[i], last):
                        weights[ids[j], c] += values[j] * changes[c]
                    bias[c] += changes[c]
        if (largest - smallest).max() <= tolerance:
            break


@compiled()
def features_by_occurrence(ids, n_features):  # type: ignore[no-untyped-def]
    """The features that occur, in the order in which they first do.  Shapes: (e) -> (m)"""
    found, features, n = np.zeros(n_features, np.bool_), np.empty(n_features, np.int64), 0
    for i in ids:
        if not found[i]:
            found[i], features[n] = True, i
            n += 1
    return features[:n]


@compiled()
def add_to_clusters(indptr, ids, values, cluster, sums):  # type: ignore[no-untyped-def]
    """sums[:, cluster[i]] += row i, row after row.  Shapes: cluster (n), sums (f, k)"""
    for i in range(len(indptr) - 1):
        c = cluster[i]
        for j in range(indptr[i], indptr[i + 1]):
            sums[ids[j], c] += values[j]


@compiled(fastmath=_FAST)
def nearest_centroids(indptr, ids, values, centroids, out):  # type: ignore[no-untyped-def]
    """out[i] = the column of `centroids` with the largest product with row i, the lower one of two equals.

    Shapes: centroids (f, k), out (n)
    """
    k = centroids.shape[1]
    scores = np.empty(k, np.float32)
    for i in range(len(indptr) - 1):
        scores[:] = 0
        for j in range(indptr[i], indptr[i + 1]):
            row, x = centroids[ids[j]], values[j]
            for c in range(k):
                scores[c] += x * row[c]
        best = 0
        for c in range(1, k):
            if scores[c] > scores[best]:
                best = c
        out[i] = best


@compiled()
def pack_entries(counts, children, levels, is_dense, widths, starts, packed, dense):  # type: ignore[no-untyped-def]
    """Fill `starts`, `packed` and `dense` of `search_tree`; `widths` are those of the features' rows in `dense`.

    Shapes: (n_parent_features), 2 x (n_entries), 3 x (n_parent_features), (any), (any) of zeros
    """
    entry, at, row = 0, 0, 0
    for i in range(len(counts)):
        if is_dense[i]:
            starts[i] = -2 - row // DENSE_UNIT
            for e in range(entry, entry + counts[i]):
                dense[row + children[e]] = levels[e]
            row += widths[i]
        else:
            starts[i], packed[at] = at, counts[i]
            for e in range(entry, entry + counts[i]):
                at += 1
                packed[at] = np.int64(children[e]) * 256 + np.int64(levels[e]) + 128
            at += 1
        entry += counts[i]


@compiled()
def _pairs_by_node(nodes, n_nodes, scores, bounds, first_rank, last_rank, counts, pairs):  # type: ignore[no-untyped-def]
    """Pairs of a row and one of its nodes, as numbers, sorted by node; their number.

    Nodes are those of the ranks first_rank to last_rank of each row, unless their score is below the row's bound. Few
    rows are not sorted: their pairs come in the order of ranks.
    """
    n, width = nodes.shape
    total = 0
    if n < MIN_SORTED_ROWS:
        for b in range(first_rank, last_rank):
            for r in range(n):
                if b < n_nodes[r] and scores[r, b] >= bounds[r]:
                    pairs[total] = r * width + b
                    total += 1
        return total
    counts[:] = 0
    for r in range(n):
        for b in range(first_rank, min(last_rank, n_nodes[r])):
            counts[nodes[r, b]] += scores[r, b] >= bounds[r]
    for p in range(len(counts)):
        counts[p], total = total, total + counts[p]
    for r in range(n):
        for b in range(first_rank, min(last_rank, n_nodes[r])):
            if scores[r, b] >= bounds[r]:
                p = nodes[r, b]
                pairs[counts[p]] = r * width + b
                counts[p] += 1
    return total


@compiled(fastmath=_FAST)
def _add_entries(found, found_values, n_found, packed, dense, width, sums):  # type: ignore[no-untyped-def]
    """sums[:width] = the entries of some features of a parent, times the values of a row: dense ones first."""
    sums[:width] = 0
    one, n_sparse, n_dense = np.uint64(1), 0, 0
    width, rows, factors = np.uint64(width), np.empty(n_found, np.uint64), np.empty(n_found, np.float32)
    for i in range(n_found):
        at, x = found[i], found_values[i]
        rows[n_dense], factors[n_dense] = (-2 - at) * DENSE_UNIT, x
        found[n_sparse], found_values[n_sparse] = at, x
        n_dense += at < 0
        n_sparse += at >= 0
    i = 0
    while i + 4 <= n_dense:
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        s, t, u, v = factors[i], factors[i + 1], factors[i + 2], factors[i + 3]
        for j in range(width):
            low = s * np.float32(dense[a + j]) + t * np.float32(dense[b + j])
            sums[j] += low + (u * np.float32(dense[c + j]) + v * np.float32(dense[d + j]))
        i += 4
    while i < n_dense:
        a, s = rows[i], factors[i]
        for j in range(width):
            sums[j] += s * np.float32(dense[a + j])
        i += 1
    for i in range(n_sparse):
        at, x = np.uint64(found[i]), found_values[i]
        for e in range(at + one, at + one + np.uint64(packed[at])):
            entry = np.int64(packed[e])
            sums[np.uint64(entry >> 8)] += x * np.float32((entry & 255) - 128)


@compiled(fastmath=_FAST)
def search_tree(  # type: ignore[no-untyped-def]
    indptr, ids, values, n_features, tables, table_of, child_offsets, feature_offsets, features, starts, packed, dense,
    scales, biases, n_levels, beam, max_log_ratio, log_probabilities, leaves,
):  # fmt: skip
    """The leaves that a beam search finds for each row, best first, and their log-probabilities; -1 for none.

    starts     where the entries of a feature of a parent are: a position in `packed`, or -2 - i for the weights of all
               children, 0 included, at position DENSE_UNIT i of `dense`
    packed     their number, followed by 256 child + weight + 128 of each: what is read together is stored together
    tables     for parents of many features, `starts` of each of all features, or -1
    table_of   the row of `tables` that belongs to a parent, or -1

    Rows go from level to level together. Those that ask the same parent come one after the other: what they read is in
    the processor's cache then. The best parent of each row comes before all others: children are at most as probable as
    their parent, so that many of the others need not be read. Nodes that are less probable than the best node of the
    level above by more than a factor exp(max_log_ratio) are not found, nor is what is below them.

    Of a parent of few features, each one is looked up in the row; in another one without a table, each feature of the
    row is searched. Features ascend everywhere, so all three ways add in the same order.

    Equal scores are in the order of their parents' ranks, then in that of children: `best` holds MAX_CHILDREN times the
    rank plus the child, until all parents of a level were read.

    Shapes: starts (n_parent_features), packed uint16, dense int8, tables (t, n_features), table_of (parents),
    log_probabilities and leaves (n, k); `LabelTree` has the others
    """
    n, k, n_parents = len(indptr) - 1, leaves.shape[1], len(child_offsets) - 1
    max_children, max_entries = 0, 0
    for p in range(n_parents):
        max_children = max(max_children, child_offsets[p + 1] - child_offsets[p])
    for r in range(n):
        max_entries = max(max_entries, indptr[r + 1] - indptr[r])
    width, infinity = max(beam, k), np.float32(np.inf)
    sums, found_values = np.empty(max_children + DENSE_UNIT, np.float32), np.empty(max_entries + 1, np.float32)
    found, row_values = np.empty(max_entries + 1, np.int64), np.zeros(n_features, np.float32)
    nodes, scores, n_nodes = np.zeros((n, width), np.int32), np.zeros((n, width), np.float32), np.ones(n, np.int64)
    best, best_scores, n_best = np.empty((n, width), np.int32), np.empty((n, width), np.float32), np.empty(n, np.int64)
    bounds, pairs = np.empty(n, np.float32), np.empty(n * width, np.int64)  # bounds: scores below are not found
    counts = np.empty(n_parents if n >= MIN_SORTED_ROWS else 0, np.int64)
    for level in range(n_levels):
        wanted = k if level == n_levels - 1 else beam
        n_best[:] = 0
        for r in range(n):
            bounds[r] = scores[r, 0] - max_log_ratio if n_nodes[r] else infinity
        for first_rank, last_rank in ((0, 1), (1, n_nodes.max() if n else 0)):
            n_pairs = _pairs_by_node(nodes, n_nodes, scores, bounds, first_rank, last_rank, counts, pairs)
            for i in range(n_pairs):
                r, b = pairs[i] // width, pairs[i] % width
                if scores[r, b] < bounds[r]:
                    continue
                p, row_first, row_last = nodes[r, b], indptr[r], indptr[r + 1]
                first, m = child_offsets[p], child_offsets[p + 1] - child_offsets[p]
                low, end, n_found = feature_offsets[p], feature_offsets[p + 1], 0
                if table_of[p] >= 0:
                    table = tables[table_of[p]]
                    for j in range(row_first, row_last):
                        start = np.int64(table[ids[j]])
                        found[n_found], found_values[n_found] = start, values[j]
                        n_found += start != -1
                elif end - low <= SCAN_FACTOR * (row_last - row_first):
                    for j in range(row_first, row_last):
                        row_values[ids[j]] = values[j]
                    for at in range(low, end):
                        x = row_values[features[at]]
                        if x != 0:
                            found[n_found], found_values[n_found] = starts[at], x
                            n_found += 1
                    for j in range(row_first, row_last):
                        row_values[ids[j]] = 0
                else:
                    for j in range(row_first, row_last):
                        feature, high = ids[j], end
                        while low < high:
                            middle = (low + high) >> 1
                            if features[middle] < feature:
                                low = middle + 1
                            else:
                                high = middle
                        if low < end and features[low] == feature:
                            found[n_found], found_values[n_found] = starts[low], values[j]
                            n_found += 1
                _add_entries(found, found_values, n_found, packed, dense, -(-m // DENSE_UNIT) * DENSE_UNIT, sums)
                for c in range(m):
                    gap = max(np.float32(1) - sums[c] * scales[first + c] - biases[first + c], np.float32(0))
                    sums[c] = scores[r, b] - gap * gap
                row_best, row_scores, filled, bound = best[r], best_scores[r], n_best[r], bounds[r]
                for c in range(m):
                    score, key = sums[c], np.int32(b * MAX_CHILDREN + c)
                    if score < bound or (filled == wanted and score == bound and key > row_best[wanted - 1]):
                        continue
                    at = filled if filled < wanted else wanted - 1
                    while at > 0 and (
                        row_scores[at - 1] < score or (row_scores[at - 1] == score and row_best[at - 1] > key)
                    ):
                        row_scores[at], row_best[at] = row_scores[at - 1], row_best[at - 1]
                        at -= 1
                    row_scores[at], row_best[at] = score, key
                    filled = min(filled + 1, wanted)
                    bound = row_scores[wanted - 1] if filled == wanted else bound
                n_best[r], bounds[r] = filled, bound
        for r in range(n):
            for b in range(n_best[r]):
                rank, c = best[r, b] // MAX_CHILDREN, best[r, b] % MAX_CHILDREN
                best[r, b] = child_offsets[nodes[r, rank]] + c + 1
        nodes, best, scores, best_scores = best, nodes, best_scores, scores
        n_nodes[:] = n_best
    leaves[:], log_probabilities[:] = -1, -infinity
    for r in range(n):
        for b in range(n_nodes[r]):
            log_probabilities[r, b], leaves[r, b] = scores[r, b], nodes[r, b] - n_parents


@compiled()
def mean_log_probabilities(labels, log_probabilities, weights, out_labels, out, out_weights):  # type: ignore[no-untyped-def]
    """The logarithm of the mean probability of each label over several trees; -1 and -inf behind the last label.

    A tree that did not find a label gives it probability 0. The weight of a label is that of the first tree that found
    it, and 0 behind the last label.

    Shapes: 3 x (trees, n, k), 3 x (n, m) with m >= trees k
    """
    n_trees, n, k = labels.shape
    for r in range(n):
        out_labels[r], out[r], out_weights[r] = -1, -np.inf, 0
        found = 0
        for t in range(n_trees):
            for j in range(k):
                label = labels[t, r, j]
                if label >= 0:
                    at = 0
                    while at < found and out_labels[r, at] != label:
                        at += 1
                    if at == found:
                        out_labels[r, at], out[r, at], out_weights[r, at] = label, 0, weights[t, r, j]
                        found += 1
                    out[r, at] += np.exp(log_probabilities[t, r, j])
        for at in range(found):
            out[r, at] = np.log(out[r, at] / np.float32(n_trees)) if out[r, at] > 0 else -np.inf
