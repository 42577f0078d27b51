"""What an output s should be, given the set of labels that are present.

Outputs are (rows, d), label sets are ragged `(labels, offsets)`, see `ragged`; every loss is the mean over the
rows of the batch. A row without labels adds 0 to it and has no gradient.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from holobind import algebra
from holobind.codebooks import BiasedCodebook, Codebook
from holobind.codebooks._philox import phases, signals
from holobind.codebooks.ragged import checked_sets, lengths, sum_sets
from holobind.errors import OptionError, ShapeError

Variant = Literal["cosine", "abs"]


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
    """The paper's loss: every present label can be queried from s, and none of them is said to be missing.

        J_p = sum_{c in Y} (1 - cos(p* (x) s, c))
        J_n = cos(m* (x) s, e),                          e = sum_{c in Y} c         loss = mean over rows J_p + J_n

    variant="abs" is the listing in the paper's appendix: sum_{c in Y} (1 - |cos(p* (x) s, c)| + |cos(m* (x) s, c)|).
    It also rewards an output that points away from a label. `present_and_missing` draws p and m.

    The first form costs two dot products a row, whatever the number of labels. With p, m and all c unitary,
    unbinding is an isometry and the adjoint of binding, and |c| = 1, so

        cos(p* (x) s, c) = <p* (x) s, c> / |s| = <s, p (x) c> / |s|
        J_p + J_n        = |Y| - <s, p (x) e> / |s| + <s, m (x) e> / (|s| |e|)

    and p (x) e = sum p (x) c is a sum of fixed vectors. For vectors that are not unitary (the paper's failed
    ablation) it is computed as it is defined. A zero s points nowhere: its cosines are 0, with gradient 0.

    Shapes: (rows, d), (total), (rows) -> ()
    """
    s, labels, offsets = _checked(s, labels, offsets, codebook)
    if not len(s):
        return s.sum()
    if variant not in get_args(Variant):
        raise OptionError(f"query_loss: variant must be one of {get_args(Variant)}, got {variant!r}")
    if variant == "abs" or not codebook.unitary:
        return _query_by_definition(s, labels, offsets, codebook, present, missing, variant)
    total = codebook._encode(labels, offsets)
    return folded_query_loss(s, algebra.bind(total, present), algebra.bind(total, missing), labels.numel())


def folded_query_loss(s: Tensor, presents: Tensor, absents: Tensor, n_present: int) -> Tensor:
    """`query_loss`, given p (x) e and m (x) e for each row and the number of labels in all rows together."""
    length = torch.linalg.vector_norm(absents, dim=1, keepdim=True)  # |m (x) e| = |e|
    wanted = torch.addcdiv(presents, absents, length.clamp(min=torch.finfo(length.dtype).tiny), value=-1)
    return _Disagreement.apply(_wide(s), wanted, n_present)


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
    """Cross-entropy over ALL labels: the present ones share the probability 1 evenly.

        x_i  = t <s, c_i> + a_i                  t: the temperature, often learned; a: the prior, 0 unless it is given
        loss = mean over rows log sum_i exp x_i - (1 / |Y|) sum_{i in Y} x_i + crosstalk |t s|^2 / (2 d)

    The second term is a dot product with the mean of the present vectors. The first and its gradient take one pass
    over the labels in bounded memory, O(L log d) for an orbit codebook.

    With crosstalk = 1 the third is what chance adds to the first: <s, c> has the variance |s|^2 / d over vectors c
    that s was not made for, so that the mean of exp(t <s, c>) is exp(|t s|^2 / 2 d). Without it a network finds long
    outputs, whose crosstalk it fits on the rows it is trained with; on others it is noise.

    Shapes: (rows, d), (total), (rows) -> ()
    """
    s, labels, offsets = _checked(s, labels, offsets, codebook)
    if not len(s):
        return s.sum()
    x = s * temperature
    counts = lengths(labels, offsets)
    share = 1 / counts.clamp(min=1)
    found = (x * codebook._encode(labels, offsets)).sum(1) * share
    if prior is not None:
        codebook = BiasedCodebook(codebook, prior)
        found = found + sum_sets(prior[labels, None], offsets)[:, 0] * share
    wrong = codebook.log_sum_exp(x) - found
    if crosstalk:
        wrong = wrong + crosstalk / (2 * codebook.dim) * x.square().sum(1)
    return torch.where(counts > 0, wrong, 0).sum() / len(s)


def regression_loss(
    s: Tensor,
    labels: Tensor,
    offsets: Tensor,
    codebook: Codebook,
    present: Tensor,
    missing: Tensor,
    *,
    everything: Tensor | None = None,
) -> Tensor:
    """|s - y|^2 to the vector y that holds all labels, present or missing. It learns nothing: the paper's failure.

        y = p (x) e + m (x) (A - e),        e = sum_{c in Y} c,     A = sum_i c_i

    `everything` is A; without it, it is computed at each call.

    Shapes: (rows, d), (total), (rows) -> ()
    """
    s, labels, offsets = _checked(s, labels, offsets, codebook)
    if not len(s):
        return s.sum()
    if everything is None:
        everything = codebook.mix(torch.ones(codebook.n_labels, device=codebook.device))
    total = codebook._encode(labels, offsets)
    wanted = algebra.bind(total, present) + algebra.bind(everything - total, missing)
    wrong = (s - wanted).pow(2).sum(1)
    return torch.where(lengths(labels, offsets) > 0, wrong, 0).sum() / len(s)


def present_and_missing(dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The paper's p and m: p a random unitary vector, m unitary AND orthogonal to it.

    m turns the phase of p at frequency k by delta[k], which keeps it unitary, and then

        <p, m> = (1 / d) sum_k w[k] cos(delta[k])            w = 1 at frequencies without a mirror, else 2

    which is 0 if the cosines cancel: random turns come in pairs delta, pi - delta, a single one left over is
    pi / 2, and at the frequencies without a mirror the turns must be 0 or pi: for even d 0 and pi, which cancel;
    for odd d there is one, 0, whose 1 is cancelled by -1/2 at a frequency that counts twice.

    Shapes: -> (d), (d)
    """
    if dim < 2:
        raise OptionError(f"present_and_missing: no two unitary vectors of dim {dim} are orthogonal; take dim >= 2")
    drawn = torch.view_as_complex(phases(seed, torch.tensor([_NOT_A_LABEL, _NOT_A_LABEL + 1]), dim))
    turn = drawn[1].angle().double()
    turn[0] = 0
    free = torch.arange(1, dim // 2 + dim % 2)  # the frequencies with a mirror
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
    return signals(p[None], dim)[0].float(), signals(m[None], dim)[0].float()


_NOT_A_LABEL = 1 << 62  # p and m are drawn as labels are, from numbers no label has


def _checked(s: Tensor, labels: Tensor, offsets: Tensor, codebook: Codebook) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs in float32 or wider, and the sets."""
    if s.ndim != 2 or s.shape[1] != codebook.dim:
        raise ShapeError(f"loss: wants outputs of shape (rows, {codebook.dim}), got {tuple(s.shape)}")
    return _wide(s), *checked_sets(labels, offsets, codebook.n_labels, codebook.device, len(s))


def _wide(s: Tensor) -> Tensor:
    return s.to(torch.promote_types(s.dtype, torch.float32))


def _query_by_definition(
    s: Tensor, labels: Tensor, offsets: Tensor, codebook: Codebook, present: Tensor, missing: Tensor, variant: Variant
) -> Tensor:
    row = torch.arange(len(s), device=s.device).repeat_interleave(lengths(labels, offsets))
    vectors = codebook._vectors(labels)
    s = torch.where(torch.linalg.vector_norm(s, dim=1, keepdim=True) < torch.finfo(s.dtype).tiny ** 0.5, 0, s)
    asked, absent = algebra.unbind(s, present), algebra.unbind(s, missing)
    found = algebra.similarity(asked[row], vectors)
    if variant == "abs":
        wrong = 1 - found.abs() + algebra.similarity(absent[row], vectors).abs()
        return wrong.sum() / len(s)
    total = codebook._encode(labels, offsets)
    return ((1 - found).sum() + algebra.similarity(absent, total).sum()) / len(s)


class _Disagreement(Function):
    """(n - sum over rows <s, wanted> / |s|) / rows, in as few passes as there can be: a step may take a millisecond.

        d/ds = -(wanted - cos u) / |s|,     u = s / |s|,   cos = <u, wanted>

    Dividing by the largest element first keeps the squares of huge rows in range. A row so short that its square
    vanishes has no direction that can be trusted: it counts as zero and has no gradient.
    """

    @staticmethod
    def forward(ctx: Any, s: Tensor, wanted: Tensor, n: int) -> Tensor:
        tiny = torch.finfo(s.dtype).tiny
        largest = torch.linalg.vector_norm(s, ord=torch.inf, dim=1, keepdim=True).clamp_(min=tiny)
        unit = s / largest
        scaled = torch.linalg.vector_norm(unit, dim=1, keepdim=True)
        length = scaled * largest
        short = length < tiny**0.5
        unit /= scaled.masked_fill_(short, torch.inf)
        cosine = (unit * wanted).sum(1, keepdim=True)
        ctx.save_for_backward(unit, wanted, cosine, length.masked_fill_(short, torch.inf))
        return (n - cosine.sum()) / len(s)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        unit, wanted, cosine, length = ctx.saved_tensors
        share = grad / -len(unit)
        for_s = torch.addcmul(wanted, unit, cosine, value=-1).mul_(share / length) if ctx.needs_input_grad[0] else None
        return for_s, unit * share if ctx.needs_input_grad[1] else None, None
