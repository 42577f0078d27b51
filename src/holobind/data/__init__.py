"""Datasets for extreme multi-label classification: load, write, convert, generate, fetch and describe them.

import holobind as hb

dataset = hb.data.load("eurlex-4k")
dataset.train.X, dataset.train.Y, dataset.test, dataset.label_names
"""

from holobind.data.dataset import Dataset, Split
from holobind.data.formats import FORMATS, READ_FORMATS, load
from holobind.data.large_synthetic import write_synthetic
from holobind.data.python_calls import python_calls
from holobind.data.registry import PUBLISHED, Published, download, fetch, published
from holobind.data.statistics import first_rows, paper_table, plot, statistics
from holobind.data.synthetic import synthetic
from holobind.data.tfidf import Tfidf
from holobind.data.writing import convert, write

__all__ = [
    "FORMATS",
    "PUBLISHED",
    "READ_FORMATS",
    "Dataset",
    "Published",
    "Split",
    "Tfidf",
    "convert",
    "download",
    "fetch",
    "first_rows",
    "load",
    "paper_table",
    "plot",
    "published",
    "python_calls",
    "statistics",
    "synthetic",
    "write",
    "write_synthetic",
]
