"""What labels are called: names, synonyms and descriptions, read from SKOS, tables, JSON or plain lines.

texts = read_label_texts(path)               of a file
labels = match_labels(texts, names, n)       the texts of each label of a dataset, and the labels that it does not have
"""

from holobind.data.label_texts.matching import MatchedTexts, match_labels
from holobind.data.label_texts.reading import LabelTexts, as_label_texts, read_label_texts

__all__ = ["LabelTexts", "MatchedTexts", "as_label_texts", "match_labels", "read_label_texts"]
