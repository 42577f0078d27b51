"""Every loss against its equation, written out label by label."""

import math

import helpers.codebooks
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import holobind as hb

kinds = st.sampled_from(["orbit", "random", "dense"])
sizes = st.tuples(st.integers(2, 40), st.integers(2, 24))
counts_of_rows = st.lists(st.integers(0, 4), min_size=1, max_size=5)


def normal(*shape, seed=0):
    return helpers.codebooks.normal(*shape, seed=seed, dtype=torch.double)


def make_codebook(kind, n, d, seed=0):
    makers = {"orbit": hb.OrbitCodebook, "random": hb.RandomCodebook}
    return makers[kind](n, d, seed) if kind in makers else hb.DenseCodebook(hb.unitary(normal(n, d, seed=seed)))


def random_sets(n, counts, seed=0):
    """Label sets without repetition: labels, offsets, and the sets as lists."""
    generator = torch.Generator().manual_seed(seed)
    sets = [torch.randperm(n, generator=generator)[:count] for count in counts]
    starts = torch.tensor([0, *map(len, sets)]).cumsum(0)[:-1]
    return torch.cat(sets), starts, [one.tolist() for one in sets]


def problem(codebook, counts, seed):
    """Label sets, all label vectors, and an output for each row."""
    labels, offsets, sets = random_sets(codebook.n_labels, counts, seed)
    vectors = codebook.vectors(torch.arange(codebook.n_labels)).double()
    return labels, offsets, sets, vectors, normal(len(counts), codebook.dim, seed=seed + 1)


def cosine(a, b):
    if a.norm() == 0 or b.norm() == 0:
        return a.sum() * 0
    return (a @ b) / (a.norm() * b.norm())


def query_by_definition(s, sets, vectors, p, m):
    """Equations J_p and J_n of the paper."""
    loss = s.sum() * 0
    for row, labels in zip(s, sets, strict=True):
        present, absent = hb.unbind(row, p), hb.unbind(row, m)
        loss = loss + sum(1 - cosine(present, vectors[i]) for i in labels)
        if labels:
            loss = loss + cosine(absent, sum(vectors[i] for i in labels))
    return loss / len(s)


def appendix_listing(s, sets, vectors, p, m):
    """The listing in the paper's appendix, on the labels that are there (its padding adds a constant)."""
    loss = s.sum() * 0
    for row, labels in zip(s, sets, strict=True):
        present, absent = hb.unbind(row, p), hb.unbind(row, m)
        for i in labels:
            queries = (query / query.norm() if query.norm() else query for query in (present, absent))
            in_present, in_absent = (query @ vectors[i] for query in queries)  # vectors[i] is not normalised
            loss = loss + 1 - in_present.abs() + in_absent.abs()
    return loss / len(s)


def softmax_by_definition(s, sets, vectors, t, prior, crosstalk):
    loss = s.sum() * 0
    for row, labels in zip(s, sets, strict=True):
        logs = (t * (vectors @ row) + prior).log_softmax(0)
        loss = loss - sum(logs[i] for i in labels) / max(1, len(labels))
        if labels:
            loss = loss + crosstalk * (t * row).square().mean() / 2
    return loss / len(s)


def regression_by_definition(s, sets, vectors, p, m):
    """Equation (3): one bound vector for each of the L labels."""
    loss = s.sum() * 0
    for row, labels in zip(s, sets, strict=True):
        wanted = sum(hb.bind(p if i in labels else m, c) for i, c in enumerate(vectors))
        loss = loss + ((row - wanted) ** 2).sum() * bool(labels)
    return loss / len(s)


def value_and_gradient(loss, s):
    s = s.clone().requires_grad_()
    value = loss(s)
    value.backward()
    return value.detach(), s.grad


def same(fast, slow, s, tolerance=1e-4):
    for one, other in zip(value_and_gradient(fast, s), value_and_gradient(slow, s), strict=True):
        assert_close(one, other, atol=tolerance, rtol=tolerance)


@given(kinds, sizes, counts_of_rows, st.integers(0, 99))
def test_query_loss_is_the_papers_equation(kind, size, counts, seed):
    codebook = make_codebook(kind, *size, seed)
    labels, offsets, sets, vectors, s = problem(codebook, counts, seed)
    p, m = (key.double() for key in hb.present_and_missing(codebook.dim, seed))
    same(
        lambda s: hb.query_loss(s, labels, offsets, codebook, p, m),
        lambda s: query_by_definition(s, sets, vectors, p, m),
        s,
    )
    same(
        lambda s: hb.query_loss(s, labels, offsets, codebook, p, m, variant="abs"),
        lambda s: appendix_listing(s, sets, vectors, p, m),
        s,
    )


@given(sizes, counts_of_rows, st.integers(0, 99))
def test_query_loss_of_vectors_that_are_not_unitary_is_as_defined(size, counts, seed):
    codebook = hb.DenseCodebook.naive(*size, seed)
    assert not codebook.unitary or codebook.dim == 1
    labels, offsets, sets, vectors, s = problem(codebook, counts, seed)
    p, m = normal(2, codebook.dim, seed=7)
    same(
        lambda s: hb.query_loss(s, labels, offsets, codebook, p, m),
        lambda s: query_by_definition(s, sets, vectors, p, m),
        s,
    )
    same(
        lambda s: hb.query_loss(s, labels, offsets, codebook, p, m, variant="abs"),
        lambda s: appendix_listing(s, sets, vectors, p, m),
        s,
    )


@given(
    kinds,
    sizes,
    counts_of_rows,
    st.integers(0, 99),
    st.sampled_from([0.5, 1.0, 20.0]),
    st.booleans(),
    st.sampled_from([0, 1]),
)
def test_softmax_loss_is_cross_entropy_over_all_labels(kind, size, counts, seed, t, with_prior, crosstalk):
    codebook = make_codebook(kind, *size, seed)
    labels, offsets, sets, vectors, s = problem(codebook, counts, seed)
    fast, slow = (torch.tensor(t, dtype=torch.double, requires_grad=True) for _ in range(2))
    prior = 3 * normal(codebook.n_labels, seed=seed) if with_prior else None
    same(
        lambda s: hb.softmax_loss(s, labels, offsets, codebook, fast, prior, crosstalk=crosstalk),
        lambda s: softmax_by_definition(s, sets, vectors, slow, 0 if prior is None else prior.double(), crosstalk),
        s,
        1e-3,
    )
    if any(sets):
        assert_close(fast.grad, slow.grad, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", ["orbit", "random"])
@pytest.mark.parametrize("length", [1.0, 8.0])
def test_the_crosstalk_term_is_what_random_label_vectors_add_to_the_loss(kind, length):
    """log mean exp(t <s, c>) over many labels is |t s|^2 / 2 d."""
    codebook = make_codebook(kind, 50_000, 64, 3)
    s = torch.nn.functional.normalize(normal(8, 64, seed=1), dim=1)
    none = torch.zeros(8, dtype=torch.long)
    loss = [hb.softmax_loss(s, none, torch.arange(8), codebook, length, crosstalk=c) for c in (0.0, 1.0)]
    by_chance = (codebook.log_sum_exp(length * s) - math.log(codebook.n_labels)).mean()
    assert_close(loss[1] - loss[0], by_chance, atol=2e-3, rtol=0.05)


@given(kinds, sizes, counts_of_rows, st.integers(0, 99))
def test_regression_loss_is_the_distance_to_all_bound_labels(kind, size, counts, seed):
    codebook = make_codebook(kind, *size, seed)
    labels, offsets, sets, vectors, s = problem(codebook, counts, seed)
    p, m = (key.double() for key in hb.present_and_missing(codebook.dim, seed))
    slow = lambda s: regression_by_definition(s, sets, vectors, p, m)  # noqa: E731
    same(lambda s: hb.regression_loss(s, labels, offsets, codebook, p, m), slow, s, 1e-3)
    same(lambda s: hb.regression_loss(s, labels, offsets, codebook, p, m, all_labels_sum=vectors.sum(0)), slow, s, 1e-3)


@pytest.mark.parametrize("kind", ["orbit", "random", "dense"])
def test_gradients_match_finite_differences(kind):
    codebook = make_codebook(kind, 11, 6)
    labels, offsets, _ = random_sets(11, [2, 0, 3])
    p, m = (key.double() for key in hb.present_and_missing(6))
    s = normal(3, 6).requires_grad_()
    keys = [key.clone().requires_grad_() for key in (p, m)]
    t = torch.tensor(1.3, dtype=torch.double, requires_grad=True)
    for loss, inputs in (
        (lambda s, p, m: hb.query_loss(s, labels, offsets, codebook, p, m), (s, *keys)),
        (lambda s, p, m: hb.query_loss(s, labels, offsets, codebook, p, m, variant="abs"), (s, *keys)),
        (lambda s, p, m: hb.regression_loss(s, labels, offsets, codebook, p, m), (s, *keys)),
        (lambda s, t: hb.softmax_loss(s, labels, offsets, codebook, t), (s, t)),
    ):
        assert torch.autograd.gradcheck(loss, inputs, fast_mode=True)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 6, 7, 8, 17, 64, 400, 1001, 3000])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_present_and_missing_are_unitary_and_orthogonal(d, seed):
    p, m = hb.present_and_missing(d, seed)
    for key in (p, m):
        modulus = torch.fft.fft(key.double()).abs()
        assert_close(modulus, torch.ones_like(modulus), atol=1e-5, rtol=0)
    assert abs(p.double() @ m.double()) < 1e-6


def test_present_and_missing_depend_on_the_seed_and_resemble_no_label():
    p, m = hb.present_and_missing(1000, 0)
    q, _ = hb.present_and_missing(1000, 1)
    table = hb.RandomCodebook(200, 1000).vectors(torch.arange(200))
    assert abs(p @ q) < 0.15
    assert (table @ torch.stack([p, m]).T).abs().max() < 0.2


def test_one_dimension_has_no_orthogonal_unitary_vectors():
    with pytest.raises(hb.OptionError, match="take dim >= 2"):
        hb.present_and_missing(1)


@pytest.mark.parametrize("loss", ["query", "abs", "softmax", "regression"])
def test_a_row_without_labels_adds_nothing(loss):
    """The sum over rows is the same with and without it, and so are the other rows' gradients."""
    codebook, s = hb.OrbitCodebook(30, 8), normal(4, 8)
    p, m = (key.double() for key in hb.present_and_missing(8))
    labels, offsets, _ = random_sets(30, [3, 0, 2, 0])
    few = torch.tensor([0, 3])
    losses = {
        "query": lambda s, o: hb.query_loss(s, labels, o, codebook, p, m),
        "abs": lambda s, o: hb.query_loss(s, labels, o, codebook, p, m, variant="abs"),
        "softmax": lambda s, o: hb.softmax_loss(s, labels, o, codebook),
        "regression": lambda s, o: hb.regression_loss(s, labels, o, codebook, p, m),
    }
    all_rows, gradient = value_and_gradient(lambda s: losses[loss](s, offsets) * 4, s)
    full_rows, wanted = value_and_gradient(lambda s: losses[loss](s, few) * 2, s[[0, 2]])
    assert_close(all_rows, full_rows)
    assert_close(gradient[[0, 2]], wanted)
    assert gradient[[1, 3]].eq(0).all()


@pytest.mark.parametrize("loss", ["query", "abs", "softmax", "regression"])
def test_batches_without_labels_or_without_rows_have_the_loss_0(loss):
    codebook = hb.OrbitCodebook(30, 8)
    p, m = hb.present_and_missing(8)
    none = torch.tensor([], dtype=torch.long)
    for rows in (2, 0):
        s = normal(rows, 8).float().requires_grad_()
        args = s, none, torch.zeros(rows, dtype=torch.long), codebook
        value = {
            "query": lambda args=args: hb.query_loss(*args, p, m),
            "abs": lambda args=args: hb.query_loss(*args, p, m, variant="abs"),
            "softmax": lambda args=args: hb.softmax_loss(*args),
            "regression": lambda args=args: hb.regression_loss(*args, p, m),
        }[loss]()
        value.backward()
        assert value == 0
        assert s.grad.eq(0).all()


@pytest.mark.parametrize("scale", [0.0, 1e-42, 1e-30, 1e-10, 1.0, 1e10, 1e30])
@pytest.mark.parametrize("count", [1, 75])
@pytest.mark.parametrize("loss", ["query", "abs", "softmax"])
def test_huge_tiny_and_zero_outputs_have_finite_losses_and_gradients(scale, count, loss):
    codebook = hb.OrbitCodebook(500, 64)
    p, m = hb.present_and_missing(64)
    labels, offsets, _ = random_sets(500, [count] * 3)
    s = (normal(3, 64).float() * scale).requires_grad_()
    s.data[1] = 0
    value = {
        "query": lambda: hb.query_loss(s, labels, offsets, codebook, p, m),
        "abs": lambda: hb.query_loss(s, labels, offsets, codebook, p, m, variant="abs"),
        "softmax": lambda: hb.softmax_loss(s, labels, offsets, codebook),
    }[loss]()
    value.backward()
    assert value.isfinite()
    assert s.grad.isfinite().all()
    if loss != "softmax":
        assert s.grad[1].eq(0).all()


def test_cosine_losses_do_not_depend_on_the_length_of_the_output():
    codebook = hb.OrbitCodebook(50, 16)
    p, m = hb.present_and_missing(16)
    labels, offsets, _ = random_sets(50, [2, 3])
    s = normal(2, 16).float()
    wanted = hb.query_loss(s, labels, offsets, codebook, p, m)
    for scale in (1e-15, 1e15, 1e37):
        assert_close(hb.query_loss(s * scale, labels, offsets, codebook, p, m), wanted)


def test_zero_outputs_lose_one_for_each_label():
    codebook = hb.OrbitCodebook(50, 16)
    p, m = hb.present_and_missing(16)
    labels, offsets, _ = random_sets(50, [2, 3])
    assert hb.query_loss(torch.zeros(2, 16), labels, offsets, codebook, p, m) == 2.5
    assert_close(hb.softmax_loss(torch.zeros(2, 16), labels, offsets, codebook), torch.tensor(math.log(50)))


def test_the_frequency_prior_is_a_power_of_relative_smoothed_counts():
    prior = hb.frequency_prior(torch.tensor([0, 3, 100, 1]), 0.5)
    assert_close(prior.exp(), torch.tensor([0.5, 3.5, 100.5, 1.5]).div(100.5).sqrt())


def test_invalid_arguments_are_refused():
    codebook = hb.OrbitCodebook(50, 16)
    p, m = hb.present_and_missing(16)
    labels, offsets, _ = random_sets(50, [2, 3])
    s = torch.ones(2, 16)
    with pytest.raises(hb.LabelError, match=r"label 50 is outside this space of 50 labels \(0 to 49\)"):
        hb.query_loss(s, labels + 50 - labels.max(), offsets, codebook, p, m)
    with pytest.raises(hb.ShapeError, match=r"one entry for each of the 2 rows, got shape \(3,\); pass indptr\[:-1\]"):
        hb.softmax_loss(s, labels, torch.tensor([0, 2, 5]), codebook)
    with pytest.raises(hb.ShapeError, match=r"outputs of shape \(rows, 16\)"):
        hb.softmax_loss(torch.ones(2, 15), labels, offsets, codebook)
    with pytest.raises(hb.OptionError, match="variant must be one of"):
        hb.query_loss(s, labels, offsets, codebook, p, m, variant="square")
