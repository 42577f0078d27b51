"""The word embedding of text networks, and layers whose weights come from a seed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from holobind._checks import one_of
from holobind.data.batches import PADDING, WORD_VECTOR_SCALE
from holobind.errors import ShapeError


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Layers built inside draw their weights from `seed`; the state of the global generator is restored."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield


def word_embedding(vocab_size: int, embedding_dim: int, vectors: Tensor | None, sparse: bool) -> nn.Embedding:
    """A vector for each token: the given `vectors`, or small random ones; that of padding is 0 and has no gradient.

    sparse   gradients have rows for the tokens of the batch only, which are few of the vocabulary. The optimiser must
             take sparse gradients, as `torch.optim.SparseAdam` does.
    """
    one_of("word_embedding", "sparse", sparse, (True, False))
    if vectors is not None and vectors.shape != (vocab_size, embedding_dim):
        raise ShapeError(
            f"vectors: wants ({vocab_size}, {embedding_dim}), a row for each token; got {tuple(vectors.shape)}"
        )
    layer = nn.Embedding(vocab_size, embedding_dim, padding_idx=PADDING, sparse=sparse)
    with torch.no_grad():
        layer.weight.mul_(WORD_VECTOR_SCALE) if vectors is None else layer.weight.copy_(vectors)
        layer.weight[PADDING] = 0
    return layer
