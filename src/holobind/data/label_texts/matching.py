"""The label texts of a dataset's labels, and the labels that have texts and no rows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holobind.data.csr import widen
from holobind.data.dataset import Dataset
from holobind.data.label_texts.reading import LabelTexts, bare
from holobind.errors import DataError


@dataclass(frozen=True)
class MatchedTexts:
    """The texts of all labels: those of the dataset, then those that it does not have.

    texts         of each label; a label may have none
    names         of all labels, or None where the dataset's have none
    n_matched     labels of the dataset with a text
    """

    texts: list[list[str]]
    names: list[str] | None
    n_matched: int


def match_labels(found: LabelTexts, names: Sequence[str] | None, n_labels: int) -> MatchedTexts:
    """Find the texts of each label by its name, which may be the label's key (a URI) or its first text.

    A label that the dataset does not have is added. It is called by its first text where the dataset's labels are,
    otherwise by its key. The name of a label without any text of its own is its text.
    """
    if found.in_order is not None:
        return _in_order(found.in_order, names, n_labels)
    if names is None:
        raise DataError(
            f"the data's {n_labels:,} labels have no names to find their texts by; give a file whose line i is the "
            "text of label i"
        )
    by_label = found.by_label or {}
    ids = {bare(name): i for i, name in enumerate(names)}
    texts: list[list[str]] = [[] for _ in names]
    added: list[tuple[str, list[str]]] = []
    by_text = 0
    for key, of_label in by_label.items():
        first = of_label[0] if of_label else key
        label = ids.get(key)
        if label is None:
            label = ids.get(first, ids.get(f"{first} <{key}>"))  # `named_labels` gives names that occur twice a URI
            by_text += label is not None
        if label is None:
            added.append((key, of_label or [key]))
        else:
            texts[label] += of_label
    n_matched = sum(map(bool, texts))
    if not n_matched:
        example = next(iter(by_label), "")
        raise DataError(
            f"none of the data's {n_labels:,} labels, such as {names[0][:40]!r}, is among the {len(by_label):,} with "
            f"a text, such as {example[:40]!r}; give their names with --label-names, or a file with these labels"
        )
    texts = [of_label or [name] for of_label, name in zip(texts, names, strict=True)]
    return MatchedTexts(
        texts + [of_label for _, of_label in added],
        [*names, *_new_names(added, set(names), by_text > n_matched // 2)],
        n_matched,
    )


def with_label_texts(dataset: Dataset, found: LabelTexts) -> tuple[Dataset, MatchedTexts]:
    """A dataset with the labels that only have texts after its own, and the texts of all labels."""
    matched = match_labels(found, dataset.label_names, dataset.n_labels)
    n_labels = len(matched.texts)
    train, test = (
        None if split is None else replace(split, Y=widen(split.Y, n_labels)) for split in (dataset.train, dataset.test)
    )
    assert train is not None
    return replace(dataset, train=train, test=test, label_names=matched.names), matched


def _in_order(lines: list[list[str]], names: Sequence[str] | None, n_labels: int) -> MatchedTexts:
    if len(lines) < n_labels:
        raise DataError(f"the file has {len(lines):,} lines for {n_labels:,} labels; line i is the text of label i")
    extra = lines[n_labels:]
    if names is not None:
        new = [(f"label {n_labels + i}", of_label) for i, of_label in enumerate(extra)]
        names = [*names, *_new_names(new, set(names), True)]
    return MatchedTexts(lines, None if names is None else list(names), sum(map(bool, lines[:n_labels])))


def _new_names(added: list[tuple[str, list[str]]], taken: set[str], by_text: bool) -> list[str]:
    """Names of labels that the dataset does not have, each different from all others."""
    wanted = [of_label[0] if by_text and of_label else key for key, of_label in added]
    counts = Counter(wanted)
    return [
        name if counts[name] == 1 and name not in taken else f"{name} <{key}>"
        for name, (key, _) in zip(wanted, added, strict=True)
    ]
