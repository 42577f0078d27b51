"""Every codebook against the slow obvious one: a matrix of its vectors."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import holobind as hb
from holobind import _topk as ranking
from holobind.codebooks import base as labelspace
from holobind.codebooks._philox import phases, philox
from holobind.codebooks.base import first_largest, merged
from holobind.errors import OptionError

# (labels, d): fewer labels than d, as many, not a multiple, one; odd and even d, and the smallest.
SIZES = [(3, 7), (7, 7), (16, 8), (20, 7), (25, 8), (1, 5), (9, 1), (9, 2), (130, 16)]
sizes = st.tuples(st.integers(1, 60), st.integers(1, 33))
seeds = st.integers(0, 2**40)
BOOKS = [hb.OrbitCodebook, hb.RandomCodebook]
kinds = st.sampled_from(BOOKS)


def every_vector(book):
    return book.vectors(torch.arange(book.n_labels))


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def full_sort(scores, k):
    """The definition: sort all by falling score, then by rising label."""
    rows = [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:k] for row in scores.tolist()]
    return torch.tensor(rows)


@given(kinds, sizes, seeds)
def test_vectors_are_unitary(kind, size, seed):
    modulus = torch.fft.fft(every_vector(kind(*size, seed=seed)).double()).abs()
    assert_close(modulus, torch.ones_like(modulus), atol=1e-5, rtol=0)


@given(sizes, seeds)
def test_a_label_of_an_orbit_is_its_base_rolled(size, seed):
    n, d = size
    table = every_vector(hb.OrbitCodebook(n, d, seed=seed))
    bases = every_vector(hb.OrbitCodebook(-(-n // d) * d, d, seed=seed))[::d]
    for i in range(n):
        assert_close(table[i], bases[i // d].roll(i % d), atol=0, rtol=0)


@pytest.mark.parametrize("d", [8, 33, 400, 1001])
def test_rolls_of_one_base_are_orthogonal(d):
    table = every_vector(hb.OrbitCodebook(d, d)).double()
    assert_close(table @ table.T, torch.eye(d, dtype=torch.double), atol=1e-5, rtol=0)


@given(kinds, sizes, seeds, st.sampled_from([torch.float32, torch.float64]))
def test_scores_are_the_product_with_all_vectors(kind, size, seed, dtype):
    book = kind(*size, seed=seed)
    v = normal(3, size[1], dtype=dtype)
    assert book.scores(v).dtype == dtype
    assert_close(book.scores(v), v @ every_vector(book).to(dtype).T, atol=1e-5, rtol=1e-5)


@given(kinds, sizes, seeds)
def test_mix_is_the_weighted_sum_of_all_vectors(kind, size, seed):
    book = kind(*size, seed=seed)
    weights = normal(3, size[0])
    assert_close(book.mix(weights), weights @ every_vector(book), atol=1e-4, rtol=1e-4)


@given(kinds, sizes, seeds, st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_encode_sums_each_set(kind, size, seed, counts):
    book = kind(*size, seed=seed)
    labels = torch.randint(size[0], (sum(counts),), generator=torch.Generator().manual_seed(1))
    sets = labels.split(counts)
    offsets = torch.tensor([0, *counts]).cumsum(0)[:-1]
    wanted = torch.stack([every_vector(book)[one].sum(0) for one in sets])
    assert_close(book.encode(labels, offsets), wanted, atol=1e-5, rtol=1e-5)
    assert_close(book.encode(labels.int(), offsets.int()), wanted, atol=1e-5, rtol=1e-5)
    weights = normal(len(labels), seed=2)
    pairs = zip(sets, weights.split(counts), strict=True)
    wanted = torch.stack([(every_vector(book)[one] * by[:, None]).sum(0) for one, by in pairs])
    for tile in (1 << 20, 2 * size[1]):  # at once, and two labels or one set at a time
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("holobind.codebooks.base.TILE", tile)
            assert_close(book.encode(labels, offsets, weights), wanted, atol=1e-5, rtol=1e-5)


@given(kinds, sizes, seeds, st.data())
def test_top_k_is_a_full_sort(kind, size, seed, data):
    n, d = size
    book = kind(n, d, seed=seed)
    k = data.draw(st.integers(1, n))
    v = normal(4, d, seed=seed % 97)
    v[2] = 0  # all labels tie
    dense = v @ every_vector(book).T
    for memory in (1, 1000, 256 << 20):
        found, ids = book.top_k(v, k, memory=memory)
        assert_close(found, dense.gather(1, full_sort(dense, k)), atol=1e-5, rtol=1e-5)
        assert_close(found, dense.gather(1, ids), atol=1e-5, rtol=1e-5)
        assert all(len(set(row)) == k for row in ids.tolist())
        assert ids[2].tolist() == list(range(k))
        clear = (dense[:, :, None] - dense[:, None]).abs().add_(torch.eye(n)).amin((1, 2)) > 1e-4
        assert torch.equal(ids[clear], full_sort(dense, k)[clear])


@given(kinds, sizes, seeds, st.integers(1, 3), st.data())
def test_the_top_k_with_a_shift_is_a_full_sort_of_shifted_scores(kind, size, seed, world, data):
    n, d = size
    plain, shift = kind(n, d, seed=seed), 3 * normal(n, seed=seed % 89)
    book = hb.BiasedCodebook(plain, shift)
    k = data.draw(st.integers(1, n))
    v = normal(4, d, seed=seed % 97)
    v[2] = 0  # nothing but the shift
    dense = v @ every_vector(plain).T + shift
    for memory in (1, 1000, 256 << 20):
        parts = [book.top_k(v, k, labels=book.label_range(rank, world), memory=memory) for rank in range(world)]
        found, ids = merged(parts, k)
        assert_close(found, dense.gather(1, full_sort(dense, k)), atol=1e-5, rtol=1e-5)
        assert_close(found, dense.gather(1, ids), atol=1e-5, rtol=1e-5)
        assert all(len(set(row)) == k for row in ids.tolist())
        assert torch.equal(ids[2], full_sort(shift[None], k)[0])


@pytest.mark.parametrize("kind", BOOKS)
def test_top_k_gives_ties_to_the_lowest_label(kind):
    """Scores of small whole numbers, so that ties are many and exact, in place of the true ones."""
    book = kind(300, 16)
    whole = torch.randint(4, (5, 304), generator=torch.Generator().manual_seed(0)).float()
    fake = DenseTwin(whole[:, :300])
    assert torch.equal(fake.top_k(torch.eye(5), 7, memory=800)[1], full_sort(whole[:, :300], 7))
    # The orbit's own search: a codebook of deltas makes score j of a base the vector's element j.
    orbit = hb.OrbitCodebook(39, 8)
    orbit._readers = torch.ones_like(orbit._readers)
    v = torch.randint(3, (6, 8), generator=torch.Generator().manual_seed(1)).float()
    exact = v.repeat(1, 5)[:, :39]
    for memory in (1, 1 << 20):
        for k in (1, 4, 7, 39):
            found, ids = orbit.top_k(v * 0 + v.round(), k, memory=memory)
            # FFT rounding may part equal scores by 1e-7; what is found must be a best set either way.
            assert_close(found, exact.gather(1, full_sort(exact, k)), atol=1e-5, rtol=0)
            assert_close(exact.gather(1, ids), found, atol=1e-5, rtol=0)
    assert book.top_k(torch.zeros(2, 16), 5)[1].tolist() == [[0, 1, 2, 3, 4]] * 2


@given(kinds, sizes, seeds, st.integers(1, 7), st.data())
def test_the_top_k_of_shares_merge_to_that_of_all_labels(kind, size, seed, world, data):
    n, d = size
    book = kind(n, d, seed=seed)
    shares = [book.label_range(rank, world) for rank in range(world)]
    assert shares[0][0] == 0 and shares[-1][1] == n and all(a[1] == b[0] for a, b in itertools.pairwise(shares))
    whole = [last - first for first, last in shares if last < n]  # of an orbit, whole bases
    assert all(count % book.grain == 0 for count in whole)
    units = [-(-(last - first) // book.grain) for first, last in shares]
    assert max(units) - min(units) <= 1
    k = data.draw(st.integers(1, n))
    v = normal(4, d, seed=seed % 97)
    v[2] = 0  # all labels tie
    for memory in (1, 256 << 20):
        parts = [book.top_k(v, k, labels=labels, memory=memory) for labels in shares]
        for (first, last), (_, ids) in zip(shares, parts, strict=True):
            assert ids.shape == (4, min(k, last - first)) and ((ids >= first) & (ids < last)).all()
        found, ids = merged(parts, k)
        alone = book.top_k(v, k, memory=memory)
        assert_close(found, alone[0], atol=1e-5, rtol=1e-5)
        assert ids[2].tolist() == list(range(k))
        scores = book.scores(v)
        clear = (scores[:, :, None] - scores[:, None]).abs().add_(torch.eye(n)).amin((1, 2)) > 1e-4
        assert torch.equal(ids[clear], alone[1][clear])


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32))
def test_merging_shares_keeps_ties_with_the_lowest_label(n, world, seed):
    """Scores of a few whole numbers: exact, so that the merge of any shares is the full sort to the bit."""
    scores = torch.randint(3, (4, n), generator=torch.Generator().manual_seed(seed)).float()
    book = DenseTwin(scores)
    for k in {1, min(3, n), n}:
        parts = [book.top_k(torch.eye(4), k, labels=book.label_range(rank, world)) for rank in range(world)]
        found, ids = merged(parts, k)
        assert torch.equal(ids, full_sort(scores, k)) and torch.equal(found, scores.gather(1, ids))


def test_a_share_that_is_none_is_told():
    book = hb.OrbitCodebook(20, 8)
    assert book.label_range(0, 1) == (0, 20) and book.label_range(1, 2) == (8, 20)
    for labels in ((4, 16), (-8, 8), (8, 21), (16, 8)):
        with pytest.raises(OptionError, match="top_k: labels must be a range within 0 to 20 that starts at a multiple"):
            book.top_k(torch.zeros(1, 8), 1, labels=labels)
    with pytest.raises(OptionError, match="share: rank must be from 0 to below world; got 2 and 2"):
        book.label_range(2, 2)


class DenseTwin(hb.DenseCodebook):
    def __init__(self, scores):
        super().__init__(scores.T)


@pytest.mark.parametrize("many", [0, labelspace.MANY])
@given(st.integers(1, 8), st.integers(1, 200), st.integers(0, 99), st.data())
def test_first_largest_is_a_full_sort(many, rows, n, seed, data):
    """Also of -inf, compiled or not."""
    k = data.draw(st.integers(1, n))
    scores = torch.randint(-1, 5, (rows, n), generator=torch.Generator().manual_seed(seed)).log().nan_to_num(-torch.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelspace, "MANY", many)
        found, where = first_largest(scores, k)
    assert torch.equal(where, full_sort(scores, k))
    assert torch.equal(found, scores.gather(1, where))


@pytest.mark.parametrize("at", [0, 100, 299])
def test_a_nan_is_ranked_as_torch_does(at):
    scores = normal(2, 300)
    scores[1, at] = torch.nan
    _, where = ranking.largest(scores[:1].numpy(), 5)
    assert where[0].tolist() == scores[0].topk(5).indices.tolist()
    assert ranking.largest(scores.numpy(), 5) is None


@given(kinds, sizes, seeds)
def test_above_holds_every_label_that_passes(kind, size, seed):
    book = kind(*size, seed=seed)
    v = normal(4, size[1]) * 0.3
    labels, offsets = book.above(v, 0.1, memory=500)
    dense = v @ every_vector(book).T
    wanted = [(row > 0.1).nonzero()[:, 0].tolist() for row in dense]
    near = ((dense - 0.1).abs() < 1e-5).any()
    got = [part.tolist() for part in labels.tensor_split(offsets[1:])]
    assert near or got == wanted


@pytest.mark.parametrize("kind", BOOKS)
@pytest.mark.parametrize("size", SIZES)
def test_gradients_of_every_order(kind, size):
    n, d = size
    book = kind(n, d)
    v = normal(2, d, dtype=torch.double).requires_grad_()
    weights = normal(2, n, dtype=torch.double).requires_grad_()
    assert torch.autograd.gradcheck(book.scores, v, fast_mode=True)
    assert torch.autograd.gradcheck(book.mix, weights, fast_mode=True)
    assert torch.autograd.gradcheck(book.log_sum_exp, v)
    assert torch.autograd.gradgradcheck(lambda v: book.scores(v).pow(2), v, fast_mode=True)


@given(kinds, sizes, seeds)
def test_gradient_of_scores_is_the_dense_twins(kind, size, seed):
    book = kind(*size, seed=seed)
    fast, slow = (normal(3, size[1]).requires_grad_() for _ in range(2))
    upstream = normal(3, size[0], seed=2)
    book.scores(fast).backward(upstream)
    (slow @ every_vector(book).T).backward(upstream)
    assert_close(fast.grad, slow.grad, atol=1e-4, rtol=1e-4)


@given(kinds, sizes, seeds, st.sampled_from([1e-3, 1, 300]))
def test_log_sum_exp_is_the_dense_twins(kind, size, seed, scale):
    book = kind(*size, seed=seed)
    fast, slow = ((normal(3, size[1], dtype=torch.double) * scale).requires_grad_() for _ in range(2))
    got, wanted = book.log_sum_exp(fast), (slow @ every_vector(book).double().T).logsumexp(1)
    assert_close(got, wanted, atol=1e-4, rtol=1e-4)
    got.sum().backward()
    wanted.sum().backward()
    assert_close(fast.grad, slow.grad, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (4, 4), (5, 9)])
def test_unit_vectors_answer_as_their_stored_twins(n, d):
    book, twin = hb.OneHotCodebook(n, d), hb.DenseCodebook(torch.eye(n, d))
    v, weights, p = normal(6, d), normal(6, n), hb.unitary(normal(d))
    before = v.clone()
    fast, slow = (v.clone().requires_grad_() for _ in range(2))
    for one, other in (
        (every_vector(book), every_vector(twin)),
        (book.scores(v), twin.scores(v)),
        (book.mix(weights), twin.mix(weights)),
        (book.log_sum_exp(fast), twin.log_sum_exp(slow)),
        (book.top_k(v, n)[1], twin.top_k(v, n)[1]),
        (book.top_k(v, 1, labels=(n - 1, n))[1], torch.full((6, 1), n - 1)),
        (every_vector(book.bound(p)), every_vector(twin.bound(p))),
        (every_vector(book.learnable()), every_vector(twin.learnable())),
    ):
        assert_close(one, other)
    for mine, others in zip(book.above(v, 0.1, memory=1), twin.above(v, 0.1), strict=True):
        assert torch.equal(mine, others)
    book.log_sum_exp(fast).sum().backward()
    twin.log_sum_exp(slow).sum().backward()
    assert_close(fast.grad, slow.grad)
    labels, offsets, by = torch.tensor([0, n - 1, 0]), torch.tensor([0, 0, 2]), torch.tensor([0.5, 2.0, 3.0])
    assert_close(book.encode(labels, offsets, by), twin.encode(labels, offsets, by))
    assert_close(book.encode(labels, offsets), twin.encode(labels, offsets))
    assert torch.equal(v, before)  # scores are elements of it, but their own


def test_there_are_no_more_unit_vectors_than_numbers():
    assert hb.OneHotCodebook(3, 5).grown_to(5).n_labels == 5
    for make in (lambda: hb.OneHotCodebook(6, 5), lambda: hb.OneHotCodebook(3, 5).grown_to(6)):
        with pytest.raises(hb.OptionError, match="dim 5 has unit vectors for 5 labels; got 6, take an orbit"):
            make()


def test_phases_kept_for_training_are_those_that_would_be_drawn(monkeypatch):
    """Kept only where gradients are asked for and there is memory for all; let go of by eval()."""
    book = hb.RandomCodebook(300, 17, seed=4)

    def answer():
        v = normal(5, 17).requires_grad_()
        total = book.log_sum_exp(v)
        total.sum().backward()
        return total.detach(), v.grad, book.scores(v.detach())

    with torch.no_grad():
        book.log_sum_exp(normal(5, 17))
    assert book._kept is None
    with monkeypatch.context() as patch:
        patch.setattr("holobind.codebooks.base.MEMORY", 4 * 300 * 18)
        drawn = answer()
        assert book._kept is None
    kept = answer()
    assert book._kept is not None
    for one, other in zip(kept, drawn, strict=True):
        assert torch.equal(one, other)
    assert book.eval()._kept is None


def test_many_tiles_give_the_same_as_one(monkeypatch):
    v, weights = normal(70, 24), normal(70, 1000)
    for kind in BOOKS:
        book = kind(1000, 24)
        whole = book.scores(v), book.mix(weights), book.log_sum_exp(v), book.top_k(v, 9)[0]
        with monkeypatch.context() as patch:
            patch.setattr("holobind.codebooks.base.TILE", 24 * 20)
            parts = book.scores(v), book.mix(weights), book.log_sum_exp(v), book.top_k(v, 9)[0]
        for one, other in zip(whole, parts, strict=True):
            assert_close(one, other, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", BOOKS)
@pytest.mark.parametrize("memory", [1 << 20, 8 << 20])
def test_top_k_holds_a_bounded_number_of_scores(kind, memory):
    """At batch 1024 all scores would be 82 MB."""
    book, v = kind(20_000, 64), normal(1024, 64)
    seen = []
    with LargestTensor(seen):
        book.top_k(v, 5, memory=memory)
    assert max(seen) <= memory


class LargestTensor(TorchDispatchMode):
    def __init__(self, seen):
        super().__init__()
        self.frequencies = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor):
                self.frequencies.append(one.untyped_storage().nbytes())
        return made


@pytest.mark.parametrize("kind", BOOKS)
@pytest.mark.parametrize("d", [1, 2, 7, 16, 400, 1001])
def test_a_vector_has_the_same_bits_in_any_batch(kind, d):
    book = kind(300, d, seed=5)
    table = every_vector(book)
    threads = torch.get_num_threads()
    for ids in ([299], [0, 1], [7, 7, 7], list(range(100, 217))):
        torch.set_num_threads(1 if len(ids) % 2 else threads)
        assert torch.equal(kind(300, d, seed=5).vectors(torch.tensor(ids)), table[ids])
    torch.set_num_threads(threads)


def test_philox_gives_the_published_answers():
    """The known answers of the authors' own library, Random123, for ten rounds of four 32-bit words."""
    for counter, key, answer in [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]:
        assert [int(word) for word in philox(tuple(map(torch.tensor, counter)), tuple(key))] == answer


def test_phases_drawn_are_those_of_projected_gaussians():
    """Equal in law: the elements' first four moments, at d small enough that they are not yet Gaussian."""
    n, d = 200_000, 6
    drawn = every_vector(hb.RandomCodebook(n, d)).double()
    projected = hb.unitary(normal(n, d, dtype=torch.double))
    for moment in range(1, 5):
        assert_close(drawn.pow(moment).mean(0), projected.pow(moment).mean(0), atol=4e-3, rtol=0)
    assert_close(drawn.T @ drawn / n, projected.T @ projected / n, atol=4e-3, rtol=0)
    triple = [(t[:, 0] * t[:, 1] * t[:, 4] * t[:, 5]).mean() for t in (drawn, projected)]
    assert_close(*triple, atol=2e-3, rtol=0)


def test_every_phase_bit_is_a_fair_coin():
    angle = torch.view_as_complex(phases(3, torch.arange(4000), 33)).angle() / (2 * torch.pi) % 1
    histogram = torch.histc(angle[:, 1:].flatten(), 64, 0, 1) / (4000 * 16 / 64)
    assert_close(histogram, torch.ones(64), atol=0.15, rtol=0)


@pytest.mark.parametrize("kind", BOOKS)
def test_seeds_differ(kind):
    one, other = (every_vector(kind(50, 64, seed=seed)) for seed in (0, 1))
    assert (one @ other.T).abs().max() < 0.6


@given(kinds, sizes, seeds, st.integers(0, 80))
def test_growing_keeps_every_vector(kind, size, seed, more):
    n, d = size
    book = kind(n, d, seed=seed)
    grown = book.grown_to(n + more)
    assert grown.n_labels == n + more
    assert torch.equal(grown.vectors(torch.arange(n)), every_vector(book))
    assert torch.equal(every_vector(grown), every_vector(kind(n + more, d, seed=seed)))


@given(st.sampled_from([*BOOKS, "dense"]), sizes, seeds)
def test_bound_is_the_codebook_of_bound_vectors(kind, size, seed):
    n, d = size
    book = hb.DenseCodebook(normal(n, d)) if kind == "dense" else kind(n, d, seed=seed)
    p, q = hb.unitary(normal(2, d, seed=9))
    wanted = hb.bind(every_vector(book), p)
    assert_close(every_vector(book.bound(p)), wanted, atol=1e-4, rtol=1e-4)
    v = normal(2, d)
    assert_close(book.bound(p).scores(v), v @ wanted.T, atol=1e-4, rtol=1e-4)
    labels, offsets = torch.arange(n), torch.tensor([0, n // 2])
    assert_close(book.bound(p).encode(labels, offsets), hb.bind(book.encode(labels, offsets), p), atol=1e-4, rtol=1e-4)
    assert_close(book.bound(p).bound(q).scores(v), v @ hb.bind(wanted, q).T, atol=1e-4, rtol=1e-4)
    if kind != "dense":
        assert_close(every_vector(book.bound(p).grown_to(n + d))[:n], wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", BOOKS)
def test_half_precision_and_autocast_do_not_blunt_the_scores(kind):
    book = kind(40, 16)
    v = normal(3, 16).bfloat16()
    exact = v.float() @ every_vector(book).T
    book.half().to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(book.scores(v), exact)
        assert torch.equal(book.top_k(v, 5)[1], exact.topk(5)[1])


@pytest.mark.parametrize("kind", [hb.OrbitCodebook, hb.RandomCodebook])
@pytest.mark.parametrize("size", [(20, 7), (3, 8)])
def test_learned_vectors_stay_unitary_and_have_right_gradients(kind, size):
    n, d = size
    book = kind(n, d).learnable()
    assert book.learned and not kind(n, d).learned
    assert_close(every_vector(book), every_vector(kind(n, d)), atol=1e-5, rtol=1e-5)
    (parameter,) = book.double().parameters()
    v = normal(2, d, dtype=torch.double).requires_grad_()
    labels, offsets = torch.tensor([0, 2, 2, 1]), torch.tensor([0, 3, 3])

    # By finite differences along one direction: the parameter lives in the module, so gradcheck cannot move it.
    def value():
        mixed = book.mix(torch.sin(torch.arange(2.0 * n, dtype=torch.double)).view(2, n))
        return (
            book.scores(v).sin().sum()
            + book.log_sum_exp(v).sum()
            + mixed.pow(3).sum()
            + book.encode(labels, offsets).pow(3).sum()
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
    modulus = torch.fft.fft(every_vector(book).detach()).abs()
    assert_close(modulus, torch.ones_like(modulus), atol=1e-5, rtol=0)


def test_a_learned_orbit_grows_and_the_rest_say_why_not():
    book = hb.OrbitCodebook(10, 4).learnable()
    with torch.no_grad():
        book.bases += 1
    assert_close(every_vector(book.grown_to(23))[:10], every_vector(book))
    with pytest.raises(hb.OptionError, match="append it to the table"):
        hb.DenseCodebook(normal(3, 4)).grown_to(5)
    with pytest.raises(hb.OptionError, match="there are 10 labels already"):
        hb.OrbitCodebook(10, 4).grown_to(9)
    with pytest.raises(hb.OptionError, match="learned"):
        book.bound(torch.ones(4))


@pytest.mark.parametrize("kind", BOOKS)
def test_what_is_refused(kind):
    book = kind(10, 4)
    with pytest.raises(hb.LabelError, match=r"label 10 is outside this space of 10 labels \(0 to 9\)"):
        book.vectors(torch.tensor([3, 10]))
    with pytest.raises(IndexError, match="label -1 is outside"):
        book.encode(torch.tensor([3, -1]), torch.tensor([0]))
    with pytest.raises(hb.DTypeError, match="int64 or int32"):
        book.vectors(torch.tensor([0.5]))
    with pytest.raises(hb.ShapeError, match="must start at 0"):
        book.encode(torch.tensor([1, 2]), torch.tensor([0, 2, 1]))
    with pytest.raises(hb.ShapeError, match=r"one weight a label, got \(3,\) for \(2,\)"):
        book.encode(torch.tensor([1, 2]), torch.tensor([0]), torch.ones(3))
    with pytest.raises(hb.ShapeError, match="no row for the 2 labels"):
        book.encode(torch.tensor([1, 2]), torch.tensor([], dtype=torch.long))
    with pytest.raises(hb.ShapeError, match="wants 4 elements"):
        book.scores(torch.zeros(2, 5))
    with pytest.raises(hb.OptionError, match="k must be from 1 to the number of labels, 10; got 11"):
        book.top_k(torch.zeros(2, 4), 11)
    with pytest.raises(hb.OptionError, match="n_labels must be at least 1"):
        kind(0, 4)


def test_leading_axes_are_kept():
    book = hb.OrbitCodebook(10, 4)
    v = normal(2, 3, 4)
    assert book.scores(v).shape == (2, 3, 10)
    assert book.scores(v[0, 0]).shape == (10,)
    assert book.mix(torch.ones(10)).shape == (4,)
    assert [part.shape for part in book.top_k(v, 5)] == [(2, 3, 5)] * 2
    assert book.log_sum_exp(v).shape == (2, 3)
    assert book.encode(torch.tensor([], dtype=torch.long), torch.tensor([0, 0])).eq(0).all()


@pytest.mark.parametrize("kind", BOOKS)
def test_no_rows_at_all_are_answered(kind):
    book, none = kind(10, 4), torch.zeros(0, 4)
    assert book.scores(none).shape == (0, 10)
    assert book.mix(torch.zeros(0, 10)).shape == (0, 4)
    assert book.top_k(none, 2)[1].shape == (0, 2)
    assert book.log_sum_exp(none).shape == (0,)
    assert [len(part) for part in book.above(none, 0.5)] == [0, 0]


def test_an_orbit_is_stored_in_as_many_floats_as_labels():
    book = hb.OrbitCodebook(670_091, 3000)
    assert book._readers.nbytes <= 0.001 * 670_091 * 3000 * 4
    assert not book.state_dict()
