"""Every form of targets, against one form that is defined by hand."""

import numpy as np
import pytest
import torch
from helpers.codebooks import normal, ragged
from helpers.heads import D, H, N, every_head, make_head
from scipy import sparse
from torch.testing import assert_close

import holobind as hb

ROWS = [[3, 7], [36], [0, 1, 2], []]


def multi_hot(rows=ROWS):
    matrix = torch.zeros(len(rows), N, dtype=torch.bool)
    for row, labels in enumerate(rows):
        matrix[row, labels] = True
    return matrix


def padded(rows=ROWS, fill=-100):
    return torch.tensor([labels + [fill] * (3 - len(labels)) for labels in rows])


FORMS = {
    "a tuple": lambda: ragged(*ROWS),
    "padded": padded,
    "padded by -1": lambda: padded(fill=-1),
    "padded, int32": lambda: padded().int(),
    "bool": multi_hot,
    "floats of 0 and 1": lambda: multi_hot().float(),
    "COO": lambda: multi_hot().float().to_sparse(),
    "COO of bool": lambda: multi_hot().to_sparse(),
    "CSR": lambda: multi_hot().float().to_sparse_csr(),
    "scipy": lambda: sparse.csr_array(multi_hot().numpy().astype(np.int32)),
}


@every_head
def test_every_head_takes_other_forms_than_ragged_sets(options):
    head, h = make_head(options), normal(4, H)
    for form in ("padded", "bool", "CSR"):
        assert torch.equal(head.loss(h, FORMS[form]()), head.loss(h, *ragged(*ROWS)))


@pytest.mark.parametrize("form", FORMS)
def test_label_sets_may_have_any_form(form):
    head, h = hb.HolographicHead(H, N, D), normal(4, H)
    assert torch.equal(head.loss(h, FORMS[form]()), head.loss(h, *ragged(*ROWS)))


@every_head
def test_class_indices_are_sets_of_one_and_ignored_rows_do_not_count(options):
    head, h, y = make_head(options), normal(4, H), torch.tensor([3, 36, 0, 36])
    assert_close(head.loss(h, y), head.loss(h, y, torch.arange(4)), atol=1e-5, rtol=1e-5)
    y[1] = -100
    kept = torch.tensor([0, 2, 3])
    assert_close(head.loss(h, y), head.loss(h[kept], y[kept]), atol=1e-5, rtol=1e-5)
    assert_close(head.loss(h, y.where(y >= 0, 5), ignore_index=5), head.loss(h, y))
    assert head.loss(h, torch.full((4,), -100)) == 0


@every_head
def test_reductions_and_any_leading_shape(options):
    head, h, y = make_head(options), normal(6, H), torch.tensor([3, -100, 36, 0, 5, 6])
    each = head.loss(h, y, reduction="none")
    alone = [head.loss(h[r : r + 1], y[r : r + 1]) for r in range(6)]
    assert_close(each, torch.stack(alone), atol=1e-5, rtol=1e-5)
    assert_close(head.loss(h, y, reduction="sum"), each.sum(), atol=1e-4, rtol=1e-5)
    assert_close(head.loss(h, y), each.sum() / 5, atol=1e-5, rtol=1e-5)
    cube, wanted = h.view(2, 3, H), y.view(2, 3)
    assert_close(head.loss(cube, wanted), head.loss(h, y))
    assert_close(head.loss(cube, wanted, reduction="none"), each.view(2, 3))
    sets = padded([[3, 7], [36], [0, 1, 2], [], [5], [6, 7]])
    rows = head.loss(h, sets, reduction="none")
    assert_close(rows.mean(), head.loss(h, sets), atol=1e-5, rtol=1e-5)
    assert_close(head.loss(cube, sets.view(2, 3, 3), reduction="none"), rows.view(2, 3))
    assert rows[3] == 0
    assert_close(head.loss(h[0], y[0]), each[0])  # one row without a batch


SOFTMAX = {
    "holographic": lambda: hb.HolographicHead(H, N, D, crosstalk=0.0),
    "random, with a prior": lambda: hb.HolographicHead(H, N, D, "random", crosstalk=0.0, prior=normal(N)),
    "learned": lambda: hb.HolographicHead(H, N, D, crosstalk=0.0, trainable=("labels",)),
    "linear": lambda: hb.LinearHead(H, N, "softmax"),
}
softmax_heads = pytest.mark.parametrize("make", SOFTMAX.values(), ids=SOFTMAX)


@softmax_heads
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["classes", "probabilities"])
def test_the_softmax_loss_is_torchs_cross_entropy_of_the_logits(make, reduction, smoothing, weighted, form):
    head, h = make(), normal(5, H)
    target = torch.tensor([3, 36, -100, 0, 36])
    if form == "probabilities":
        target = normal(5, N, seed=4).softmax(1)
    options = {
        "reduction": reduction,
        "label_smoothing": smoothing,
        "weight": normal(N, seed=1).exp() if weighted else None,
    }
    loss = head.loss(h, target, **options)
    exact = torch.nn.functional.cross_entropy(head.logits(h), target, **options)
    assert_close(loss, exact, atol=1e-4, rtol=1e-4)
    found = torch.autograd.grad(loss.sum(), head.weight)[0]
    assert_close(found, torch.autograd.grad(exact.sum(), head.weight)[0], atol=1e-4, rtol=1e-4)


@softmax_heads
def test_label_sets_are_even_probabilities(make):
    head, h, options = make(), normal(4, H), {"label_smoothing": 0.1, "weight": normal(N, seed=1).exp()}
    share = multi_hot().float()
    share /= share.sum(1, keepdim=True).clamp(min=1)
    exact = torch.nn.functional.cross_entropy(head.logits(h[:3]), share[:3], reduction="none", **options)
    assert_close(head.loss(h, multi_hot(), reduction="none", **options)[:3], exact, atol=1e-4, rtol=1e-4)
    probabilities = share.to_sparse()
    assert_close(head.loss(h, probabilities, reduction="sum", **options), exact.sum(), atol=1e-4, rtol=1e-4)


def test_bce_takes_probabilities_and_weights():
    head, h, target = hb.LinearHead(H, N), normal(4, H), normal(4, N, seed=4).softmax(1)
    weight = normal(N, seed=1).exp()
    exact = torch.nn.functional.binary_cross_entropy_with_logits(head(h), target, weight)
    assert_close(head.loss(h, target, weight=weight), exact)


REFUSED = {
    "another shape": (
        torch.zeros(3, dtype=torch.long),
        {},
        hb.ShapeError,
        r"class indices \(int64, shape \(4,\)\).*got ",
    ),
    "floats of another shape": (
        torch.zeros(4, 3),
        {},
        hb.ShapeError,
        r"\(4, 37\)\) or .*got torch.float32 of shape \(4, 3\)",
    ),
    "a list": ([1, 2, 3, 4], {}, hb.DTypeError, "wants targets as a tensor"),
    "a label too large": (torch.tensor([1, 2, 3, 37]), {}, hb.LabelError, "label 37 is outside this space of 37"),
    "a negative label": (torch.tensor([1, 2, 3, -1]), {}, hb.LabelError, "label -1 is outside"),
    "a set with one too large": (padded([[1], [2], [99], []]), {}, hb.LabelError, "label 99 is outside"),
    "no probabilities": (torch.full((4, N), 0.5), {}, hb.OptionError, "sum to 1; those of row 0 sum to 18.5"),
    "negative": (multi_hot().float() * -1, {}, hb.OptionError, "at least 0 and sum to 1"),
    "NaN": (torch.full((4, N), torch.nan), {}, hb.OptionError, "those of row 0 sum to nan"),
    "both": (ragged([1], [2], [3], []), {"offsets": torch.arange(4)}, hb.DTypeError, "labels: wants a tensor of int64"),
    "sparse": (torch.zeros(3, N).to_sparse(), {}, hb.ShapeError, r"sparse targets of shape \(4, 37\), got \(3, 37\)"),
    "a reduction": (torch.zeros(4).long(), {"reduction": "max"}, hb.OptionError, "'mean', 'sum', 'none'; got 'max'"),
    "a smoothing": (torch.zeros(4).long(), {"label_smoothing": 2.0}, hb.OptionError, "from 0 to 1; got 2.0"),
    "weights": (torch.zeros(4).long(), {"weight": torch.ones(3)}, hb.OptionError, r"shape \(37,\), one for each label"),
}


@pytest.mark.parametrize(("target", "options", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_other_targets_are_refused_in_one_line(target, options, error, message):
    for head in (hb.HolographicHead(H, N, D), hb.LinearHead(H, N, "softmax")):
        with pytest.raises(error, match=message) as caught:
            head.loss(normal(4, H), target, **options)
        assert "\n" not in str(caught.value)


def test_whole_numbers_that_could_be_either_are_refused():
    head = hb.HolographicHead(H, 3, 4)
    with pytest.raises(hb.OptionError, match=r"could be label ids or multi-hot; for multi-hot take .bool\(\)"):
        head.loss(normal(2, H), torch.tensor([[0, 1, 0], [1, 1, 0]]))
    head.loss(normal(2, H), torch.tensor([[0, 1, 2], [1, -100, -100]]))


def test_what_belongs_to_the_softmax_loss_is_refused_by_others():
    for options in ({"label_smoothing": 0.1}, {"weight": torch.ones(N)}):
        with pytest.raises(hb.OptionError, match="belong to the softmax loss; this head has loss 'query'"):
            hb.HolographicHead(H, N, D, loss="query").loss(normal(2, H), torch.tensor([1, 2]), **options)
