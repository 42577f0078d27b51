"""Every codebook against its slow twin: the matrix of its vectors."""

from itertools import pairwise

import pytest
import torch
from helpers.codebooks import DRAWN, SIZES, ScoreTable, all_vectors, full_sort, kinds, normal, seeds, sizes
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import holobind as hb
from holobind.codebooks.ranking import merge_top_k


@given(kinds, sizes, seeds)
def test_vectors_are_unitary(kind, size, seed):
    modulus = torch.fft.fft(all_vectors(kind(*size, seed=seed)).double()).abs()
    assert_close(modulus, torch.ones_like(modulus), atol=1e-5, rtol=0)


@given(kinds, sizes, seeds, st.sampled_from([torch.float32, torch.float64]))
def test_scores_are_the_product_with_all_vectors(kind, size, seed, dtype):
    codebook = kind(*size, seed=seed)
    v = normal(3, size[1], dtype=dtype)
    assert codebook.scores(v).dtype == dtype
    assert_close(codebook.scores(v), v @ all_vectors(codebook).to(dtype).T, atol=1e-5, rtol=1e-5)


@given(kinds, sizes, seeds)
def test_weighted_sum_is_the_product_of_weights_and_vectors(kind, size, seed):
    codebook = kind(*size, seed=seed)
    weights = normal(3, size[0])
    assert_close(codebook.weighted_sum(weights), weights @ all_vectors(codebook), atol=1e-4, rtol=1e-4)


@given(kinds, sizes, seeds, st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_encode_sums_each_set(kind, size, seed, counts):
    codebook = kind(*size, seed=seed)
    labels = torch.randint(size[0], (sum(counts),), generator=torch.Generator().manual_seed(1))
    sets = labels.split(counts)
    offsets = torch.tensor([0, *counts]).cumsum(0)[:-1]
    wanted = torch.stack([all_vectors(codebook)[one].sum(0) for one in sets])
    assert_close(codebook.encode(labels, offsets), wanted, atol=1e-5, rtol=1e-5)
    assert_close(codebook.encode(labels.int(), offsets.int()), wanted, atol=1e-5, rtol=1e-5)
    weights = normal(len(labels), seed=2)
    pairs = zip(sets, weights.split(counts), strict=True)
    wanted = torch.stack([(all_vectors(codebook)[one] * factors[:, None]).sum(0) for one, factors in pairs])
    for block in (1 << 20, 2 * size[1]):  # at once, and two labels or one set at a time
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("holobind.codebooks._limits.MAX_BLOCK_SCORES", block)
            assert_close(codebook.encode(labels, offsets, weights), wanted, atol=1e-5, rtol=1e-5)


@given(kinds, sizes, seeds, st.data())
def test_top_k_is_a_full_sort(kind, size, seed, data):
    n, d = size
    codebook = kind(n, d, seed=seed)
    k = data.draw(st.integers(1, n))
    v = normal(4, d, seed=seed % 97)
    v[2] = 0  # all labels tie
    dense = v @ all_vectors(codebook).T
    for max_bytes in (1, 1000, 256 << 20):
        found, ids = codebook.top_k(v, k, max_bytes=max_bytes)
        assert_close(found, dense.gather(1, full_sort(dense, k)), atol=1e-5, rtol=1e-5)
        assert_close(found, dense.gather(1, ids), atol=1e-5, rtol=1e-5)
        assert all(len(set(row)) == k for row in ids.tolist())
        assert ids[2].tolist() == list(range(k))
        clear = (dense[:, :, None] - dense[:, None]).abs().add_(torch.eye(n)).amin((1, 2)) > 1e-4
        assert torch.equal(ids[clear], full_sort(dense, k)[clear])


@pytest.mark.parametrize("kind", DRAWN)
def test_top_k_gives_ties_to_the_lowest_label(kind):
    """The scores are replaced by small whole numbers, so that ties are many and exact."""
    codebook = kind(300, 16)
    whole = torch.randint(4, (5, 304), generator=torch.Generator().manual_seed(0)).float()
    fake = ScoreTable(whole[:, :300])
    assert torch.equal(fake.top_k(torch.eye(5), 7, max_bytes=800)[1], full_sort(whole[:, :300], 7))
    # The orbit's own search: a codebook of deltas makes score j of a base the vector's element j.
    orbit = hb.OrbitCodebook(39, 8)
    orbit._drawn_conj_spectra = torch.ones_like(orbit._drawn_conj_spectra)
    v = torch.randint(3, (6, 8), generator=torch.Generator().manual_seed(1)).float()
    exact = v.repeat(1, 5)[:, :39]
    for max_bytes in (1, 1 << 20):
        for k in (1, 4, 7, 39):
            found, ids = orbit.top_k(v * 0 + v.round(), k, max_bytes=max_bytes)
            # FFT rounding may separate equal scores by 1e-7; the labels found must be a best set either way.
            assert_close(found, exact.gather(1, full_sort(exact, k)), atol=1e-5, rtol=0)
            assert_close(exact.gather(1, ids), found, atol=1e-5, rtol=0)
    assert codebook.top_k(torch.zeros(2, 16), 5)[1].tolist() == [[0, 1, 2, 3, 4]] * 2


@given(kinds, sizes, seeds, st.integers(1, 7), st.data())
def test_the_top_k_of_label_ranges_merge_to_that_of_all_labels(kind, size, seed, world_size, data):
    n, d = size
    codebook = kind(n, d, seed=seed)
    ranges = [codebook.label_range(rank, world_size) for rank in range(world_size)]
    assert ranges[0][0] == 0 and ranges[-1][1] == n and all(a[1] == b[0] for a, b in pairwise(ranges))
    whole = [last - first for first, last in ranges if last < n]  # of an orbit, whole bases
    assert all(count % codebook.range_step == 0 for count in whole)
    units = [-(-(last - first) // codebook.range_step) for first, last in ranges]
    assert max(units) - min(units) <= 1
    k = data.draw(st.integers(1, n))
    v = normal(4, d, seed=seed % 97)
    v[2] = 0  # all labels tie
    for max_bytes in (1, 256 << 20):
        per_range = [codebook.top_k(v, k, labels=labels, max_bytes=max_bytes) for labels in ranges]
        for (first, last), (_, ids) in zip(ranges, per_range, strict=True):
            assert ids.shape == (4, min(k, last - first)) and ((ids >= first) & (ids < last)).all()
        found, ids = merge_top_k(per_range, k)
        alone = codebook.top_k(v, k, max_bytes=max_bytes)
        assert_close(found, alone[0], atol=1e-5, rtol=1e-5)
        assert ids[2].tolist() == list(range(k))
        scores = codebook.scores(v)
        clear = (scores[:, :, None] - scores[:, None]).abs().add_(torch.eye(n)).amin((1, 2)) > 1e-4
        assert torch.equal(ids[clear], alone[1][clear])


def test_a_range_that_label_range_does_not_give_is_refused():
    codebook = hb.OrbitCodebook(20, 8)
    assert codebook.label_range(0, 1) == (0, 20) and codebook.label_range(1, 2) == (8, 20)
    for labels in ((4, 16), (-8, 8), (8, 21), (16, 8)):
        with pytest.raises(
            hb.OptionError, match="labels must be a range within 0 to 20 that starts at a multiple of 8"
        ):
            codebook.top_k(torch.zeros(1, 8), 1, labels=labels)
    with pytest.raises(hb.OptionError, match="label_range: rank must be from 0 to below world_size; got 2 and 2"):
        codebook.label_range(2, 2)


@given(kinds, sizes, seeds)
def test_labels_above_are_all_labels_above_the_threshold(kind, size, seed):
    codebook = kind(*size, seed=seed)
    v = normal(4, size[1]) * 0.3
    labels, offsets = codebook.labels_above(v, 0.1, max_bytes=500)
    dense = v @ all_vectors(codebook).T
    wanted = [(row > 0.1).nonzero()[:, 0].tolist() for row in dense]
    undecided = ((dense - 0.1).abs() < 1e-5).any()  # by the rounding of float32
    got = [row.tolist() for row in labels.tensor_split(offsets[1:])]
    assert undecided or got == wanted


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("size", SIZES)
def test_gradients_match_finite_differences(kind, size):
    n, d = size
    codebook = kind(n, d)
    v = normal(2, d, dtype=torch.double).requires_grad_()
    weights = normal(2, n, dtype=torch.double).requires_grad_()
    assert torch.autograd.gradcheck(codebook.scores, v, fast_mode=True)
    assert torch.autograd.gradcheck(codebook.weighted_sum, weights, fast_mode=True)
    assert torch.autograd.gradcheck(codebook.log_sum_exp, v)
    assert torch.autograd.gradgradcheck(lambda v: codebook.scores(v).pow(2), v, fast_mode=True)


@given(kinds, sizes, seeds)
def test_gradient_of_scores_is_the_dense_twins(kind, size, seed):
    codebook = kind(*size, seed=seed)
    fast, slow = (normal(3, size[1]).requires_grad_() for _ in range(2))
    upstream = normal(3, size[0], seed=2)
    codebook.scores(fast).backward(upstream)
    (slow @ all_vectors(codebook).T).backward(upstream)
    assert_close(fast.grad, slow.grad, atol=1e-4, rtol=1e-4)


@given(kinds, sizes, seeds, st.sampled_from([1e-3, 1, 300]))
def test_log_sum_exp_is_the_dense_twins(kind, size, seed, scale):
    codebook = kind(*size, seed=seed)
    fast, slow = ((normal(3, size[1], dtype=torch.double) * scale).requires_grad_() for _ in range(2))
    got, wanted = codebook.log_sum_exp(fast), (slow @ all_vectors(codebook).double().T).logsumexp(1)
    assert_close(got, wanted, atol=1e-4, rtol=1e-4)
    got.sum().backward()
    wanted.sum().backward()
    assert_close(fast.grad, slow.grad, atol=1e-3, rtol=1e-3)


def test_many_blocks_give_the_same_as_one(monkeypatch):
    v, weights = normal(70, 24), normal(70, 1000)
    for kind in DRAWN:
        codebook = kind(1000, 24)
        whole = codebook.scores(v), codebook.weighted_sum(weights), codebook.log_sum_exp(v), codebook.top_k(v, 9)[0]
        with monkeypatch.context() as patch:
            patch.setattr("holobind.codebooks._limits.MAX_BLOCK_SCORES", 24 * 20)
            blocks = (
                codebook.scores(v),
                codebook.weighted_sum(weights),
                codebook.log_sum_exp(v),
                codebook.top_k(v, 9)[0],
            )
        for one, other in zip(whole, blocks, strict=True):
            assert_close(one, other, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("max_bytes", [1 << 20, 8 << 20])
def test_top_k_allocates_no_tensor_above_its_bound(kind, max_bytes):
    """At batch 1024 all scores would be 82 MB."""
    codebook, v = kind(20_000, 64), normal(1024, 64)
    seen = []
    with LargestTensor(seen):
        codebook.top_k(v, 5, max_bytes=max_bytes)
    assert max(seen) <= max_bytes


class LargestTensor(TorchDispatchMode):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor):
                self.seen.append(one.untyped_storage().nbytes())
        return made


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("d", [1, 2, 7, 16, 400, 1001])
def test_a_vector_has_the_same_bits_in_any_batch(kind, d):
    codebook = kind(300, d, seed=5)
    table = all_vectors(codebook)
    threads = torch.get_num_threads()
    for ids in ([299], [0, 1], [7, 7, 7], list(range(100, 217))):
        torch.set_num_threads(1 if len(ids) % 2 else threads)
        assert torch.equal(kind(300, d, seed=5).vectors(torch.tensor(ids)), table[ids])
    torch.set_num_threads(threads)


@pytest.mark.parametrize("kind", DRAWN)
def test_another_seed_gives_other_vectors(kind):
    one, other = (all_vectors(kind(50, 64, seed=seed)) for seed in (0, 1))
    assert (one @ other.T).abs().max() < 0.6


@given(kinds, sizes, seeds, st.integers(0, 80))
def test_expanding_keeps_the_vector_of_every_label(kind, size, seed, extra):
    n, d = size
    codebook = kind(n, d, seed=seed)
    expanded = codebook.expand_to(n + extra)
    assert expanded.n_labels == n + extra
    assert torch.equal(expanded.vectors(torch.arange(n)), all_vectors(codebook))
    assert torch.equal(all_vectors(expanded), all_vectors(kind(n + extra, d, seed=seed)))


@given(st.sampled_from([*DRAWN, "dense"]), sizes, seeds)
def test_bind_gives_the_codebook_of_bound_vectors(kind, size, seed):
    n, d = size
    codebook = hb.DenseCodebook(normal(n, d)) if kind == "dense" else kind(n, d, seed=seed)
    p, q = hb.unitary(normal(2, d, seed=9))
    wanted = hb.bind(all_vectors(codebook), p)
    assert_close(all_vectors(codebook.bind(p)), wanted, atol=1e-4, rtol=1e-4)
    v = normal(2, d)
    assert_close(codebook.bind(p).scores(v), v @ wanted.T, atol=1e-4, rtol=1e-4)
    labels, offsets = torch.arange(n), torch.tensor([0, n // 2])
    assert_close(
        codebook.bind(p).encode(labels, offsets), hb.bind(codebook.encode(labels, offsets), p), atol=1e-4, rtol=1e-4
    )
    assert_close(codebook.bind(p).bind(q).scores(v), v @ hb.bind(wanted, q).T, atol=1e-4, rtol=1e-4)
    if kind != "dense":
        assert_close(all_vectors(codebook.bind(p).expand_to(n + d))[:n], wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", DRAWN)
def test_half_precision_and_autocast_keep_scores_exact(kind):
    codebook = kind(40, 16)
    v = normal(3, 16).bfloat16()
    exact = v.float() @ all_vectors(codebook).T
    codebook.half().to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(codebook.scores(v), exact)
        assert torch.equal(codebook.top_k(v, 5)[1], exact.topk(5)[1])


@pytest.mark.parametrize("kind", [hb.OrbitCodebook, hb.RandomCodebook])
@pytest.mark.parametrize("size", [(20, 7), (3, 8)])
def test_trainable_vectors_stay_unitary_and_have_right_gradients(kind, size):
    n, d = size
    codebook = kind(n, d).to_trainable()
    assert codebook.trainable and not kind(n, d).trainable
    assert_close(all_vectors(codebook), all_vectors(kind(n, d)), atol=1e-5, rtol=1e-5)
    (parameter,) = codebook.double().parameters()
    v = normal(2, d, dtype=torch.double).requires_grad_()
    labels, offsets = torch.tensor([0, 2, 2, 1]), torch.tensor([0, 3, 3])

    # By finite differences along one direction: the parameter lives in the module, so gradcheck cannot move it.
    def value():
        total = codebook.weighted_sum(torch.sin(torch.arange(2.0 * n, dtype=torch.double)).view(2, n))
        return (
            codebook.scores(v).sin().sum()
            + codebook.log_sum_exp(v).sum()
            + total.pow(3).sum()
            + codebook.encode(labels, offsets).pow(3).sum()
        )

    value().backward()
    along, step = normal(*parameter.shape, seed=3, dtype=torch.double), 1e-6
    with torch.no_grad():
        parameter += step * along
        up = value()
        parameter -= 2 * step * along
        down = value()
    assert_close((parameter.grad * along).sum(), (up - down) / (2 * step), atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        parameter += normal(*parameter.shape)
    modulus = torch.fft.fft(all_vectors(codebook).detach()).abs()
    assert_close(modulus, torch.ones_like(modulus), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", DRAWN)
def test_invalid_arguments_are_refused(kind):
    codebook = kind(10, 4)
    with pytest.raises(hb.LabelError, match=r"label 10 is outside this space of 10 labels \(0 to 9\)"):
        codebook.vectors(torch.tensor([3, 10]))
    with pytest.raises(IndexError, match="label -1 is outside"):
        codebook.encode(torch.tensor([3, -1]), torch.tensor([0]))
    with pytest.raises(hb.DTypeError, match="int64 or int32"):
        codebook.vectors(torch.tensor([0.5]))
    with pytest.raises(hb.ShapeError, match="must start at 0"):
        codebook.encode(torch.tensor([1, 2]), torch.tensor([0, 2, 1]))
    with pytest.raises(hb.ShapeError, match=r"one weight for each label, got \(3,\) for \(2,\)"):
        codebook.encode(torch.tensor([1, 2]), torch.tensor([0]), torch.ones(3))
    with pytest.raises(hb.ShapeError, match="no row for the 2 labels"):
        codebook.encode(torch.tensor([1, 2]), torch.tensor([], dtype=torch.long))
    with pytest.raises(hb.ShapeError, match="wants 4 elements"):
        codebook.scores(torch.zeros(2, 5))
    with pytest.raises(hb.OptionError, match="k must be from 1 to the number of labels, 10; got 11"):
        codebook.top_k(torch.zeros(2, 4), 11)
    with pytest.raises(hb.OptionError, match="n_labels must be at least 1"):
        kind(0, 4)
    with pytest.raises(hb.OptionError, match="there are 10 labels already, and a codebook does not shrink to 9"):
        codebook.expand_to(9)
    with pytest.raises(hb.ShapeError, match=r"bind: wants one vector of 4 elements, got shape \(2, 4\)"):
        codebook.bind(torch.ones(2, 4))


def test_leading_axes_are_kept():
    codebook = hb.OrbitCodebook(10, 4)
    v = normal(2, 3, 4)
    assert codebook.scores(v).shape == (2, 3, 10)
    assert codebook.scores(v[0, 0]).shape == (10,)
    assert codebook.weighted_sum(torch.ones(10)).shape == (4,)
    assert [tensor.shape for tensor in codebook.top_k(v, 5)] == [(2, 3, 5)] * 2
    assert codebook.log_sum_exp(v).shape == (2, 3)
    assert codebook.encode(torch.tensor([], dtype=torch.long), torch.tensor([0, 0])).eq(0).all()


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("kind", [*DRAWN, hb.OneHotCodebook, hb.DenseCodebook.naive])
def test_empty_batches_give_empty_results(kind, trainable):
    codebook, none = kind(10, 12), torch.zeros(0, 12)
    codebook = codebook.to_trainable() if trainable else codebook
    assert codebook.scores(none).shape == (0, 10)
    assert codebook.weighted_sum(torch.zeros(0, 10)).shape == (0, 12)
    assert codebook.top_k(none, 2)[1].shape == (0, 2)
    assert codebook.log_sum_exp(none).shape == (0,)
    assert [len(tensor) for tensor in codebook.labels_above(none, 0.5)] == [0, 0]
