"""XML-CNN: convolutions over the words of a text, dynamic max pooling, and a hidden layer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holobind._checks import positive
from holobind.data.batches import PADDING, TokenBatch
from holobind.errors import OptionError
from holobind.networks.base import Network
from holobind.networks.embedding import seeded, word_embedding


class XmlCnn(Network):
    """The network of Liu et al. (2017).

        y_w[i] = W_w . (x[i], ..., x[i + w - 1]) + b_w      for each width w: `filters` outputs at each of n words
        z_w[j] = relu(max over i in chunk j of y_w[i])      chunk j of p: floor(j n / p) <= i < ceil((j + 1) n / p)
        h      = dropout(relu(V (z_w[j] for all w, j) + a))

    The pooling is dynamic: n is the length of each text, not of the batch, and a filter keeps p maxima, one for each
    chunk of the text. A window begins at every word; beyond the text there are zeros. A text of fewer than p words has
    chunks that overlap; an empty text has z = 0.

    Widths, filters (for the smaller datasets), bottleneck, dropout and embedding_dim are those that Liu et al. report;
    they started from GloVe vectors and do not report p and the dropout of the embedding. `vectors`
    (vocab_size, embedding_dim) are initial word vectors; `sparse` gradients of the embedding need an optimiser that
    takes them, see `word_embedding`.

    Shapes: TokenBatch of (rows, max_tokens) -> (rows, bottleneck)
    """

    kind = "cnn"
    reads_tokens = True

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int = 300,
        widths: Sequence[int] = (2, 4, 8),
        filters: int = 128,
        chunks: int = 8,
        bottleneck: int = 512,
        dropout: float = 0.5,
        embedding_dropout: float = 0.25,
        *,
        sparse: bool = True,
        seed: int = 0,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        if not widths:
            raise OptionError("XmlCnn: widths must name at least one width, as in (2, 4, 8)")
        sizes = {"vocab_size": vocab_size, "embedding_dim": embedding_dim, "filters": filters, "chunks": chunks}
        for name, value in [*sizes.items(), ("bottleneck", bottleneck), *(("widths", width) for width in widths)]:
            positive("XmlCnn", name, value)
        self._config: dict[str, Any] = {**sizes, "bottleneck": bottleneck, "widths": list(widths), "dropout": dropout}
        self._config |= {"embedding_dropout": embedding_dropout, "sparse": sparse, "seed": seed}
        self.chunks, self.reach, self.out_features = chunks, max(widths) - 1, bottleneck
        with seeded(seed):
            self.embedding = word_embedding(vocab_size, embedding_dim, vectors, sparse)
            self.convolutions = nn.ModuleList(nn.Conv1d(embedding_dim, filters, width) for width in widths)
            self.hidden = nn.Linear(len(widths) * filters * chunks, bottleneck)
        self.embedding_dropout, self.dropout = nn.Dropout(embedding_dropout), nn.Dropout(dropout)

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def describe(self) -> str:
        widths = ", ".join(map(str, self._config["widths"]))
        return (
            f"XML-CNN, {self._config['filters']} filters of each width ({widths}), hidden layer of {self.out_features}"
        )

    def forward(self, inputs: TokenBatch) -> Tensor:
        words, starts = self._concatenate(inputs)
        x = self.embedding_dropout(self.embedding(words)).T
        within, empty = self._chunks(starts, inputs.lengths, inputs.ids.shape[1])
        found = [self._max_pool(convolution(x), within) for convolution in self.convolutions]
        pooled = torch.cat(found).relu().masked_fill(empty, 0)  # (widths x filters, rows x chunks)
        pooled = pooled.unflatten(1, (-1, self.chunks)).transpose(0, 1).flatten(1)
        return self.dropout(self.hidden(pooled).relu())

    def _concatenate(self, inputs: TokenBatch) -> tuple[Tensor, Tensor]:
        """All texts as one, with enough padding after each that no window spans two of them, and where each starts.

        So no window is computed in vain, however different the lengths are.
        """
        ids, lengths = inputs
        padded = lengths + self.reach
        starts = padded.cumsum(0) - padded
        place = torch.arange(ids.shape[1], device=ids.device)
        real = place < lengths[:, None]
        # At least one window of any width, even if there is no text.
        words = ids.new_full((int(padded.sum()) + self.reach + 1,), PADDING)
        words[(starts[:, None] + place)[real]] = ids[real]
        return words, starts

    def _chunks(self, starts: Tensor, lengths: Tensor, max_tokens: int) -> tuple[Tensor, Tensor]:
        """The windows of each chunk of each text, (rows x chunks, size), and which chunks have none, (rows x chunks).

        A chunk smaller than the others has its last window several times, which changes no maximum.
        """
        chunk = torch.arange(self.chunks, device=lengths.device)
        first = lengths[:, None] * chunk // self.chunks
        size = -(lengths[:, None] * (chunk + 1) // -self.chunks) - first
        each = torch.arange(max(1, max_tokens // self.chunks + 2), device=lengths.device)
        within = (starts[:, None] + first)[:, :, None] + each.minimum((size - 1).clamp(min=0)[:, :, None])
        return within.flatten(0, 1), (size == 0).flatten()

    @staticmethod
    def _max_pool(y: Tensor, within: Tensor) -> Tensor:
        """The maximum in each chunk.  Shapes: (filters, windows), (chunks, size) -> (filters, chunks)"""
        with torch.no_grad():
            best = y[:, within].argmax(2)
            best = within.expand(len(y), -1, -1).gather(2, best[:, :, None])[:, :, 0]
        return y.gather(1, best)
