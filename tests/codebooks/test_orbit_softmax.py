"""The compiled log sum exp of an orbit codebook against the matrix of its vectors, in float64."""

import numpy as np
import pytest
import torch
from helpers.codebooks import all_vectors, normal
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import holobind as hb
from holobind._threads import num_threads
from holobind.codebooks import _orbit_softmax, _softmax_kernel
from holobind.codebooks._transform_plan import RADICES, radices, roll_of_position, strides, twiddle_factors

DIMS = [6, 45, 64, 120]  # plans 3 2, 5 3 3, 8 8, 8 5 3: each radix, odd and even, two passes and three


@pytest.fixture(autouse=True)
def compiled_for_few_labels(monkeypatch):
    monkeypatch.setattr("holobind.codebooks._limits.MIN_ROWS_FOR_COMPILED_SOFTMAX", 1)
    monkeypatch.setattr("holobind.codebooks._limits.MIN_SCORES_FOR_COMPILED_SOFTMAX", 0)


@pytest.fixture
def kernel_calls(monkeypatch):
    """How often the compiled function gave a result."""
    found = []

    def counted(*args, wanted=_orbit_softmax.log_sum_exp_and_mean):
        found.append(wanted(*args))
        return found[-1]

    monkeypatch.setattr(_orbit_softmax, "log_sum_exp_and_mean", counted)
    return lambda: sum(one is not None for one in found)


def by_definition(codebook, v, bias=None):
    """log sum exp of the dense scores, and its gradient, in float64."""
    v = v.double().requires_grad_()
    scores = v @ all_vectors(codebook).double().T
    value = (scores if bias is None else scores + bias.double()).logsumexp(1)
    return value.detach(), torch.autograd.grad(value.sum(), v)[0]


def compiled(codebook, v):
    v = v.clone().requires_grad_()
    value = codebook.log_sum_exp(v)
    return value.detach(), torch.autograd.grad(value.sum(), v)[0]


def assert_same(got, wanted, tolerance=2e-5):
    """Gradients are sums of unit vectors with weights that sum to 1: their errors are absolute."""
    assert_close(got[0].double(), wanted[0], atol=tolerance, rtol=1e-6)
    assert_close(got[1].double(), wanted[1], atol=tolerance, rtol=0)


@pytest.mark.parametrize("n", RADICES)
def test_a_small_transform_is_the_sum_of_its_definition(n):
    x = np.random.default_rng(n).normal(size=(n, 2))
    for transform, wanted in ((_softmax_kernel._inverse, np.fft.ifft), (_softmax_kernel._forward, np.fft.fft)):
        y = np.array(transform([tuple(pair) for pair in x]))
        factor = n if wanted is np.fft.ifft else 1
        np.testing.assert_allclose(y @ [1, 1j], factor * wanted(x @ [1, 1j]), atol=1e-12)


@given(st.integers(1, 5000))
def test_a_plan_has_the_product_d_and_its_order_is_a_permutation(d):
    plan = radices(d)
    primes = d
    for prime in (2, 3, 5):
        while primes % prime == 0:
            primes //= prime
    assert (plan is not None) == (primes == 1 and d not in (1, *RADICES))
    if plan is not None:
        assert np.prod(plan) == d and set(plan) <= set(RADICES)
        assert sorted(roll_of_position(plan)) == list(range(d))
        assert strides(plan)[0] * plan[0] == d and strides(plan)[-1] == 1
        assert len(twiddle_factors(plan)) == 2 * sum(s * (r - 1) for r, s in zip(plan, strides(plan), strict=True)) - (
            2 * (plan[-1] - 1)  # the last pass has none
        )


@pytest.mark.parametrize("d", DIMS)
@pytest.mark.parametrize("rows", [1, 16, 21])
def test_log_sum_exp_and_its_gradient_are_the_dense_twins(d, rows, kernel_calls):
    for n_labels in (3 * d, 40 * d - 1, d // 2):  # whole bases, several tasks and a part of a base, less than one base
        codebook = hb.OrbitCodebook(n_labels, d, seed=d)
        v = normal(rows, d, seed=n_labels)
        assert_same(compiled(codebook, v), by_definition(codebook, v))
    assert kernel_calls() == 3


@pytest.mark.parametrize("d", DIMS)
def test_rows_of_very_different_lengths_do_not_disturb_each_other(d, kernel_calls):
    """Two rows share a transform; one has a flat softmax, the other almost all of it on one label."""
    codebook = hb.OrbitCodebook(48 * d, d)
    lengths = torch.tensor([1e-3, 1, 10, 60, 300]).repeat(7)[:32, None]
    v = torch.nn.functional.normalize(normal(32, d)) * lengths
    v[::3] += 25 * codebook.vectors(torch.arange(0, 48 * d, 4 * d + 1))[: len(v[::3])]
    assert_same(compiled(codebook, v), by_definition(codebook, v), 2e-4)  # float32 has scores of 300 to 3e-5
    short = v[lengths[:, 0] <= 10]
    assert_same(compiled(codebook, short), by_definition(codebook, short))
    assert kernel_calls() == 2


def test_the_best_label_may_be_in_any_base(kernel_calls):
    """References are estimated from the first base and raised in later ones, in all tasks and in one."""
    codebook = hb.OrbitCodebook(40 * 64, 64)  # three tasks
    labels = torch.arange(0, 40 * 64, 67)
    v = 30 * codebook.vectors(labels) + normal(len(labels), 64)
    assert_same(compiled(codebook, v), by_definition(codebook, v))
    assert kernel_calls() == 1


def test_a_bias_is_added_to_the_scores(kernel_calls):
    n_labels, d = 9 * 45 + 7, 45
    codebook, v = hb.OrbitCodebook(n_labels, d), normal(18, d)
    for bias in (normal(n_labels, seed=1), normal(n_labels, seed=2) * 50):
        bias[: 2 * d] -= 100  # of all labels of the first base
        biased = hb.BiasedCodebook(codebook, bias.clone().requires_grad_())
        assert_same(compiled(biased, v), by_definition(codebook, v, bias))
        twice = hb.BiasedCodebook(biased, bias.flip(0))
        assert_same(compiled(twice, v), by_definition(codebook, v, bias + bias.flip(0)))
    bias[5:] = -torch.inf
    assert_same(compiled(hb.BiasedCodebook(codebook, bias), v), by_definition(codebook, v, bias))
    assert kernel_calls() == 5
    bias = torch.full((n_labels,), -200.0).index_fill_(0, torch.arange(d), -torch.inf)  # no label of the first base
    assert_same(compiled(hb.BiasedCodebook(codebook, bias), v), by_definition(codebook, v, bias))


def test_a_bound_codebook_has_the_kernel_too(kernel_calls):
    codebook = hb.OrbitCodebook(500, 64).bind(hb.unitary(normal(64, seed=3)))
    v = normal(16, 64)
    assert_same(compiled(codebook, v), by_definition(codebook, v))
    assert kernel_calls() == 1


def test_the_result_does_not_depend_on_the_number_of_threads():
    codebook, v = hb.OrbitCodebook(100 * 64, 64), normal(40, 64)
    with num_threads(1):
        alone = compiled(codebook, v)
    for n in (2, 5):
        with num_threads(n):
            together = compiled(codebook, v)
        assert all(torch.equal(*pair) for pair in zip(alone, together, strict=True))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e20])
def test_rows_out_of_range_are_torchs(value, kernel_calls, monkeypatch):
    codebook, v = hb.OrbitCodebook(500, 64), normal(16, 64)
    v[3, 5] = value
    got = compiled(codebook, v)
    assert kernel_calls() == 0
    monkeypatch.setattr("holobind.codebooks._limits.MIN_ROWS_FOR_COMPILED_SOFTMAX", 1000)
    for one, other in zip(got, compiled(codebook, v), strict=True):
        assert_close(one, other, equal_nan=True)


def test_other_lengths_precisions_and_trainable_vectors_are_torchs(kernel_calls):
    for codebook, v in (
        (hb.OrbitCodebook(500, 77), normal(16, 77)),
        (hb.OrbitCodebook(500, 64), normal(16, 64, dtype=torch.double)),
        (hb.OrbitCodebook(500, 64).to_trainable(), normal(16, 64)),
    ):
        assert_same(compiled(codebook, v), by_definition(codebook, v))
    assert kernel_calls() == 0


def test_torchs_default_dtype_and_device_change_nothing(kernel_calls):
    codebook, v = hb.OrbitCodebook(500, 64), normal(16, 64)
    wanted = compiled(codebook, v)
    torch.set_default_dtype(torch.double)
    try:
        with torch.device("meta"):
            got = compiled(codebook, v)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(*pair) for pair in zip(got, wanted, strict=True))
    assert kernel_calls() == 2


def test_the_gradient_of_a_loss_is_that_of_torchs_cross_entropy(kernel_calls):
    head = hb.HolographicHead(12, 700, 64, crosstalk=0.0)
    head.prior = normal(700, seed=5)
    h, target = normal(20, 12), torch.arange(20) * 31
    head.loss(h, target).backward()
    got = [parameter.grad.clone() for parameter in head.parameters()]
    assert kernel_calls() == 1
    head.zero_grad()
    torch.nn.functional.cross_entropy(head.logits(h), target).backward()
    for one, parameter in zip(got, head.parameters(), strict=True):
        assert_close(one, parameter.grad, atol=1e-5, rtol=1e-4)
