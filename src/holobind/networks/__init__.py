"""Bodies of networks: what turns a batch of inputs into one vector a row, which a head then reads.

`inputs` says what a network is and what a batch is: `Rows` of a sparse matrix for `FC`.
"""

from holobind.networks.fc import FC, SparseLinear
from holobind.networks.inputs import Network, Rows, SparseExamples

__all__ = ["FC", "Network", "Rows", "SparseExamples", "SparseLinear"]
