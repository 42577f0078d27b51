"""Data for extreme multi-label learning: read, write and convert it, make it, fetch it, describe it.

import holobind as hb
dataset = hb.data.load("eurlex-4k")
dataset.train.X, dataset.train.Y, dataset.test, dataset.label_names
"""

from holobind.data.dataset import Dataset, Part
from holobind.data.formats import FORMATS, convert, load, tfidf, write

__all__ = ["FORMATS", "Dataset", "Part", "convert", "load", "tfidf", "write"]
