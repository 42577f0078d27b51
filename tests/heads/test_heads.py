"""One contract for all heads, and what each adds to it."""

import itertools
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import holobind as hb
from holobind.codebooks.base import merged
from holobind.heads import frequency_prior

N, D, H = 37, 16, 5
HOLOGRAPHIC = [
    {"codebook": book, "loss": loss}
    for book, loss in itertools.product(["orbit", "random", "naive"], ["softmax", "query", "query-abs", "regression"])
]
LEARNED = [
    {"codebook": book, "loss": "query", "trainable": learn}
    for book in ("orbit", "random")
    for learn in (("present",), ("present", "missing"), ("labels",), ("present", "missing", "labels"))
]
LINEAR = [{"loss": "bce"}, {"loss": "softmax"}]
EXPECTING = [
    {"codebook": book, "loss": "softmax", "prior": True, "trainable": learn}
    for book, learn in (("orbit", ()), ("random", ()), ("orbit", ("labels",)), ("random", ("labels",)))
]


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make(options, inputs=H):
    if "prior" in options:
        options = options | {"prior": normal(N, seed=3)}
    if "codebook" in options:
        return hb.HolographicHead(inputs, N, D, **options)
    return hb.LinearHead(inputs, N, **options)


def sets(*rows):
    labels = torch.tensor([label for row in rows for label in row], dtype=torch.long)
    return labels, torch.tensor([0, *map(len, rows)]).cumsum(0)[:-1]


every_head = pytest.mark.parametrize("options", [*HOLOGRAPHIC, *LEARNED, *EXPECTING, *LINEAR], ids=str)


@every_head
def test_the_contract(options):
    head, h = make(options), normal(3, H)
    labels, offsets = sets([3, 7], [36], [0, 1, 2])
    loss = head.loss(h, labels, offsets)
    loss.backward()
    assert loss.shape == () and loss.isfinite()
    assert all(parameter.grad is not None for parameter in head.parameters() if parameter.requires_grad)
    scores = head.scores(h)
    assert scores.shape == (3, N)
    best, ids = head.top_k(h, 4)
    wanted = scores.detach().sort(dim=1, descending=True, stable=True)
    assert_close(best, wanted.values[:, :4], atol=1e-5, rtol=1e-5)
    assert torch.equal(ids, wanted.indices[:, :4])
    found, starts = head.present(h, 0.05)
    probability = {"bce": torch.sigmoid, "softmax": lambda x: x.softmax(1)} if "codebook" not in options else {}
    passed = probability.get(options["loss"], lambda x: x)(scores) > 0.05
    assert [part.tolist() for part in found.tensor_split(starts[1:])] == [
        row.nonzero()[:, 0].tolist() for row in passed
    ]


@every_head
@pytest.mark.parametrize("inputs", [H, None])
def test_shares_of_the_labels_merge_to_all(options, inputs):
    head = make(options, inputs)
    h = normal(3, H if inputs else (D if "codebook" in options else N))
    parts = [head.top_k(h, 6, labels=head.label_range(rank, 5)) for rank in range(5)]
    found, ids = merged(parts, 6)
    best, wanted = head.top_k(h, 6)
    assert torch.equal(ids, wanted)
    assert_close(found, best)


@every_head
def test_a_row_without_labels_adds_nothing(options):
    """The sum over rows is the same without it. Other rows' gradients are, too."""
    head, h = make(options), normal(4, H)
    labels, offsets = sets([3, 7], [], [36], [])
    (head.loss(h, labels, offsets) * 4).backward()
    slope = {name: p.grad.clone() for name, p in head.named_parameters() if p.grad is not None}
    head.zero_grad()
    (head.loss(h[[0, 2]], *sets([3, 7], [36])) * 2).backward()
    for name, parameter in head.named_parameters():
        if parameter.grad is not None:
            assert_close(slope[name], parameter.grad, atol=1e-5, rtol=1e-4)
    nothing = head.loss(h, torch.tensor([], dtype=torch.long), torch.zeros(4, dtype=torch.long))
    assert_close(nothing, torch.zeros(()))
    assert head.loss(h[:0], *sets()) == 0


@every_head
def test_it_learns(options):
    """Ten points, ten sets: after some steps the top label is a right one, except where the paper says it fails."""
    head, h = make(options, 20), normal(10, 20)
    truth = [[i, i + 10] for i in range(10)]
    optimiser = torch.optim.Adam(head.parameters(), 0.05)
    first = head.loss(h, *sets(*truth)).item()
    for _ in range(80):
        optimiser.zero_grad()
        loss = head.loss(h, *sets(*truth))
        loss.backward()
        optimiser.step()
    assert loss < first
    if options["loss"] in ("softmax", "query", "bce") and options.get("codebook") != "naive":
        right = [row[0] in wanted for row, wanted in zip(head.top_k(h, 1)[1].tolist(), truth, strict=True)]
        assert sum(right) >= 7


@every_head
def test_bfloat16_autocast(options):
    head, h = make(options), normal(3, H)
    labels, offsets = sets([3, 7], [36], [0, 1, 2])
    exact = head.loss(h, labels, offsets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = head.loss(h, labels, offsets)
        head.top_k(h, 3)
        head.scores(h)
    loss.backward()
    assert loss.dtype == torch.float32
    assert_close(loss, exact, atol=0.05, rtol=0.05)
    assert all(p.grad.isfinite().all() for p in head.parameters() if p.grad is not None)


@every_head
def test_a_label_out_of_range_is_named(options):
    head, h = make(options), normal(2, H)
    with pytest.raises(hb.LabelError, match=r"label 37 is outside this space of 37 labels \(0 to 36\)"):
        head.loss(h, *sets([3, 37], [1]))
    with pytest.raises(hb.LabelError, match="label -2 is outside"):
        head.loss(h, *sets([3, -2], [1]))
    with pytest.raises(hb.ShapeError, match="one entry for each of the 2 rows"):
        head.loss(h, *sets([3], [4], [5]))
    with pytest.raises(hb.ShapeError, match="must start at 0"):
        head.loss(h, torch.tensor([1, 2]), torch.tensor([1, 2]))
    with pytest.raises(hb.ShapeError, match="must start at 0"):
        head.loss(h, torch.tensor([1, 2]), torch.tensor([0, 3]))
    with pytest.raises(hb.DTypeError, match="int64 or int32"):
        head.loss(h, torch.tensor([1.0, 2.0]), torch.tensor([0, 1]))


@every_head
def test_the_seed_alone_decides(options):
    torch.manual_seed(1)
    one = make(options)
    torch.manual_seed(2)
    other, third = make(options), make({**options, "seed": 1})
    h = normal(2, H)
    assert torch.equal(one.scores(h), other.scores(h))
    assert not torch.equal(one.scores(h), third.scores(h))


@every_head
def test_a_state_dict_restores_it(options):
    """Fixed vectors are not in it: the seed is enough."""
    one, other = make(options), make(options)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.add_(0.1 * normal(*parameter.shape, seed=3))
    other.load_state_dict(one.state_dict())
    h = normal(2, H)
    assert torch.equal(one.scores(h), other.scores(h))


@given(st.integers(1, 50), st.integers(2, 20), st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 50))
def test_the_fused_query_loss_is_the_papers(n, d, counts, seed):
    """The compiled kernel of the head against the function, which its own tests hold to the equation."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(n, generator=generator)[:count].tolist() for count in counts]
    labels, offsets = sets(*rows)
    head = hb.HolographicHead(H, n, d, loss="query", seed=seed)
    slow, h = hb.HolographicHead(H, n, d, loss="query", seed=seed).double(), normal(len(rows), H, seed=seed)
    assert slow.weight.dtype == torch.float64
    h, exact = h.requires_grad_(), h.double().detach().requires_grad_()
    fast = head.loss(h, labels, offsets)
    p, m = (key.double() for key in hb.present_and_missing(d, seed))
    wanted = hb.query_loss(slow(exact), labels, offsets, slow.codebook, p, m)
    for factor in (1, 3):  # the first is a short cut
        found = torch.autograd.grad(factor * fast, (h, head.weight, head.bias), retain_graph=True)
        right = torch.autograd.grad(factor * wanted, (exact, slow.weight, slow.bias), retain_graph=True)
        for mine, other in zip(found, right, strict=True):
            assert_close(mine.double(), other, atol=1e-3, rtol=1e-3)
    assert_close(fast.double(), wanted, atol=1e-4, rtol=1e-4)
    assert_close(slow.loss(exact, labels, offsets), wanted)
    assert_close(head.loss(h, labels.int(), offsets.int()), fast)


@pytest.mark.parametrize("bias", [True, False])
def test_the_fused_query_loss_has_one_derivative_and_refuses_a_second(bias):
    head, h = hb.HolographicHead(H, N, D, loss="query", bias=bias), normal(2, H).requires_grad_()
    loss, inputs = head.loss(h, *sets([1, 2], [3])) ** 2, (h, *head.parameters())
    plain = torch.autograd.grad(loss, inputs, retain_graph=True)
    with_graph = torch.autograd.grad(loss, inputs, create_graph=True)
    assert_close(with_graph, plain)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        with_graph[0].sum().backward()


@pytest.mark.parametrize("scale", [0.0, 1e-42, 1e-30, 1e-10, 1e10, 1e30, 1e38])
@pytest.mark.parametrize("count", [1, 75])
def test_the_fused_query_loss_is_finite_for_any_output(scale, count):
    head = hb.HolographicHead(None, 500, 64, loss="query")
    rows = [list(range(count))] * 3
    s = (torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).clamp(-1, 1) * scale).requires_grad_()
    loss = head.loss(s, *sets(*rows))
    loss.backward()
    assert loss.isfinite()
    assert s.grad.isfinite().all()
    if scale < 1e-19:
        assert loss == count
        assert s.grad.eq(0).all()


@pytest.mark.parametrize("d", [24, 25])
def test_the_output_is_confined_to_what_the_query_loss_can_ask_for(d):
    """2 L directions of d, whose first L elements are the scores: those of the paper, of the output as it is."""
    head, h = hb.HolographicHead(H, 5, d, loss="query", seed=3), normal(6, H)
    assert head.weight.shape == (10, H) and head.bias.shape == (10,)
    p, m = hb.present_and_missing(d, 3)
    vectors = head.codebook.vectors(torch.arange(5))
    span = torch.cat([hb.bind(vectors, p), hb.bind(vectors, m)])
    s = head(h)
    assert s.shape == (6, d)
    rest = s.T - span.T @ torch.linalg.lstsq(span.T, s.T).solution
    assert rest.norm() < 1e-4 * s.norm()
    assert_close(head.scores(h), s @ hb.bind(vectors, p).T, atol=1e-5, rtol=1e-5)
    assert_close(s.norm(dim=1), torch.nn.functional.linear(h, head.weight, head.bias).norm(dim=1))
    assert_close(head.top_k(h, 3)[0], head.scores(h).topk(3).values)
    for other in ({"codebook": "random"}, {"loss": "softmax"}, {"trainable": ("present",)}, {"dim": 41}, {"dim": 10}):
        asked = {"dim": d, "loss": "query", **other}
        assert hb.HolographicHead(H, 5, **asked).weight.shape == (asked["dim"], H)


@pytest.mark.parametrize(("few", "n"), [(5, 5), (5, 8), (5, 13), (5, 30), (2, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_confined_head_grows_and_scores_the_old_labels_as_before(few, n, dtype):
    head = hb.HolographicHead(H, few, 24, loss="query", bias=n != 8).to(dtype)
    head.weight.requires_grad_(n != 13)
    h, grown = normal(3, H).to(dtype), head.grown_to(n)
    assert grown.weight.shape == hb.HolographicHead(H, n, 24, loss="query").weight.shape
    assert grown.weight.dtype == dtype and grown.weight.requires_grad == (n != 13)
    assert_close(grown.scores(h)[:, :few], head.scores(h), atol=1e-5, rtol=1e-5)
    if few == 5:  # of the other, what no label could ask for is gone
        assert_close(grown(h), head(h), atol=1e-5, rtol=1e-5)
    grown.loss(h.requires_grad_(), *sets([n - 1], [1], [0])).backward()
    assert h.grad.abs().sum() > 0 and head.weight.grad is None


def test_a_head_on_unit_vectors_stores_none_and_asks_as_an_orbit_does():
    head, h = hb.HolographicHead(H, 9, 12, "one_hot", "query"), normal(3, H)
    assert set(head.state_dict()) == {"weight", "bias"}
    p, m = hb.present_and_missing(12)
    assert_close(head.scores(h), hb.unbind(head(h), p)[:, :9], atol=1e-5, rtol=1e-5)
    asked = sets([1, 8], [0], [])
    assert_close(head.loss(h, *asked), hb.query_loss(head(h), *asked, head.codebook, p, m), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("book", ["orbit", "random"])
def test_learned_vectors_move_and_stay_unitary_after_every_step(book):
    head = hb.HolographicHead(H, N, D, book, "query", trainable=("present", "missing", "labels"))
    optimiser = torch.optim.SGD(head.parameters(), 1.0)
    labels, offsets = sets([3, 7], [36], [0, 1, 2])
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


def test_what_is_learned_can_be_left_to_its_start():
    """A head that learns its vectors starts from those of one that does not."""
    fixed, h = hb.HolographicHead(H, N, D, loss="query"), normal(2, H)
    for learn in (("present",), ("missing",), ("labels",), ("present", "missing", "labels")):
        learned = hb.HolographicHead(H, N, D, loss="query", trainable=learn)
        assert_close(learned.scores(h), fixed.scores(h), atol=1e-5, rtol=1e-5)
        assert_close(learned.loss(h, *sets([1], [2, 3])), fixed.loss(h, *sets([1], [2, 3])), atol=1e-5, rtol=1e-5)


def test_scores_of_the_query_loss_are_the_papers_dot_product():
    head, h = hb.HolographicHead(H, N, D, loss="query"), normal(2, H)
    p, _ = hb.present_and_missing(D)
    vectors = head.codebook.vectors(torch.arange(N))
    assert_close(head.scores(h), hb.unbind(head(h), p) @ vectors.T, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [*HOLOGRAPHIC[:8], *LEARNED[:3], *EXPECTING[:3]], ids=str)
def test_a_grown_head_scores_the_old_labels_as_before(options):
    head, h = make(options), normal(3, H)
    grown = head.grown_to(N + 20)
    assert grown.n_labels == N + 20
    assert_close(grown.scores(h)[:, :N], head.scores(h), atol=1e-5, rtol=1e-5)
    grown.loss(h, *sets([N + 19], [3], [N])).backward()
    assert head.weight.grad is None


def test_the_temperature_is_learned():
    head = hb.HolographicHead(H, N, D)
    assert head.temperature.item() == pytest.approx(4)
    head.loss(normal(2, H), *sets([1], [2])).backward()
    assert head.log_temperature.grad != 0


def test_scores_with_a_prior_are_those_of_the_softmax_that_is_trained():
    head, h = make(EXPECTING[0] | {"crosstalk": 0.0}), normal(2, H)
    labels = torch.tensor([3, 36])
    exact = torch.nn.functional.cross_entropy(head.scores(h), labels)
    assert_close(head.loss(h, labels, torch.arange(2)), exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("crosstalk", [None, 0.0, 2.0])
def test_a_softmax_head_adds_the_crosstalk_to_expect(crosstalk):
    said = {} if crosstalk is None else {"crosstalk": crosstalk}
    head, h, question = hb.HolographicHead(H, N, D, **said), normal(2, H), sets([3], [36])
    plain = hb.softmax_loss(head(h), *question, head.codebook, head.temperature)
    added = (head.temperature * head(h)).square().mean() / 2
    assert_close(head.loss(h, *question), plain + (1 if crosstalk is None else crosstalk) * added)


@pytest.mark.parametrize("crosstalk", [-1.0, float("nan"), float("inf")])
def test_crosstalk_is_a_number_from_0(crosstalk):
    with pytest.raises(hb.OptionError, match=r"HolographicHead: crosstalk must be a number from 0; got"):
        hb.HolographicHead(H, N, D, crosstalk=crosstalk)


def test_a_grown_head_expects_new_labels_as_little_as_the_rarest():
    grown = make(EXPECTING[0]).grown_to(N + 2)
    assert torch.equal(grown.prior[N:], grown.prior[:N].min().expand(2))


def test_the_prior_of_frequencies():
    prior = frequency_prior(torch.tensor([0, 3, 100, 1]), 0.5)
    assert_close(prior.exp(), torch.tensor([0.5, 3.5, 100.5, 1.5]).div(100.5).sqrt())


def test_a_prior_is_of_the_softmax_and_has_a_number_for_each_label():
    for options in ({"loss": "query", "prior": torch.zeros(N)}, {"prior": torch.zeros(N - 1)}):
        with pytest.raises(hb.OptionError, match=r"a number for each of 37 labels; got one of shape \(3[67],\) for"):
            hb.HolographicHead(H, N, D, **options)


def test_linear_bce_is_torchs_own():
    head, h = hb.LinearHead(H, N), normal(3, H)
    wanted = torch.zeros(3, N)
    wanted[0, [3, 7]] = wanted[1, 36] = wanted[2, [0, 1, 2]] = 1
    exact = torch.nn.functional.binary_cross_entropy_with_logits(head(h), wanted)
    assert_close(head.loss(h, *sets([3, 7], [36], [0, 1, 2])), exact)


def test_linear_softmax_is_torchs_own():
    head, h = hb.LinearHead(H, N, "softmax"), normal(2, H)
    wanted = torch.zeros(2, N)
    wanted[0, [3, 7]] = 0.5
    wanted[1, 36] = 1
    exact = torch.nn.functional.cross_entropy(head(h), wanted)
    assert_close(head.loss(h, *sets([3, 7], [36])), exact)


def test_a_codebook_of_ones_own():
    book = hb.RandomCodebook(N, D, seed=9)
    head, h = hb.HolographicHead(H, N, D, book), normal(2, H)
    assert_close(head.scores(h), head(h) @ book.vectors(torch.arange(N)).T, atol=1e-5, rtol=1e-5)
    with pytest.raises(hb.ShapeError, match="the codebook has 37 labels of dim 16, but the head was asked for 38"):
        hb.HolographicHead(H, N + 1, D, book)


def test_what_is_refused():
    with pytest.raises(hb.OptionError, match="loss must be one of 'softmax', 'query'"):
        hb.HolographicHead(H, N, D, loss="hinge")
    with pytest.raises(hb.OptionError, match="codebook must be one of 'orbit', 'random', 'unit', 'naive'"):
        hb.HolographicHead(H, N, D, "dense")
    with pytest.raises(hb.OptionError, match="learn must be one of"):
        hb.HolographicHead(H, N, D, trainable=("labels", "all"))
    with pytest.raises(hb.OptionError, match="softmax loss has no present and missing vectors"):
        hb.HolographicHead(H, N, D, trainable=("present",))
    with pytest.raises(hb.OptionError, match="loss must be one of 'bce', 'softmax'"):
        hb.LinearHead(H, N, "query")
    with pytest.raises(hb.OptionError, match="k must be from 1 to the number of labels, 37; got 0"):
        hb.LinearHead(H, N).top_k(normal(1, H), 0)


def test_importing_the_package_imports_neither_torch_nor_numba():
    code = "import sys, holobind; sys.exit(bool({'torch', 'numba'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
