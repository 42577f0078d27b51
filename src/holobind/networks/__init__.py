"""Bodies of networks: what turns a batch of inputs into one vector a row, which a head then reads.

`inputs` says what a network is and what a batch is: `Rows` of a sparse matrix for `FC` and `Recall`, `Tokens` of texts
for `XmlCnn` and `AttentionLstm`.
"""

from holobind.networks.cnn import XmlCnn
from holobind.networks.fc import FC, SparseLinear
from holobind.networks.inputs import Network, Rows, SparseExamples, TokenExamples, Tokens
from holobind.networks.lstm import AttentionLstm
from holobind.networks.recall import Recall

__all__ = [
    "FC",
    "AttentionLstm",
    "Network",
    "Recall",
    "Rows",
    "SparseExamples",
    "SparseLinear",
    "TokenExamples",
    "Tokens",
    "XmlCnn",
]
