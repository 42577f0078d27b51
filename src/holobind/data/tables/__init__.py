"""Tables of texts and labels: CSV, TSV, JSON lines, Parquet, Arrow, Annif's corpora and fastText's files.

options.py      what the caller says about a table
lines.py        bytes -> lines;  delimited.py  lines -> rows;  sources.py, columnar.py, folders.py  -> records
layout.py       which fields are texts, labels and ids;  separators.py  what stands between labels
reading.py      a path -> texts and label names
vocabulary.py   names of labels
"""

from holobind.data.tables.layout import Layout
from holobind.data.tables.options import TABLE_FORMATS, TableOptions
from holobind.data.tables.reading import Table, TableRows, arrange, find_format, open_table, read_field, read_table

__all__ = [
    "TABLE_FORMATS",
    "Layout",
    "Table",
    "TableOptions",
    "TableRows",
    "arrange",
    "find_format",
    "open_table",
    "read_field",
    "read_table",
]
