"""The subspace that the query loss can see, for heads with few labels.

The query loss depends on an output s only through its products with the 2 L vectors p (x) c and m (x) c, and through
its length. The component of s that is orthogonal to all of them can only make the cosines smaller, and no score reads
it. Where 2 L < d, the head therefore learns z, 2 L coordinates, and s = z B with an orthonormal basis B of the span of
these vectors; z has the length of s. The p (x) c of an orbit are orthonormal, and B starts with them, so that the first
L elements of z are the scores.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from holobind.codebooks import Codebook

MAX_LABELS_FOR_BASIS = 1024  # B is then at most 2048 x 8192


def layer_rows(n_labels: int, dim: int, codebook: object, loss: str, trainable: Sequence[str]) -> int:
    """How many rows the weight of a holographic head has: d, or 2 L where the head learns coordinates in B.

    It learns coordinates with the query loss on a fixed orbit codebook if 2 L < d <= 8 L and L <= 1024.
    """
    small = n_labels <= MAX_LABELS_FOR_BASIS and 2 * n_labels < dim <= 8 * n_labels
    return 2 * n_labels if small and codebook == "orbit" and loss == "query" and not trainable else dim


def query_basis(present: Codebook, missing: Codebook) -> tuple[Tensor, Tensor, Tensor]:
    """B, and the coordinates in B of each p (x) c and of each m (x) c, one label after the other.

    present, missing   the codebooks of p (x) c and of m (x) c

    Shapes: -> (2 L, d), (L * 2 L), (L * 2 L)
    """
    ids = torch.arange(present.n_labels)
    p_c, m_c = (codebook.vectors(ids.to(codebook.device)).double() for codebook in (present, missing))
    q, r = torch.linalg.qr(torch.cat([p_c, m_c]).T)
    basis = (q * torch.where(r.diagonal() < 0, -1.0, 1.0)).T.contiguous()
    missing_in_basis = (m_c @ basis.T).float().flatten()
    present_in_basis = torch.eye(present.n_labels, len(basis), device=basis.device).flatten()
    return basis.float(), present_in_basis, missing_in_basis
