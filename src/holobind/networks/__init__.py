"""Bodies of networks: what turns a batch of inputs into one vector a row, which a head then reads.

A network is a module with

    forward(inputs) -> (rows, out_features)
    out_features
    config()                      JSON values that, as keyword arguments of its class, build it again

and `inputs` says what a batch is: `Rows` of a sparse matrix for `FC`.
"""

from holobind.networks.fc import FC, SparseLinear
from holobind.networks.inputs import Rows, SparseExamples

__all__ = ["FC", "Rows", "SparseExamples", "SparseLinear"]
