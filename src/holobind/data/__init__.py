"""Data for extreme multi-label learning: read, write and convert it, make it, fetch it, describe it.

import holobind as hb
dataset = hb.data.load("eurlex-4k")
dataset.train.X, dataset.train.Y, dataset.test, dataset.label_names
"""

from holobind.data.dataset import Dataset, Part
from holobind.data.formats import FORMATS, convert, load, tfidf, write
from holobind.data.python_calls import python_calls
from holobind.data.registry import PUBLISHED, Published, download, fetch, published
from holobind.data.statistics import paper_table, plot, statistics
from holobind.data.synthetic import synthetic

__all__ = [
    "FORMATS",
    "PUBLISHED",
    "Dataset",
    "Part",
    "Published",
    "convert",
    "download",
    "fetch",
    "load",
    "paper_table",
    "plot",
    "published",
    "python_calls",
    "statistics",
    "synthetic",
    "tfidf",
    "write",
]
