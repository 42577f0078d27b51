"""Tf-idf features of texts, against their definition."""

import re
from collections import Counter
from math import log

import numpy as np
import pytest
from helpers.twins import identical
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from holobind.data import Tfidf
from holobind.data import tfidf as module
from holobind.errors import OptionError

WORDS = [
    "Cooking",
    "cooked",
    "cook",
    "COOKS_well",
    "coo",
    "Öl",
    "ölig",
    "öliges",
    "a",
    "2024",
    "20245",
    "_the_",
    "end.",
]
documents = st.lists(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), max_size=12)


def features_by_definition(text):
    """The features of a text with their counts."""
    counts = Counter()
    found = re.findall(r"[^\W_]{2,}", text.lower())
    for place, word in enumerate(found):
        times = 4 if len(found) >= 32 and place < 8 else 1
        counts[word] += times
        if len(word) >= 4:
            counts[word[:4] + "*"] += times
    return counts


def fit_by_definition(texts, max_features=40_000):
    """(words, idf, dense rows) of texts."""
    counted = [features_by_definition(text) for text in texts]
    df = Counter(name for counts in counted for name in counts)
    min_df = 2 if any(n >= 2 for n in df.values()) else 1
    names = sorted(sorted((f for f in df if df[f] >= min_df), key=lambda f: (-df[f], f))[:max_features])
    idf = [(3 + log((1 + len(texts)) / (1 + df[f]))) * (0.7 if "*" in f else 1) for f in names]
    rows = np.array([[w * (1 + log(c[f])) if f in c else 0 for f, w in zip(names, idf, strict=True)] for c in counted])
    rows = rows.reshape(len(texts), len(names))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return names, np.array(idf), rows / np.where(lengths > 0, lengths, 1)


def corpus(n_texts=60, seed=0):
    """Texts of 25 to 40 words, some common and some rare."""
    generator = np.random.default_rng(seed)
    letters = np.array(list("abö3"))
    known = ["".join(generator.choice(letters, size=generator.integers(1, 9))) for _ in range(300)]
    chances = 1 / np.arange(1, 301)
    texts_of_words = [
        generator.choice(known, size=generator.integers(25, 41), p=chances / chances.sum()) for _ in range(n_texts)
    ]
    return [" ".join(text) for text in texts_of_words]


@pytest.mark.parametrize("max_features", [40_000, 100, 7])
@pytest.mark.parametrize("seed", [0, 1])
def test_features_are_those_of_the_definition(monkeypatch, max_features, seed):
    monkeypatch.setattr(module, "max_features", lambda n_texts: max_features)
    texts = corpus(seed=seed)
    names, idf, rows = fit_by_definition(texts, max_features)
    fitted, X = Tfidf.fit(texts)
    assert fitted.words == names
    np.testing.assert_allclose(fitted.idf, idf, rtol=1e-6)
    np.testing.assert_allclose(X.toarray(), rows, atol=1e-6)


def test_a_text_keeps_its_largest_features_and_with_words_only_all(monkeypatch):
    texts = corpus()
    everything, words_only = Tfidf.fit(texts)[1].toarray(), Tfidf.fit(texts, words_only=True)[1]
    monkeypatch.setattr(module, "MAX_FEATURES_PER_TEXT", 5)
    fitted, X = Tfidf.fit(texts)
    expected = np.zeros_like(everything)
    for row, found in zip(everything, expected, strict=True):
        kept = np.argsort(-row, kind="stable")[:5]
        found[kept] = row[kept] / np.linalg.norm(row[kept])
    np.testing.assert_allclose(X.toarray(), expected, atol=1e-6)
    assert identical(fitted.transform(texts), X)
    assert identical(Tfidf.fit(texts, words_only=True)[1], words_only)


def test_a_text_with_ngrams_keeps_more_features(monkeypatch):
    monkeypatch.setattr(module, "MAX_FEATURES_PER_TEXT", 2)
    monkeypatch.setattr(module, "MAX_NGRAMS_PER_TEXT", 4)
    _fitted, X = Tfidf.fit(["one two six ten", "one two six ten 紅茶葉", "紅茶葉"])
    assert np.diff(X.indptr).tolist() == [2, 4, 4]
    assert np.diff(Tfidf.fit(["one two six ten"] * 2, analyzer="char")[1].indptr).tolist() == [4, 4]


@given(documents)
def test_fit_and_transform_give_the_same_features(texts):
    fitted, X = Tfidf.fit(texts)
    assert identical(fitted.transform(texts), X)
    assert identical(Tfidf(fitted.words, fitted.idf, fitted.analyzer).transform(texts), X)


@given(documents)
def test_words_only_features_are_those_of_scikit_learn(texts):
    theirs = TfidfVectorizer(sublinear_tf=True, token_pattern=r"[^\W_]{2,}")
    texts = [*texts, "the end"]  # scikit-learn fails without any word
    rows = theirs.fit_transform(texts).toarray()
    fitted, X = Tfidf.fit(texts, words_only=True)
    assert fitted.words_only and fitted.words == theirs.get_feature_names_out().tolist()
    np.testing.assert_allclose(fitted.idf, theirs.idf_, rtol=1e-6)
    np.testing.assert_allclose(X.toarray(), rows, atol=1e-6)
    assert identical(fitted.transform(texts), X)


@pytest.mark.parametrize(("length", "repeats"), [(31, 1), (32, 4)])
def test_the_first_eight_words_count_more_in_a_long_text_only(length, repeats):
    text = " ".join(["on"] * 7 + ["fish"] + ["rice"] * (length - 8))
    fish, rice, _ = Tfidf(["fish", "rice", "rice*"], np.ones(3)).transform([text]).toarray()[0]
    assert rice / fish == pytest.approx((1 + log(length - 8)) / (1 + log(repeats)))


@pytest.mark.parametrize("size", [1, 7, 59])
@pytest.mark.parametrize("words_only", [True, False])
def test_the_size_of_chunks_does_not_matter(monkeypatch, size, words_only):
    texts = corpus()
    whole, X = Tfidf.fit(texts, words_only=words_only)
    monkeypatch.setattr(module, "TEXTS_PER_CHUNK", size)
    fitted, rows = Tfidf.fit(texts, words_only=words_only)
    assert fitted.words == whole.words and np.array_equal(fitted.idf, whole.idf)
    assert identical(rows, X) and identical(fitted.transform(texts), X)


def test_rows_are_sorted_float32_of_length_1():
    _, X = Tfidf.fit(["", *corpus()])
    assert X.dtype == np.float32 and X.indices.dtype == X.indptr.dtype == np.int32
    assert all((np.diff(X.indices[a:b]) > 0).all() for a, b in zip(X.indptr, X.indptr[1:], strict=False))
    assert np.allclose(np.linalg.norm(X.toarray(), axis=1), [0] + [1] * 60)


def test_unknown_words_are_ignored_but_their_prefixes_may_be_known():
    fitted, _ = Tfidf.fit(["cooked rice", "cooking rice"])
    assert fitted.words == ["cook*", "rice", "rice*"]
    unknown, cooks, rice, pudding = fitted.transform(["unknown words", "Cookery", "rice", "rice pudding"]).toarray()
    assert not unknown.any() and cooks.tolist() == [1, 0, 0] and np.array_equal(rice, pudding)


def test_texts_without_a_common_word_keep_all_features():
    assert Tfidf.fit(["red fish", "blue"])[0].words == ["blue", "blue*", "fish", "fish*", "red"]


@pytest.mark.parametrize("words_only", [True, False])
@pytest.mark.parametrize("texts", [[], [""], ["", "a _ !"]])
def test_texts_without_words_have_no_features(texts, words_only):
    fitted, X = Tfidf.fit(texts, words_only=words_only)
    assert fitted.words == [] and X.shape == (len(texts), 0)
    assert fitted.transform(["some words", ""]).shape == (2, 0)
    assert Tfidf.fit(["some words"], words_only=words_only)[0].transform(texts).nnz == 0


@pytest.mark.parametrize(("analyzer", "repeats"), [("word", 4), ("plain", 1)])
def test_every_word_counts_once_in_plain_features_only(analyzer, repeats):
    rows = Tfidf(["one", "two"], np.ones(2), analyzer).transform(["one " + "two " * 39]).toarray()
    assert rows[0, 1] / rows[0, 0] == pytest.approx((1 + log(32 + 7 * repeats)) / (1 + log(repeats)))


def test_ngrams_of_a_script_without_blanks_are_features_beside_words():
    texts = ["紅茶 tea", "緑茶 tea", "紅茶"]
    fitted, X = Tfidf.fit(texts)
    assert fitted.words == ["tea", "紅", "紅茶", "茶"]
    assert identical(fitted.transform(texts), X)
    assert fitted.transform(["入門紅茶の本"]).indices.tolist() == [1, 2, 3]


def test_a_long_text_of_a_script_without_blanks_has_a_lead_of_eight_words():
    fitted = Tfidf(["茶", "酒"], np.ones(2))
    row = fitted.transform(["、".join(["茶茶"] * 8 + ["酒酒"] * 24)]).toarray()[0]
    assert row[1] / row[0] == pytest.approx((1 + log(48)) / (1 + log(64)))


def test_analyzers_are_those_that_exist():
    assert Tfidf.fit(["howmuchdoespotatostarchaffectacheesesauce"] * 2)[0].analyzer == "char"
    assert Tfidf.fit(["how much does it affect"], analyzer="char")[0].analyzer == "char"
    with pytest.raises(OptionError, match="tf-idf has the analyzers word, prefix, char, plain; got 'syllable'"):
        Tfidf.fit(["a text"], analyzer="syllable")


def test_many_texts_have_more_features(monkeypatch):
    monkeypatch.setattr(module, "MIN_FEATURES_KEPT", 5)
    monkeypatch.setattr(module, "MAX_FEATURES_KEPT", 13)
    monkeypatch.setattr(module, "TEXTS_PER_FEATURE", 4)
    texts = [f"a{i}" for i in range(20)] * 2
    assert len(Tfidf.fit(texts)[0].words) == 10
    assert len(Tfidf.fit(texts[:4] * 2)[0].words) == 4 and len(Tfidf.fit(texts[:9] * 2)[0].words) == 5
    assert len(Tfidf.fit(texts * 2)[0].words) == 13


def test_an_idf_of_zero_gives_a_row_of_zeros():
    assert Tfidf(["fish"], np.zeros(1)).transform(["fish"]).toarray().tolist() == [[0]]
