"""Holographic heads."""

import pytest
import torch
from helpers.codebooks import normal, ragged
from helpers.heads import HOLOGRAPHIC, TRAINABLE, WITH_PRIOR, D, H, N, make_head
from torch.testing import assert_close

import holobind as hb


def test_a_head_on_one_hot_vectors_stores_none_and_has_the_papers_loss():
    head, h = hb.HolographicHead(H, 9, 12, "one_hot", "query"), normal(3, H)
    assert set(head.state_dict()) == {"weight", "bias", "fingerprint", "codebook.fingerprint"}
    p, m = hb.present_and_missing(12)
    assert_close(head.scores(h), hb.unbind(head(h), p)[:, :9], atol=1e-5, rtol=1e-5)
    sets = ragged([1, 8], [0], [])
    assert_close(head.loss(h, *sets), hb.query_loss(head(h), *sets, head.codebook, p, m), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("codebook", ["orbit", "random"])
def test_trainable_vectors_move_and_stay_unitary_after_every_step(codebook):
    head = hb.HolographicHead(H, N, D, codebook, "query", trainable=("present", "missing", "labels"))
    optimiser = torch.optim.SGD(head.parameters(), 1.0)
    labels, offsets = ragged([3, 7], [36], [0, 1, 2])
    before = [*head._keys(), head.codebook.vectors(torch.arange(N))]
    for _ in range(3):
        optimiser.zero_grad()
        head.loss(normal(3, H), labels, offsets).backward()
        optimiser.step()
        for vectors in (*head._keys(), head.codebook.vectors(torch.arange(N))):
            modulus = torch.fft.fft(vectors.detach()).abs()
            assert_close(modulus, torch.ones_like(modulus), atol=1e-5, rtol=0)
    after = [*head._keys(), head.codebook.vectors(torch.arange(N))]
    assert all((one - other).abs().max() > 1e-3 for one, other in zip(before, after, strict=True))


def test_with_the_naive_codebook_no_trained_vector_is_projected():
    head = hb.HolographicHead(H, N, D, "naive", "query", trainable=("present", "missing", "labels"))
    keys, vectors = head._keys(), head.codebook.vectors(torch.arange(N))
    assert keys[0] is head.p and keys[1] is head.m
    for tensor in (*keys, vectors):
        assert (torch.fft.fft(tensor.detach()).abs() - 1).abs().max() > 0.1


def test_the_listing_ranks_labels_by_the_absolute_score():
    """Its loss is the same for s and -s, and so are its scores and its top labels."""
    for codebook in ("orbit", "random", "naive"):
        head, s = hb.HolographicHead(None, N, D, codebook, "query-abs"), normal(3, D)
        sets = ragged([3, 7], [36], [0, 1, 2])
        assert_close(head.loss(s, *sets), head.loss(-s, *sets))
        p = head.p if codebook == "naive" else hb.present_and_missing(D)[0]
        exact = (hb.unbind(s, p) @ head.codebook.vectors(torch.arange(N)).T).abs()
        assert_close(head.scores(s), exact, atol=1e-5, rtol=1e-5)
        assert torch.equal(head.top_k(-s, 5)[1], exact.topk(5).indices)


def test_trainable_vectors_start_from_the_fixed_ones():
    """A head that learns its vectors starts from those of one that does not."""
    fixed, h = hb.HolographicHead(H, N, D, loss="query", seed=0), normal(2, H)
    for trainable in (("present",), ("missing",), ("labels",), ("present", "missing", "labels")):
        learned = hb.HolographicHead(H, N, D, loss="query", seed=0, trainable=trainable)
        assert_close(learned.scores(h), fixed.scores(h), atol=1e-5, rtol=1e-5)
        assert_close(learned.loss(h, *ragged([1], [2, 3])), fixed.loss(h, *ragged([1], [2, 3])), atol=1e-5, rtol=1e-5)


def test_scores_of_the_query_loss_are_the_papers_dot_product():
    head, h = hb.HolographicHead(H, N, D, loss="query"), normal(2, H)
    p, _ = hb.present_and_missing(D)
    vectors = head.codebook.vectors(torch.arange(N))
    assert_close(head.scores(h), hb.unbind(head(h), p) @ vectors.T, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [*HOLOGRAPHIC[:8], *TRAINABLE[:3], *WITH_PRIOR[:3]], ids=str)
def test_an_expanded_head_scores_the_old_labels_as_before(options):
    head, h = make_head(options), normal(3, H)
    expanded = head.expand_to(N + 20)
    assert expanded.n_labels == N + 20
    assert_close(expanded.scores(h)[:, :N], head.scores(h), atol=1e-5, rtol=1e-5)
    expanded.loss(h, *ragged([N + 19], [3], [N])).backward()
    assert head.weight.grad is None


def test_the_temperature_is_learned():
    head = hb.HolographicHead(H, N, D)
    assert head.temperature.item() == pytest.approx(4)
    head.loss(normal(2, H), *ragged([1], [2])).backward()
    assert head.log_temperature.grad != 0


def test_scores_with_a_prior_are_the_logits_of_the_softmax_loss():
    head, h = make_head(WITH_PRIOR[0] | {"crosstalk": 0.0}), normal(2, H)
    labels = torch.tensor([3, 36])
    exact = torch.nn.functional.cross_entropy(head.scores(h), labels)
    assert_close(head.loss(h, labels, torch.arange(2)), exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("crosstalk", [None, 0.0, 2.0])
def test_the_softmax_loss_of_a_head_includes_the_crosstalk(crosstalk):
    options = {} if crosstalk is None else {"crosstalk": crosstalk}
    head, h, sets = hb.HolographicHead(H, N, D, **options), normal(2, H), ragged([3], [36])
    plain = hb.softmax_loss(head(h), *sets, head.codebook, head.temperature)
    added = (head.temperature * head(h)).square().mean() / 2
    assert_close(head.loss(h, *sets), plain + (1 if crosstalk is None else crosstalk) * added)


@pytest.mark.parametrize("crosstalk", [-1.0, float("nan"), float("inf")])
def test_crosstalk_that_is_negative_or_not_finite_is_refused(crosstalk):
    with pytest.raises(hb.OptionError, match=r"crosstalk must be a finite number of at least 0; got"):
        hb.HolographicHead(H, N, D, crosstalk=crosstalk)


def test_new_labels_get_the_prior_of_the_rarest():
    expanded = make_head(WITH_PRIOR[0]).expand_to(N + 2)
    assert torch.equal(expanded.prior[N:], expanded.prior[:N].min().expand(2))


def test_a_prior_is_refused_for_other_losses_and_other_shapes():
    for options in ({"loss": "query", "prior": torch.zeros(N)}, {"prior": torch.zeros(N - 1)}):
        with pytest.raises(hb.OptionError, match=r"one element for each of 37 labels; got shape \(3[67],\) for loss"):
            hb.HolographicHead(H, N, D, **options)


def test_a_codebook_of_ones_own():
    codebook = hb.RandomCodebook(N, D, seed=9)
    head, h = hb.HolographicHead(H, N, D, codebook), normal(2, H)
    assert_close(head.scores(h), head(h) @ codebook.vectors(torch.arange(N)).T, atol=1e-5, rtol=1e-5)
    with pytest.raises(hb.ShapeError, match="the codebook has 37 labels of dim 16, but the head wants 38"):
        hb.HolographicHead(H, N + 1, D, codebook)


def test_invalid_options_are_refused():
    with pytest.raises(hb.OptionError, match="loss must be one of 'softmax', 'squares', 'query'"):
        hb.HolographicHead(H, N, D, loss="hinge")
    with pytest.raises(hb.OptionError, match="codebook must be one of 'orbit', 'random', 'one_hot', 'naive'"):
        hb.HolographicHead(H, N, D, "dense")
    with pytest.raises(hb.OptionError, match="trainable must be one of"):
        hb.HolographicHead(H, N, D, trainable=("labels", "all"))
    with pytest.raises(hb.OptionError, match="softmax loss has no present and missing vectors to train"):
        hb.HolographicHead(H, N, D, trainable=("present",))
    with pytest.raises(hb.OptionError, match="loss must be one of 'bce', 'softmax'"):
        hb.LinearHead(H, N, "query")
    with pytest.raises(hb.OptionError, match="k must be from 1 to the number of labels, 37; got 0"):
        hb.LinearHead(H, N).top_k(normal(1, H), 0)


@pytest.mark.parametrize(
    ("n", "dim", "codebook", "expected"),
    [(20, 16, "orbit", True), (16, 16, "orbit", False), (20, 16, "random", False), (9, 16, "one_hot", False)],
)
def test_labels_are_ordered_where_an_orbit_has_several_bases(n, dim, codebook, expected):
    assert hb.HolographicHead(H, n, dim, codebook).orders_labels is expected


def test_the_temperature_of_the_softmax_loss_can_be_set():
    head = hb.HolographicHead(H, N, D)
    assert head.set_temperature(7.0)
    assert head.temperature.item() == pytest.approx(7.0)
    assert head.log_temperature.requires_grad
    assert not hb.HolographicHead(H, N, D, loss="query").set_temperature(7.0)


def test_the_prior_of_the_softmax_loss_can_be_set_from_counts():
    head, counts = hb.HolographicHead(H, N, D), torch.arange(N)
    assert not head.has_prior
    for _ in range(2):
        head.set_prior(counts)
        assert head.has_prior and torch.equal(head.prior, hb.frequency_prior(counts))
        assert "prior" in head.state_dict()
        counts = counts + 5
    query = hb.HolographicHead(H, N, D, loss="query")
    query.set_prior(counts)
    assert not query.has_prior
    with pytest.raises(hb.ShapeError, match=r"one count for each of 37 labels, got shape \(3,\)"):
        head.set_prior(counts[:3])


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("head", [hb.HolographicHead(H, N, D), hb.LinearHead(H, N, "bce")])
def test_counts_that_make_no_prior_are_refused_and_the_prior_stays(head, wrong):
    counts, before = torch.ones(N), {name: tensor.clone() for name, tensor in head.state_dict().items()}
    counts[5] = wrong
    with pytest.raises(hb.OptionError, match=f"finite numbers, 0 or larger; label 5 has {wrong}"):
        head.set_prior(counts, 100)
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())


@pytest.mark.parametrize("make", [lambda: hb.HolographicHead(H, N, D), lambda: hb.LinearHead(H, N, "bce")])
def test_a_prior_can_be_set_where_counts_have_no_values(make):
    with torch.device("meta"):
        make().set_prior(torch.ones(N), 100)


def test_a_head_is_described_in_one_line():
    assert hb.HolographicHead(None, 3984, 2048).describe() == (
        "holographic head of 3,984 labels in 2,048 dimensions (orbit codebook)"
    )
    own = hb.HolographicHead(None, N, D, hb.RandomCodebook(N, D))
    assert own.describe() == "holographic head of 37 labels in 16 dimensions (custom codebook)"
