"""Bodies of networks: what turns a batch of inputs into one vector a row, which a head then reads.

`inputs` says what a network is and what a batch is: `Rows` of a sparse matrix for `FC` and `RidgeKnn`, `Tokens` of texts
for `XmlCnn` and `AttentionLstm`.
"""

from holobind.data.batches import Rows, SparseExamples, TokenExamples, Tokens
from holobind.networks.base import Network
from holobind.networks.cnn import XmlCnn
from holobind.networks.fc import FC, SparseLinear
from holobind.networks.lstm import AttentionLstm

__all__ = [
    "FC",
    "AttentionLstm",
    "Network",
    "RidgeKnn",
    "Rows",
    "SparseExamples",
    "SparseLinear",
    "TokenExamples",
    "Tokens",
    "XmlCnn",
]
