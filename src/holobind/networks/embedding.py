"""The first layer of the text networks, and weights that come from a seed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from holobind.data.batches import PADDING, WORD_VECTOR_SCALE
from holobind.errors import ShapeError


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Layers made inside draw their weights from `seed`; the global generator is left as it was."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield


def word_embedding(vocab_size: int, size: int, vectors: Tensor | None, sparse: bool) -> nn.Embedding:
    """A vector for each token, the given ones or small random ones; padding has none: zeros without gradient.

    sparse: gradients have a row for each token of the batch only. A batch has a small part of the vocabulary, so that
    anything else would spend the step on zeros; the optimiser must take such gradients, as `torch.optim.SparseAdam`.
    """
    if vectors is not None and vectors.shape != (vocab_size, size):
        raise ShapeError(f"vectors: wants ({vocab_size}, {size}), a row for each token; got {tuple(vectors.shape)}")
    layer = nn.Embedding(vocab_size, size, padding_idx=PADDING, sparse=sparse)
    with torch.no_grad():
        layer.weight.mul_(WORD_VECTOR_SCALE) if vectors is None else layer.weight.copy_(vectors)
        layer.weight[PADDING] = 0
    return layer
