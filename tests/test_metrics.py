"""The metrics against cases computed by hand, their definitions, and those of napkinXC where both define them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from rich.console import Console
from scipy import sparse
from sklearn.metrics import f1_score

from holobind import metrics
from holobind.errors import DTypeError, LabelError, OptionError, ShapeError


def labels(rows, n):
    dense = np.zeros((len(rows), n), np.int32)
    for i, row in enumerate(rows):
        dense[i, sorted(row)] = 1
    return sparse.csr_array(dense)


def by_definition(rows, top, p):
    """Every metric at 1 to k by its formula: one point, one rank at a time."""
    n, k = len(rows), len(top[0])
    w = [1 / x for x in p]

    def dcg(gains):
        return sum(g / math.log2(rank + 1) for rank, g in enumerate(gains, 1))

    found = {name: [] for name in ("P", "R", "nDCG", "PSP", "PSnDCG", "coverage")}
    for at in range(1, k + 1):
        P = R = N = gained = best = gained_dcg = best_dcg = 0.0
        seen = set()
        for y, ranking in zip(rows, top, strict=True):
            first = ranking[:at]
            hits = [label in y for label in first]
            seen |= {label for label in first if label in y}
            P += sum(hits) / at
            if not y:
                continue
            norm = dcg([1] * min(at, len(y)))
            ideal = sorted((w[label] for label in y), reverse=True)[:at]
            weighted = [w[label] if hit else 0 for label, hit in zip(first, hits, strict=True)]
            R += sum(hits) / len(y)
            N += dcg(hits) / norm
            gained += sum(weighted)
            best += sum(ideal)
            gained_dcg += dcg(weighted) / norm
            best_dcg += dcg(ideal) / norm
        found["P"].append(100 * P / n)
        found["R"].append(100 * R / n)
        found["nDCG"].append(100 * N / n)
        found["PSP"].append(100 * gained / best if best else 0)
        found["PSnDCG"].append(100 * gained_dcg / best_dcg if best_dcg else 0)
        occurring = set().union(*rows)
        found["coverage"].append(100 * len(seen) / len(occurring) if occurring else 0)
    return found


def all_metrics(Y, top, p):
    return {
        "P": metrics.precision_at_k(Y, top),
        "R": metrics.recall_at_k(Y, top),
        "nDCG": metrics.ndcg_at_k(Y, top),
        "PSP": metrics.psp_at_k(Y, top, p),
        "PSnDCG": metrics.psndcg_at_k(Y, top, p),
        "coverage": metrics.coverage_at_k(Y, top),
    }


@st.composite
def rankings(draw):
    n_labels = draw(st.integers(1, 9))
    k = draw(st.integers(1, min(n_labels, 6)))
    ids = st.integers(0, n_labels - 1)
    rows = draw(st.lists(st.sets(ids), min_size=1, max_size=7))
    top = [draw(st.permutations(range(n_labels)))[:k] for _ in rows]
    empty = draw(st.lists(st.tuples(st.integers(0, len(rows) - 1), st.integers(0, k - 1)), max_size=3))
    for row, rank in empty:
        top[row][rank] = -1
    p = draw(st.lists(st.floats(0.01, 1), min_size=n_labels, max_size=n_labels))
    return n_labels, rows, top, p


@given(rankings())
def test_every_metric_is_its_definition(case):
    n_labels, rows, top, p = case
    expected = by_definition(rows, top, p)
    for name, values in all_metrics(labels(rows, n_labels), np.array(top), p).items():
        assert_allclose(values, expected[name], rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_case_computed_by_hand():
    Y = labels([{0, 1}, {2}, set()], 4)
    top = np.array([[1, 3, 0], [0, 2, 1], [3, 2, 1]])
    p = [0.5, 0.25, 0.2, 1.0]
    assert_allclose(metrics.precision_at_k(Y, top), [100 / 3, 100 / 3, 100 / 3])
    assert_allclose(metrics.recall_at_k(Y, top), [100 / 6, 50, 200 / 3])
    # PSP: the hits have weights 4, then 5 (label 2 at rank 2), then 2; the best ranking has 4 + 5, then 2.
    assert_allclose(metrics.psp_at_k(Y, top, p), [400 / 9, 900 / 11, 1100 / 11])
    log3 = 1 / math.log2(3)
    assert_allclose(metrics.ndcg_at_k(Y, top)[:2], [100 / 3, 100 / 3 * (1 / (1 + log3) + log3)])
    assert_allclose(
        metrics.psndcg_at_k(Y, top, p)[1], 100 * (4 / (1 + log3) + 5 * log3) / ((4 + 2 * log3) / (1 + log3) + 5)
    )
    assert_allclose(metrics.coverage_at_k(Y, top), [100 / 3, 200 / 3, 100])


def test_the_best_ranking_scores_100():
    Y = labels([{0, 1}, {2, 3}, {1, 3}], 4)
    p = [0.5, 0.25, 0.2, 1.0]
    for values in all_metrics(Y, np.array([[1, 0], [2, 3], [1, 3]]), p).values():
        assert values[-1] == pytest.approx(100)


def test_propensity_follows_its_formula():
    Y = labels([{0, 1}, {0}, {0}, set()], 3)
    c = (math.log(4) - 1) * 2.5**0.55
    expected = [1 / (1 + c * (count + 1.5) ** -0.55) for count in (3, 1, 0)]
    assert_allclose(metrics.propensity(Y), expected)
    with pytest.raises(ShapeError, match="at least 3 training rows"):
        metrics.propensity(Y[:2])


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("Amazon-670K", (0.6, 2.6)),
        ("amazon3m", (0.6, 2.6)),
        ("WikiLSHTC-325K", (0.5, 0.4)),
        ("Wikipedia-500K", (0.5, 0.4)),
        ("Wiki10-31K", (0.55, 1.5)),
        ("AmazonCat-13K", (0.55, 1.5)),
        ("eurlex-4k", (0.55, 1.5)),
        ("", (0.55, 1.5)),
    ],
)
def test_the_propensity_constants_depend_on_the_dataset(name, pair):
    assert metrics.propensity_constants(name) == pair


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_ties_go_to_the_lowest_id(k, seed):
    scores = np.random.default_rng(seed).integers(-2, 3, (5, 6)).astype(np.float32)
    scores[0, 0] = np.nan
    expected = [
        sorted(range(6), key=lambda i: (math.isnan(row[i]), 0 if math.isnan(row[i]) else -row[i], i))[:k]
        for row in scores
    ]
    assert metrics.top_k(scores, k).tolist() == expected


def test_explicit_zeros_and_other_formats_of_labels_change_nothing():
    rows, top, p = [{0, 2}, {1}], np.array([[0, 1], [2, 1]]), [0.5, 0.6, 0.7]
    Y = labels(rows, 3)
    stored = sparse.csr_matrix((np.array([1, 0, 7, 1]), np.array([2, 1, 0, 1]), np.array([0, 3, 4])), shape=(2, 3))
    for other in (stored, Y.tocoo(), sparse.csc_matrix(Y), Y.astype(bool)):
        for name, values in all_metrics(other, top, p).items():
            assert_allclose(values, by_definition(rows, top.tolist(), p)[name])
    assert stored.nnz == 4  # the caller's matrix is not changed


@given(rankings())
def test_the_bands_are_their_definition_and_their_precisions_sum_to_the_whole(case):
    n_labels, rows, top, _ = case
    Y = labels(rows, n_labels)
    counts = [200, 100, 99, 10, 9, 0, 1, 50, 3][:n_labels]
    Y_train = sparse.csr_array(np.arange(200)[:, None] < np.array(counts)[None])
    found = metrics.evaluate(Y, np.array(top), Y_train)
    bands = found.bands
    members = {"head": {0, 1}, "torso": {2, 3, 7}, "tail": {4, 5, 6, 8}}
    k = len(found.scores["P"])
    assert_allclose(sum(np.array(band["P"]) for band in bands.values()), found.scores["P"], atol=1e-12)
    for name, band in bands.items():
        assert band["labels"] == len(members[name] & set(range(n_labels)))
        in_band = [(y & members[name], t) for y, t in zip(rows, top, strict=True) if y & members[name]]
        for at in range(1, k + 1):
            recalls = [len(y & set(t[:at])) / len(y) for y, t in in_band]
            assert band["R"][at - 1] == pytest.approx(100 * np.mean(recalls) if recalls else 0)
            seen = set().union(*(y & set(t[:at]) for y, t in in_band)) if in_band else set()
            occurring = set().union(*(y for y, _ in in_band)) if in_band else set()
            assert band["coverage"][at - 1] == pytest.approx(100 * len(seen) / len(occurring) if occurring else 0)


def test_evaluation_is_a_table_and_json():
    Y = labels([{0, 1}, {2}, {1}], 4)
    top = np.array([[1, 3, 0], [0, 2, 1], [3, 2, 1]])
    found = metrics.evaluate(Y, top, Y, k=2)
    assert list(found.scores) == ["P", "nDCG", "PSP", "PSnDCG", "R", "coverage"]
    assert found["P@2"] == found.scores["P"][1] == metrics.precision_at_k(Y, top)[1]
    assert found["PSP@1"] == metrics.psp_at_k(Y, top, metrics.propensity(Y))[0]
    assert found.as_json()["rows"] == 3 and set(found.as_json()["bands"]) == {"head", "torso", "tail"}
    console = Console(width=120)
    with console.capture() as printed:
        console.print(found)
    assert "PSnDCG" in printed.get() and f"{found['P@2']:.2f}" in printed.get() and "@3" not in printed.get()
    assert "PSP" not in metrics.evaluate(Y, top).scores
    with pytest.raises(OptionError, match="there is no 'P@3'"):
        found["P@3"]


def test_invalid_rankings_are_refused():
    Y = labels([{0, 1}, {2}], 4)
    for top, error, message in (
        ([[0, 4], [1, 2]], LabelError, "label 4, which is outside this space of 4 labels"),
        ([[0, -2], [1, 2]], LabelError, "label -2"),
        ([[0, 1], [2, 2]], LabelError, "row 1 of top has a label twice"),
        ([[0, 1]], ShapeError, "the 2 rows of Y"),
        ([0, 1], ShapeError, "the 2 rows of Y"),
        ([[0.5], [1.0]], DTypeError, "label ids"),
    ):
        with pytest.raises(error, match=message):
            metrics.precision_at_k(Y, np.array(top))
    with pytest.raises(DTypeError, match="scipy sparse"):
        metrics.precision_at_k(Y.toarray(), [[0], [1]])
    with pytest.raises(ShapeError, match="one for each of the 4 labels"):
        metrics.psp_at_k(Y, [[0], [1]], [0.5])
    with pytest.raises(OptionError, match="above 0"):
        metrics.psp_at_k(Y, [[0], [1]], [0.5, 0, 1, 1])
    with pytest.raises(OptionError, match="k must be from 1"):
        metrics.top_k([[1.0, 2.0]], 3)


@given(st.integers(0, 2**32 - 1))
def test_the_metrics_of_napkinxc_agree(seed):
    theirs = pytest.importorskip("napkinxc.metrics", reason="napkinxc is in the bench group: make bench-deps")
    generator = np.random.default_rng(seed)
    n, n_labels, k = 40, 30, 5
    rows = [set(generator.choice(n_labels, generator.integers(1, 9), replace=False).tolist()) for _ in range(n)]
    top = np.array([generator.permutation(n_labels)[:k] for _ in range(n)])
    Y = labels(rows, n_labels)
    w = theirs.Jain_et_al_inverse_propensity(sparse.csr_matrix(Y), A=0.55, B=1.5)
    p = metrics.propensity(Y)
    assert_allclose(1 / p, w, rtol=1e-6)
    true, ranked = [sorted(row) for row in rows], top.tolist()
    ours = all_metrics(Y, top, p)
    for name, other in (
        ("P", theirs.precision_at_k(true, ranked, k=k)),
        ("R", theirs.recall_at_k(true, ranked, k=k)),
        ("nDCG", theirs.ndcg_at_k(true, ranked, k=k)),
        ("PSP", theirs.psprecision_at_k(true, ranked, w, k=k)),
        ("coverage", theirs.coverage_at_k(true, ranked, k=k)),
        ("PSnDCG", theirs.psndcg_at_k(true, ranked, w, k=k)),
    ):
        assert_allclose(ours[name] / 100, other, rtol=1e-6, atol=1e-6, err_msg=name)


def test_f1_is_that_of_scikit_learn():
    draw = np.random.default_rng(0)
    Y = (draw.random((50, 7)) < 0.3).astype(int)
    ids = np.argsort(draw.random((50, 7)), axis=1)[:, :3]
    top = np.where(draw.random(ids.shape) < 0.7, ids, -1)
    predicted = np.zeros_like(Y)
    for row, chosen in enumerate(top):
        predicted[row, chosen[chosen >= 0]] = 1
    found = metrics.f1(sparse.csr_array(Y), top)
    assert found["micro"] == pytest.approx(100 * f1_score(Y, predicted, average="micro"))
    assert found["sample"] == pytest.approx(100 * f1_score(Y, predicted, average="samples", zero_division=1.0))
