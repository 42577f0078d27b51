"""Label vectors as an input embedding, tied with the output layer that scores them."""

from math import sqrt

import torch
from torch import Tensor, nn

from holobind.codebooks.base import Codebook
from holobind.errors import OptionError


class CodebookEmbedding(nn.Module):
    """In place of `nn.Embedding`: the vector of a label, without a table of n x d weights.

        embedding = CodebookEmbedding(OrbitCodebook(50_000, 512))
        embedding(ids)                                           # (*any) -> (*any, 512)

    With the codebook of a head, `CodebookEmbedding(head.codebook)`, input and output are tied. A linear layer behind
    the embedding gives the network vectors of its own size and basis.

    scale         of the vectors, whose length is 1; sqrt(d) by default: elements have variance 1 as in `nn.Embedding`
    padding_idx   a label whose vector is 0
    """

    def __init__(self, codebook: Codebook, *, scale: float | None = None, padding_idx: int | None = None) -> None:
        super().__init__()
        if padding_idx is not None and not 0 <= padding_idx < codebook.n_labels:
            raise OptionError(
                f"CodebookEmbedding: padding_idx must be a label, from 0 to {codebook.n_labels - 1}; got {padding_idx}"
            )
        self.codebook = codebook
        self.scale = sqrt(codebook.dim) if scale is None else scale
        self.padding_idx = padding_idx

    @property
    def num_embeddings(self) -> int:
        return self.codebook.n_labels

    @property
    def embedding_dim(self) -> int:
        return self.codebook.dim

    def forward(self, ids: Tensor) -> Tensor:
        """Shapes: (*any) -> (*any, d)"""
        vectors = self.codebook.vectors(ids) * self.scale
        if self.padding_idx is None:
            return vectors
        return torch.where((ids == self.padding_idx)[..., None], 0, vectors)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}, scale={self.scale:g}{padding}"
