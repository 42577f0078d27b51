"""Probabilities, predictions, samples, chosen labels, and search with exclusions."""

import pytest
import torch
from helpers.codebooks import full_sort, normal
from helpers.heads import HOLOGRAPHIC, LINEAR, TRAINABLE, WITH_PRIOR, D, H, N, every_head, make_head
from torch.testing import assert_close

import holobind as hb

SOFTMAX = {
    "holographic": lambda: hb.HolographicHead(H, N, D),
    "with a prior": lambda: hb.HolographicHead(H, N, D, prior=normal(N)),
    "linear": lambda: hb.LinearHead(H, N, "softmax"),
}
softmax_heads = pytest.mark.parametrize("make", SOFTMAX.values(), ids=SOFTMAX)


@every_head
def test_chosen_labels_have_the_scores_of_all_labels(options):
    head, h = make_head(options), normal(2, 3, H)
    scores = head.scores(h)
    for ids in (torch.tensor([3, 36, 3]), torch.randint(N, (2, 3, 4), generator=torch.Generator().manual_seed(0))):
        wanted = scores.gather(-1, ids.expand(2, 3, -1))
        assert_close(head.scores_of(h, ids), wanted, atol=1e-5, rtol=1e-5)
    with pytest.raises(hb.ShapeError, match="one row of ids for each row"):
        head.scores_of(h, torch.zeros(3, 2, dtype=torch.long))
    with pytest.raises(hb.LabelError, match="label 37 is outside"):
        head.scores_of(h, torch.tensor([37]))


ABSOLUTE = {"codebook": "orbit", "loss": "query-abs"}  # ranks by |score|
SOME = pytest.mark.parametrize(
    "options", [HOLOGRAPHIC[0], HOLOGRAPHIC[5], ABSOLUTE, TRAINABLE[2], *WITH_PRIOR[:2], *LINEAR], ids=str
)


@SOME
@pytest.mark.parametrize("form", ["ids", "ids of each row", "mask", "mask of each row"])
def test_excluded_labels_are_never_found(options, form):
    head, h, k = make_head(options), normal(4, H), 6
    scores = head.scores(h).detach()
    mask = torch.rand(4, N, generator=torch.Generator().manual_seed(1)) < 0.5
    if form in ("ids", "mask"):
        mask = mask[:1].expand(4, N)
    ids = [row.nonzero()[:, 0].tolist() for row in mask]
    exclude = {
        "ids": torch.tensor(ids[0]),
        "ids of each row": torch.tensor([row + [-1] * (N - len(row)) for row in ids]),
        "mask": mask[0],
        "mask of each row": mask,
    }[form]
    best, found = head.top_k(h, k, exclude=exclude)
    wanted = full_sort(scores.masked_fill(mask, -torch.inf), k)
    assert torch.equal(found, wanted)
    assert_close(best, scores.gather(1, wanted), atol=1e-5, rtol=1e-5)
    again = head.top_k(h.view(2, 2, H), k, exclude=exclude if exclude.ndim == 1 else exclude.unflatten(0, (2, 2)))
    assert torch.equal(again[1].flatten(0, 1), found)


@softmax_heads
def test_places_without_a_label_are_marked(make):
    head, h = make(), normal(2, H)
    kept = torch.tensor([4, 30])
    mask = torch.ones(N, dtype=torch.bool).index_fill_(0, kept, False)
    for exclude in (mask, mask.expand(2, N), mask.nonzero()[:, 0]):
        best, found = head.top_k(h, 3, exclude=exclude)
        assert (found[:, 2] == -1).all() and (best[:, 2] == -torch.inf).all()
        assert torch.equal(found[:, :2].sort(1).values, kept.expand(2, 2))
    none = head.top_k(h, 3, exclude=torch.empty(0, dtype=torch.long))
    assert torch.equal(none[1], head.top_k(h, 3)[1])


def test_wrong_exclusions_are_refused():
    head, h = hb.HolographicHead(H, N, D), normal(2, H)
    for exclude, error, message in (
        (torch.tensor([1.0]), hb.DTypeError, r"label ids \(int64\) or a bool mask, got torch.float32"),
        (torch.zeros(3, 1).long(), hb.ShapeError, r"shape \(m,\) or \(2, m\), or be a mask; got \(3, 1\)"),
        (torch.zeros(3).bool(), hb.ShapeError, r"a mask must have shape \(37,\) or \(2, 37\); got \(3,\)"),
        (torch.tensor([37]), hb.LabelError, "label 37 is outside"),
    ):
        with pytest.raises(error, match=message):
            head.top_k(h, 2, exclude=exclude)
    with pytest.raises(hb.OptionError, match="either a range of labels or labels to exclude"):
        head.top_k(h, 2, exclude=torch.tensor([1]), labels=(0, 16))


@softmax_heads
def test_log_probabilities_are_those_of_the_softmax(make):
    head, h, y = make(), normal(2, 3, H), torch.tensor([[1, 36, 0], [7, 7, 9]])
    exact = head.logits(h).log_softmax(-1)
    assert_close(head.log_prob(h), exact)
    assert_close(head.log_prob(h, y), exact.gather(-1, y[..., None])[..., 0], atol=1e-5, rtol=1e-5)
    assert torch.equal(head.predict(h), exact.argmax(-1))
    with pytest.raises(hb.ShapeError, match=r"one label for each row, of shape \(2, 3\); got \(2,\)"):
        head.log_prob(h, y[:, 0])


@softmax_heads
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 0.7), (1.0, 1e-6)])
def test_samples_have_the_softmax_probabilities(make, temperature, top_p):
    """Of 20,000 samples, frequencies are within five standard deviations of the nucleus's probabilities."""
    torch.manual_seed(0)  # the weights of the head
    head, n = make(), 20_000
    h = normal(1, H)
    probability = (head.logits(h)[0] / temperature).softmax(0).detach()
    ordered, labels = probability.sort(descending=True)
    kept = int((ordered.cumsum(0) < top_p).sum()) + 1
    wanted = torch.zeros(N).index_put_((labels[:kept],), ordered[:kept])
    wanted /= wanted.sum()
    drawn = head.sample(h.expand(4, n // 4, H), temperature, top_p, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (4, n // 4)
    frequency = drawn.flatten().bincount(minlength=N) / n
    assert ((frequency - wanted).abs() <= 5 * (wanted * (1 - wanted) / n).sqrt() + 1 / n).all()


def test_temperature_0_takes_the_likeliest_and_the_global_seed_decides():
    head, h = hb.HolographicHead(H, N, D), normal(50, H)
    assert torch.equal(head.sample(h, 0), head.predict(h))
    torch.manual_seed(3)
    first = head.sample(h)
    assert not torch.equal(head.sample(h), first)
    torch.manual_seed(3)
    assert torch.equal(head.sample(h), first)
    for options in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"temperature": float("nan")}):
        with pytest.raises(hb.OptionError, match="temperature must be at least 0 and finite, top_p above 0"):
            head.sample(h, **options)


def test_losses_without_probabilities_say_so():
    head, h = hb.HolographicHead(H, N, D, loss="query"), normal(2, H)
    for ask in (head.logits, head.log_prob, head.sample):
        with pytest.raises(
            hb.OptionError, match="the softmax loss has logits and probabilities; this head has 'query'"
        ):
            ask(h)
    assert torch.equal(head.predict(h), head.scores(h).argmax(1))
