"""Hard negatives for the query loss: the labels with the largest scores among those that a row does not have.

    J_h = sum over the k hardest labels c not in Y of max(0, cos(p* (x) s, c))

J_n of the paper pushes the row's own labels away from the query with m; nothing in its loss pushes other labels away
from the query with p. The exact top k of the codebook finds the labels that need it. The search has no gradient; with
an orbit it costs O(L log d) a row, about half of a softmax, and k vectors are all that the backward pass sees.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from holobind.codebooks import Codebook
from holobind.codebooks._tracing import has_values
from holobind.codebooks.ragged import set_sizes


def hard_negative_loss(s: Tensor, labels: Tensor, offsets: Tensor, present: Codebook, k: int) -> Tensor:
    """The mean of J_h over rows; a row without labels adds 0.

    present   the codebook of p (x) c

    Shapes: (rows, d), (total), (rows) -> ()
    """
    sizes = set_sizes(labels, offsets)
    hardest = hardest_negatives(s.detach(), labels, sizes, present, k)
    cosines = torch.einsum("rd,rkd->rk", normalize(s, dim=1), present.vectors(hardest.clamp(min=0)).to(s.dtype))
    counted = (hardest >= 0) & (sizes > 0)[:, None]
    return torch.where(counted, cosines.relu(), 0).sum() / max(len(s), 1)


def hardest_negatives(s: Tensor, labels: Tensor, sizes: Tensor, present: Codebook, k: int) -> Tensor:
    """The k labels with the largest scores that are not in the set of their row, -1 where there are fewer.

    Shapes: (rows, d), (total), (rows) -> (rows, k)
    """
    if not len(s):
        return labels.new_empty(0, k)
    largest_set = int(sizes.max()) if has_values(sizes) else len(labels)  # a traced size is known by its bound only
    n = min(k + largest_set, present.n_labels)
    found = present.top_k(s, n)[1]
    row = torch.arange(len(s), device=found.device)
    owner = row.repeat_interleave(sizes, output_size=len(labels))
    own = torch.isin(row[:, None] * present.n_labels + found, owner * present.n_labels + labels)
    found = torch.where(own, -1, found)
    order = own.long().argsort(dim=1, stable=True)  # absent labels first, in the order of their scores
    best = found.gather(1, order)[:, :k]
    return torch.nn.functional.pad(best, (0, k - best.shape[1]), value=-1)
