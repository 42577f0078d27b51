"""Analyzers: the features of runs of characters, against their definition, in many scripts."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holobind.data.analyzers import choose_analyzer, features, n_words, runs

SCRIPTS = "abz 09_.äß ひらカナ漢字茶の本 ก็ที่ ភាសា မြန်မာ हिन्दी العَرَبِ é한국어"
texts = st.text(st.sampled_from(SCRIPTS), max_size=40)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Cooking an Egg_a", ["cooking", "cook*", "an", "egg"]),
        ("紅茶の本", ["紅", "茶", "の", "本", "紅茶", "茶の", "の本", "紅茶の", "茶の本"]),
        ("Python入門!", ["python", "pyth*", "入", "門", "入門"]),
        ("茶", ["茶"]),
        ("हिन्दी भाषा", ["हिन्दी", "हिन्*", "भाषा", "भाषा*"]),
        ("ที่นี่", [*["ที", "ี่", "่น", "นี", "ี่"], *["ที่", "ี่น", "่นี", "นี่"], *["ที่น", "ี่นี", "่นี่"], *["ที่นี", "ี่นี่"]]),
        ("\uff21\uff22\uff23 ｶﾅ", ["abc", "カ", "ナ", "カナ"]),
        ("cafe\u0301 café", ["café", "café*", "café", "café*"]),
        ("한국어는 x", ["한국어는", "한국어는*"]),
    ],
)
def test_features_of_words(text, expected):
    assert [feature for run in runs(text, "word") for feature in features(run, "word")] == expected


def test_features_of_characters():
    found = [feature for run in runs("Egg a 茶葉", "char") for feature in features(run, "char")]
    assert found == [" eg", "egg", "gg ", " egg", "egg ", " egg ", " a ", "茶", "葉", "茶葉"]


def test_plain_words_are_cut_at_marks_as_scikit_learn_cuts_them():
    assert runs("कक हि naïve_茶茶", "plain") == ["कक", "naïve", "茶茶"]
    assert features("naïve", "plain") == ["naïve"]


@given(texts, st.sampled_from(["word", "char"]))
def test_a_text_has_the_same_features_in_every_unicode_form(text, analyzer):
    def found(form):
        return [features(run, analyzer) for run in runs(unicodedata.normalize(form, text), analyzer)]

    assert found("NFC") == found("NFD") == found("NFKC") == found("NFKD")


@given(texts, st.sampled_from(["word", "char", "plain"]))
def test_no_feature_has_a_line_break_or_an_underscore(text, analyzer):
    for run in runs(text, analyzer):
        assert n_words(run, analyzer) >= (analyzer != "word")
        assert all(feature and not {"\n", "_"} & {*feature} for feature in features(run, analyzer))


@pytest.mark.parametrize(
    ("texts", "analyzer"),
    [
        (["How much does potato starch affect a cheese sauce recipe?"], "word"),
        (["Donaudampfschifffahrtsgesellschaftskapitän und Rindfleischetikettierung sind lange Wörter"], "word"),
        (["howmuchdoespotatostarchaffectacheesesaucerecipe", "why"], "char"),
        (["紅茶の本を読むことが好きな人のための入門書"], "word"),
        ([], "word"),
        (["", "!"], "word"),
    ],
)
def test_words_that_are_too_long_are_cut_into_characters(texts, analyzer):
    assert choose_analyzer(texts) == analyzer


def test_a_run_without_blanks_counts_as_several_words():
    assert [n_words(run, "word") for run in ("a", "tea", "茶", "茶葉入門", "ภาษาไทยง่ายมาก")] == [0, 1, 1, 2, 2]
    assert n_words("x" * 40, "char") == 8
