"""Networks that turn documents into features for a head: `forward(inputs)` is (rows, out_features).

`config()` holds the JSON values which, passed as keyword arguments to the class, build the same network again.
"""

from holobind.networks.cnn import XmlCnn
from holobind.networks.inputs import TokenExamples, Tokens
from holobind.networks.lstm import AttentionLstm

__all__ = ["AttentionLstm", "TokenExamples", "Tokens", "XmlCnn"]
