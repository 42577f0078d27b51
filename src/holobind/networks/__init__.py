"""Networks: they turn a batch of inputs into one vector for each row, which a head reads.

`FC` takes a `SparseBatch` of features, `XmlCnn` and `AttentionLstm` take a `TokenBatch` of texts, and `WideAndDeep`
takes both as a `TextBatch`.
"""

from holobind.data.batches import SparseBatch, SparseExamples, TextBatch, TextExamples, TokenBatch, TokenExamples
from holobind.networks.base import Network
from holobind.networks.cnn import XmlCnn
from holobind.networks.fc import FC
from holobind.networks.lstm import AttentionLstm
from holobind.networks.sparse_linear import SparseLinear
from holobind.networks.wide_and_deep import WideAndDeep

__all__ = [
    "FC",
    "AttentionLstm",
    "Network",
    "SparseBatch",
    "SparseExamples",
    "SparseLinear",
    "TextBatch",
    "TextExamples",
    "TokenBatch",
    "TokenExamples",
    "WideAndDeep",
    "XmlCnn",
]
