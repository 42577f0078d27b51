"""What labels are called: names, synonyms and descriptions, read from SKOS, tables, JSON or plain lines.

texts = read_label_texts(path)               of a file
dataset, matched = with_label_texts(dataset, texts)      matched.texts has those of each label
"""

from holobind.data.label_texts.matching import MatchedTexts, match_labels, with_label_texts
from holobind.data.label_texts.reading import LabelTexts, as_label_texts, read_label_texts

__all__ = ["LabelTexts", "MatchedTexts", "as_label_texts", "match_labels", "read_label_texts", "with_label_texts"]
