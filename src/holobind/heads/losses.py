"""The losses of an output s, given the set of labels that are present.

Outputs are (rows, d), label sets are ragged `(labels, offsets)`, see `codebooks.ragged`; every loss is the mean over
the rows of the batch. A row without labels adds 0 to it and has no gradient.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from holobind import algebra
from holobind._checks import one_of
from holobind.codebooks import Codebook
from holobind.codebooks._philox import phases, reproducible_irfft
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ragged import checked_sets, set_sizes, sum_sets
from holobind.errors import OptionError, ShapeError
from holobind.heads.cross_entropy import log_sum_exp

Variant = Literal["cosine", "abs"]

DEFAULT_PRIOR_POWER = 0.5  # 1 would be the whole log frequency, which costs P@1 (experiments/LOG.md)
_FIRST_KEY_ID = 1 << 62  # p and m are drawn as labels are, with ids that no label has


def query_loss(
    s: Tensor,
    labels: Tensor,
    offsets: Tensor,
    codebook: Codebook,
    present: Tensor,
    missing: Tensor,
    *,
    variant: Variant = "cosine",
) -> Tensor:
    """The paper's loss: each present label is found by a query with p, and none of them by a query with m.

        J_p = sum_{c in Y} (1 - cos(p* (x) s, c))
        J_n = cos(m* (x) s, e),                          e = sum_{c in Y} c         loss = mean over rows J_p + J_n

    variant="abs" is the listing in the paper's appendix, which normalises the queries and not the label vectors:

        sum_{c in Y} (1 - |<u, c>| + |<w, c>|),          u, w = p* (x) s, m* (x) s, each divided by its length

    For unitary c these are the absolute cosines. The loss is the same for s and -s, so labels are to be ranked by the
    absolute score. `present_and_missing` draws p and m.

    The first form costs two dot products a row, whatever the number of labels. With p, m and all c unitary,
    unbinding is an isometry and the adjoint of binding, and |c| = 1, so

        cos(p* (x) s, c) = <p* (x) s, c> / |s| = <s, p (x) c> / |s|
        J_p + J_n        = |Y| - <s, p (x) e> / |s| + <s, m (x) e> / (|s| |e|)

    and p (x) e = sum p (x) c is a sum of fixed vectors. For vectors that are not unitary (ablations without the
    projection) the loss is computed as it is defined. A zero s has no direction: its cosines are 0, with gradient 0.

    Shapes: (rows, d), (total), (rows) -> ()
    """
    s, labels, offsets = _checked(s, labels, offsets, codebook)
    if not len(s):
        return s.sum()
    one_of("query_loss", "variant", variant, get_args(Variant))
    if variant == "abs" or not codebook.unitary:
        return _query_by_definition(s, labels, offsets, codebook, present, missing, variant)
    total = codebook._encode(labels, offsets)
    return bound_query_loss(s, algebra.bind(total, present), algebra.bind(total, missing), labels.numel())


def bound_query_loss(s: Tensor, present_sums: Tensor, missing_sums: Tensor, n_present: int | Tensor) -> Tensor:
    """`query_loss`, given p (x) e and m (x) e of each row and the number of labels in all rows together, or the sum of
    their weights.

    Shapes: (rows, d), (rows, d), (rows, d) -> ()
    """
    length = torch.linalg.vector_norm(missing_sums, dim=1, keepdim=True)  # |m (x) e| = |e|
    tiny = torch.finfo(length.dtype).tiny
    target = torch.addcdiv(present_sums, missing_sums, length.clamp(min=tiny), value=-1)
    s = _at_least_float32(s)
    return (_CosineLoss.apply if has_values(s) else _cosine_loss)(s, target, n_present)


def softmax_loss(
    s: Tensor,
    labels: Tensor,
    offsets: Tensor,
    codebook: Codebook,
    temperature: Tensor | float = 1.0,
    prior: Tensor | None = None,
    *,
    crosstalk: float = 0.0,
) -> Tensor:
    """Cross-entropy over ALL labels: each present label has the target probability 1 / |Y|.

        x_i  = t <s, c_i> + a_i                  t: the temperature, often learned; a: the prior, by default 0
        loss = mean over rows log sum_i exp x_i - (1 / |Y|) sum_{i in Y} x_i + crosstalk |t s|^2 / (2 d)

    A prior is known as logit adjustment: `frequency_prior` makes one from label counts.

    The second term is a dot product with the mean of the present vectors. The first and its gradient take one pass
    over the labels in bounded memory, O(L log d) for an orbit codebook.

    With crosstalk = 1 the third term is what random label vectors add to the first: <s, c> has the variance |s|^2 / d
    over vectors c that are independent of s, so that the mean of exp(t <s, c>) is exp(|t s|^2 / 2 d). Without this
    term a network learns long outputs, whose crosstalk it fits on its training rows; on other rows it is noise.

    Shapes: (rows, d), (total), (rows) -> ()
    """
    s, labels, offsets = _checked(s, labels, offsets, codebook)
    if not len(s):
        return s.sum()
    x = s * temperature
    counts = set_sizes(labels, offsets)
    target = 1 / counts.clamp(min=1)
    present = (x * codebook._encode(labels, offsets)).sum(1) * target
    if prior is not None:
        present = present + sum_sets(prior[labels, None], offsets)[:, 0] * target
    loss = log_sum_exp(codebook, x, prior) - present
    if crosstalk:
        loss = loss + crosstalk / (2 * codebook.dim) * x.square().sum(1)
    return torch.where(counts > 0, loss, 0).sum() / len(s)


def squares_loss(
    s: Tensor, labels: Tensor, offsets: Tensor, codebook: Codebook, label_weights: Tensor | None = None
) -> Tensor:
    """|s - e|^2 to the sum of the present labels' vectors, as ridge regression has it.

        e = sum_{l in Y} w_l c_l                          w: label_weights (L), by default 1

    Labels that a row does not have have the target score 0, and no term of their own: the loss costs O(labels of the
    row x d), the same for any L. On an orthonormal codebook (L <= d) it is the squared error of all L scores.

    Shapes: (rows, d), (total), (rows) -> ()
    """
    s, labels, offsets = _checked(s, labels, offsets, codebook)
    if not len(s):
        return s.sum()
    weights = None if label_weights is None else label_weights.to(s)[labels]
    loss = (s - codebook._encode(labels, offsets, weights)).square().sum(1)
    return torch.where(set_sizes(labels, offsets) > 0, loss, 0).sum() / len(s)


def frequency_prior(counts: Tensor, power: float = DEFAULT_PRIOR_POWER) -> Tensor:
    """Logit adjustment from label counts: power log(n_i / max n), with n_i = counts[i] + 1/2.  Shapes: (L) -> (L)"""
    smoothed = counts.double() + 0.5
    return (power * (smoothed / smoothed.max()).log()).float()


def regression_loss(
    s: Tensor,
    labels: Tensor,
    offsets: Tensor,
    codebook: Codebook,
    present: Tensor,
    missing: Tensor,
    *,
    all_labels_sum: Tensor | None = None,
) -> Tensor:
    """|s - y|^2 to the vector y that holds all labels, present or missing: the paper's ablation of the loss.

        y = p (x) e + m (x) (A - e),        e = sum_{c in Y} c,     A = sum_i c_i

    all_labels_sum   A; if it is not given, every call computes it

    Shapes: (rows, d), (total), (rows) -> ()
    """
    s, labels, offsets = _checked(s, labels, offsets, codebook)
    if not len(s):
        return s.sum()
    if all_labels_sum is None:
        all_labels_sum = codebook.weighted_sum(torch.ones(codebook.n_labels, device=codebook.device))
    total = codebook._encode(labels, offsets)
    target = algebra.bind(total, present) + algebra.bind(all_labels_sum - total, missing)
    loss = (s - target).pow(2).sum(1)
    return torch.where(set_sizes(labels, offsets) > 0, loss, 0).sum() / len(s)


def present_and_missing(dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The paper's p and m: p a random unitary vector, m unitary AND orthogonal to it.

    m turns the phase of p at frequency k by delta[k], which keeps it unitary, and then

        <p, m> = (1 / d) sum_k w[k] cos(delta[k])            w = 1 at frequencies without a mirror, else 2

    which is 0 if the cosines cancel: random turns come in pairs delta, pi - delta, and a single one left over is
    pi / 2. At the frequencies without a mirror the turns must be 0 or pi: for even d they are 0 and pi, which cancel;
    for odd d there is one, 0, whose 1 is cancelled by -1/2 at a frequency that counts twice.

    Shapes: -> (d), (d)
    """
    if dim < 2:
        raise OptionError(f"present_and_missing: no two unitary vectors of dim {dim} are orthogonal; take dim >= 2")
    ids = torch.tensor([_FIRST_KEY_ID, _FIRST_KEY_ID + 1], device="cpu")
    drawn = torch.view_as_complex(phases(seed, ids, dim))
    turn = drawn[1].angle().double()
    turn[0] = 0
    free = torch.arange(1, dim // 2 + dim % 2, device="cpu")  # the frequencies with a mirror
    if dim % 2 == 0:
        turn[-1] = torch.pi
    else:
        turn[free[0]] = 2 * torch.pi / 3
        free = free[1:]
    if len(free) % 2:
        turn[free[0]] = torch.pi / 2
        free = free[1:]
    turn[free[1::2]] = torch.pi - turn[free[::2]]
    p = drawn[0].to(torch.complex128)
    m = p * torch.polar(torch.ones_like(turn), turn)
    return reproducible_irfft(p[None], dim)[0].float(), reproducible_irfft(m[None], dim)[0].float()


def _checked(s: Tensor, labels: Tensor, offsets: Tensor, codebook: Codebook) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs in float32 or wider, and the sets."""
    if s.ndim != 2 or s.shape[1] != codebook.dim:
        raise ShapeError(f"loss: wants outputs of shape (rows, {codebook.dim}), got {tuple(s.shape)}")
    return _at_least_float32(s), *checked_sets(labels, offsets, codebook.n_labels, codebook.device, len(s))


def _at_least_float32(s: Tensor) -> Tensor:
    return s.to(torch.promote_types(s.dtype, torch.float32))


def _query_by_definition(
    s: Tensor, labels: Tensor, offsets: Tensor, codebook: Codebook, present: Tensor, missing: Tensor, variant: Variant
) -> Tensor:
    """`query_loss` label by label, for vectors that are not unitary and for variant="abs"."""
    sizes = set_sizes(labels, offsets)
    row = torch.arange(len(s), device=s.device).repeat_interleave(sizes, output_size=labels.numel())
    vectors = codebook._vectors(labels)
    s = torch.where(torch.linalg.vector_norm(s, dim=1, keepdim=True) < torch.finfo(s.dtype).tiny ** 0.5, 0, s)
    present_query, missing_query = algebra.unbind(s, present), algebra.unbind(s, missing)
    cosines = algebra.similarity(present_query[row], vectors)
    if variant == "abs":
        loss = cosines.abs() - algebra.similarity(missing_query[row], vectors).abs()
        return (1 - loss * torch.linalg.vector_norm(vectors, dim=1)).sum() / len(s)
    total = codebook._encode(labels, offsets)
    return ((1 - cosines).sum() + algebra.similarity(missing_query, total).sum()) / len(s)


def _cosine_loss(s: Tensor, target: Tensor, n: int | Tensor) -> Tensor:
    """What `_CosineLoss` computes, in operations that torch.compile and torch.func trace."""
    largest = torch.linalg.vector_norm(s.detach(), ord=torch.inf, dim=1, keepdim=True)
    short = largest < torch.finfo(s.dtype).tiny ** 0.5
    unit = torch.where(short, 1, s) / torch.where(short, 1, largest)
    cosine = (unit * target).sum(1, keepdim=True) / torch.linalg.vector_norm(unit, dim=1, keepdim=True)
    return (n - torch.where(short, 0, cosine).sum()) / len(s)


class _CosineLoss(Function):
    """(n - sum over rows <s, target> / |s|) / rows, in as few passes as possible: a step may take a millisecond.

        d/ds = -(target - cos u) / |s|,     u = s / |s|,   cos = <u, target>

    Dividing by the largest element first keeps the squares of huge rows in range. The direction of a row so short that
    its square vanishes cannot be trusted: the row counts as zero and has no gradient.
    """

    @staticmethod
    def forward(ctx: Any, s: Tensor, target: Tensor, n: int | Tensor) -> Tensor:
        tiny = torch.finfo(s.dtype).tiny
        largest = torch.linalg.vector_norm(s, ord=torch.inf, dim=1, keepdim=True).clamp_(min=tiny)
        unit = s / largest
        scaled = torch.linalg.vector_norm(unit, dim=1, keepdim=True)
        length = scaled * largest
        short = length < tiny**0.5
        unit /= scaled.masked_fill_(short, torch.inf)
        cosine = (unit * target).sum(1, keepdim=True)
        ctx.save_for_backward(unit, target, cosine, length.masked_fill_(short, torch.inf))
        return (n - cosine.sum()) / len(s)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        unit, target, cosine, length = ctx.saved_tensors
        scale = grad / -len(unit)
        s_grad = torch.addcmul(target, unit, cosine, value=-1).mul_(scale / length) if ctx.needs_input_grad[0] else None
        return s_grad, unit * scale if ctx.needs_input_grad[1] else None, None
