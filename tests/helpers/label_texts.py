"""A small corpus whose labels are named by the words of their texts, for tests of label texts."""

import functools

import numpy as np

import holobind as hb
from holobind.data.csr import from_arrays, from_label_ids

LETTERS = "qwertzuiopasdfghjklyxcvbnm"
N_LABELS, N_UNSEEN = 30, 4  # of which the last have no rows


def topic(i):
    """A word of the name of label i, which has no prefix in common with other words."""
    return f"{LETTERS[i % 26]}{LETTERS[i // 26]}topic"


def subject(i):
    """The other word of the name."""
    return f"{LETTERS[i // 26]}{LETTERS[i % 26]}subject"


def label_texts():
    """The texts of each label: its name of two words, and a synonym of every third."""
    return [[f"{topic(i)} {subject(i)}", *([f"synonym{i}"] if i % 3 == 0 else [])] for i in range(N_LABELS)]


def corpus(n=300, seed=0, unseen=False):
    """Texts of one or two labels; a text has one word of each label's name, and others."""
    rng = np.random.default_rng(seed)
    first, last = (N_LABELS - N_UNSEEN, N_LABELS) if unseen else (0, N_LABELS - N_UNSEEN)
    texts, labels = [], []
    for _ in range(n):
        own = sorted(set(rng.integers(first, last, rng.integers(1, 3)).tolist()))
        words = [(topic if rng.random() < 0.5 else subject)(i) for i in own] + [
            f"word{i}" for i in rng.integers(0, 40, 4)
        ]
        texts.append(" ".join(rng.permutation(words)))
        labels.append(own)
    return texts, labels


def split(**options):
    texts, labels = corpus(**options)
    no_features = from_arrays(np.empty(0, np.float32), np.empty(0), np.zeros(len(texts) + 1), (len(texts), 0))
    return hb.Split(no_features, from_label_ids(labels, N_LABELS), texts)


@functools.cache
def model(**options):
    config = hb.ModelConfig(text=True, l2=1.0, knn_weight=0.5, **options)
    names = [texts[0] for texts in label_texts()]
    return hb.learn(split(), config, label_names=names, label_texts=label_texts())
