"""The contract of all heads."""

import pytest
import torch
from helpers.codebooks import normal, ragged
from helpers.heads import D, H, N, every_head, make_head
from torch.testing import assert_close

import holobind as hb
from holobind.codebooks.ranking import merge_top_k


@every_head
def test_scores_top_k_and_present_agree_and_every_parameter_has_a_gradient(options):
    head, h = make_head(options), normal(3, H)
    labels, offsets = ragged([3, 7], [36], [0, 1, 2])
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
    found, starts = head.labels_above(h, 0.05)
    probability = {"bce": torch.sigmoid, "softmax": lambda x: x.softmax(1)} if "codebook" not in options else {}
    passed = probability.get(options["loss"], lambda x: x)(scores) > 0.05
    assert [row.tolist() for row in found.tensor_split(starts[1:])] == [row.nonzero()[:, 0].tolist() for row in passed]


@every_head
@pytest.mark.parametrize("inputs", [H, None])
def test_the_top_k_of_label_ranges_merge_to_that_of_all_labels(options, inputs):
    head = make_head(options, inputs)
    h = normal(3, H if inputs else (D if "codebook" in options else N))
    per_range = [head.top_k(h, 6, labels=head.label_range(rank, 5)) for rank in range(5)]
    found, ids = merge_top_k(per_range, 6)
    best, wanted = head.top_k(h, 6)
    assert torch.equal(ids, wanted)
    assert_close(found, best)


@every_head
def test_a_row_without_labels_adds_nothing(options):
    """The sum over rows and the gradients of the other rows are the same without it."""
    head, h = make_head(options), normal(4, H)
    labels, offsets = ragged([3, 7], [], [36], [])
    (head.loss(h, labels, offsets) * 4).backward()
    gradient = {name: p.grad.clone() for name, p in head.named_parameters() if p.grad is not None}
    head.zero_grad()
    (head.loss(h[[0, 2]], *ragged([3, 7], [36])) * 2).backward()
    for name, parameter in head.named_parameters():
        if parameter.grad is not None:
            assert_close(gradient[name], parameter.grad, atol=1e-5, rtol=1e-4)
    nothing = head.loss(h, torch.tensor([], dtype=torch.long), torch.zeros(4, dtype=torch.long))
    assert_close(nothing, torch.zeros(()))
    assert head.loss(h[:0], *ragged()) == 0


@every_head
def test_training_finds_the_present_labels(options):
    """After some steps on ten rows the top label is present, except by regression on all labels."""
    torch.manual_seed(1)  # of the head's first weights
    head, h = make_head(options, 20), normal(10, 20)
    truth = [[i, i + 10] for i in range(10)]
    optimiser = torch.optim.Adam(head.parameters(), 0.05)
    first = head.loss(h, *ragged(*truth)).item()
    for _ in range(80):
        optimiser.zero_grad()
        loss = head.loss(h, *ragged(*truth))
        loss.backward()
        optimiser.step()
    assert loss < first
    if options["loss"] != "regression":
        right = [row[0] in wanted for row, wanted in zip(head.top_k(h, 1)[1].tolist(), truth, strict=True)]
        assert sum(right) >= 6  # one of 10 by chance


@every_head
def test_bfloat16_autocast_gives_a_float32_loss(options):
    head, h = make_head(options), normal(3, H)
    labels, offsets = ragged([3, 7], [36], [0, 1, 2])
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
def test_invalid_label_sets_are_refused(options):
    head, h = make_head(options), normal(2, H)
    with pytest.raises(hb.LabelError, match=r"label 37 is outside this space of 37 labels \(0 to 36\)"):
        head.loss(h, *ragged([3, 37], [1]))
    with pytest.raises(hb.LabelError, match="label -2 is outside"):
        head.loss(h, *ragged([3, -2], [1]))
    with pytest.raises(hb.ShapeError, match="one entry for each of the 2 rows"):
        head.loss(h, *ragged([3], [4], [5]))
    with pytest.raises(hb.ShapeError, match="must start at 0"):
        head.loss(h, torch.tensor([1, 2]), torch.tensor([1, 2]))
    with pytest.raises(hb.ShapeError, match="must start at 0"):
        head.loss(h, torch.tensor([1, 2]), torch.tensor([0, 3]))
    with pytest.raises(hb.DTypeError, match="int64 or int32"):
        head.loss(h, torch.tensor([1.0, 2.0]), torch.tensor([0, 1]))


@every_head
def test_the_seed_alone_decides_the_scores(options):
    torch.manual_seed(1)
    one = make_head({**options, "seed": 0})
    torch.manual_seed(2)
    other, third = make_head({**options, "seed": 0}), make_head({**options, "seed": 1})
    h = normal(2, H)
    assert torch.equal(one.scores(h), other.scores(h))
    assert not torch.equal(one.scores(h), third.scores(h))


@every_head
def test_a_state_dict_restores_a_head(options):
    """It does not hold fixed vectors: the seed is enough."""
    one, other = make_head(options), make_head(options)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.add_(0.1 * normal(*parameter.shape, seed=3))
    other.load_state_dict(one.state_dict())
    h = normal(2, H)
    assert torch.equal(one.scores(h), other.scores(h))


@every_head
def test_the_output_has_output_dim_elements(options):
    head = make_head(options)
    assert head(normal(2, H)).shape == (2, head.output_dim)
    assert head.ridge_codebook().dim == head.output_dim and head.ridge_codebook().n_labels == head.n_labels


@every_head
def test_a_ridge_solution_keeps_its_scores(options):
    """The scores of x W + b by the vectors it was solved for; the bce loss has the logits 4 y - 2."""
    if options.get("codebook") == "naive" and options["loss"] != "softmax":
        pytest.skip("unbinding is exact for unitary vectors only")
    head, x = make_head(options, None), normal(3, H)
    weights, bias = normal(H, head.output_dim, seed=1), normal(head.output_dim, seed=2)
    expected = head.ridge_codebook().scores(x @ weights + bias)
    weights, bias = head.from_ridge(weights, bias)
    if head.has_prior:
        expected = expected * head.temperature + head.prior
    if options["loss"] == "bce":
        expected = 4 * expected - 2
    if options["loss"] == "query-abs":
        expected = expected.abs()
    assert_close(head.scores(x @ weights + bias), expected, atol=1e-4, rtol=1e-4)
