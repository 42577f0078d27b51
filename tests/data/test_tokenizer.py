"""The tokenizer against a simple one, and word vectors from valid and invalid files."""

import gzip
import json
import lzma
import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import holobind as hb
from holobind.data import cache as token_cache
from holobind.data import tokenizer as module
from holobind.data.batches import TokenExamples
from holobind.data.tokenizer import Tokenizer, load_word_vectors

TEXTS = [
    "The cat sat on the mat; the MAT sat still.",
    "A dog, a cat -- and os_path.join(a, b)!",
    "Naïve cafés: ﬁne \uff12 2",
    "",
    "... !?",
]
kinds = pytest.mark.parametrize("kind", ["word", "bpe"])


def words(text):
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).lower())


def rows(examples):
    return [ids.tolist() for ids in np.split(examples.ids, examples.offsets[1:-1])]


def test_tokens_are_the_most_frequent_words_and_0_and_1_are_special():
    counts = Counter(word for text in TEXTS for word in words(text))
    tokenizer = Tokenizer.train(TEXTS, min_count=2)
    assert tokenizer.tokens[:2] == ["[PAD]", "[UNK]"]
    assert set(tokenizer.tokens[2:]) == {word for word, count in counts.items() if count >= 2}
    assert [counts[word] for word in tokenizer.tokens[2:]] == sorted(
        (c for c in counts.values() if c > 1), reverse=True
    )
    assert Tokenizer.train(TEXTS, vocab_size=5).tokens == tokenizer.tokens[:5]
    assert tokenizer.vocab_size == len(tokenizer.tokens)


@given(st.lists(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"])), max_size=5))
def test_encode_gives_the_id_of_each_word(texts):
    tokenizer = Tokenizer.train([*TEXTS, *texts], min_count=1)
    token_ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    expected = [[token_ids.get(word, 1) for word in words(text)] for text in texts]
    found = rows(tokenizer.encode(texts)) if texts else []
    # Python and the library may have different versions of Unicode, so only ASCII texts are compared.
    assert [row for text, row in zip(texts, found, strict=True) if text.isascii()] == [
        row for text, row in zip(texts, expected, strict=True) if text.isascii()
    ]
    assert all(0 < token < tokenizer.vocab_size for row in found for token in row)


def test_words_outside_ascii_are_not_split_and_are_normalised():
    tokenizer = Tokenizer.train(TEXTS, min_count=1)
    assert [tokenizer.tokens[i] for i in rows(tokenizer.encode(TEXTS))[2]] == words(TEXTS[2])
    assert words(TEXTS[2]) == ["naïve", "cafés", "fine", "2", "2"]
    decomposed = unicodedata.normalize("NFD", TEXTS[2])
    assert rows(tokenizer.encode([decomposed])) == rows(tokenizer.encode([TEXTS[2]]))


@kinds
def test_a_text_that_spells_a_special_token_does_not_get_it(kind):
    tokenizer = Tokenizer.train(["[PAD] [UNK] [pad] pad unk"] * 3, kind, lowercase=False)
    found = rows(tokenizer.encode(["[PAD] [UNK] pad"]))[0]
    assert 0 not in found
    assert 1 not in found


@kinds
def test_case_can_be_kept(kind):
    kept, lower = (Tokenizer.train(["Cat cat CAT"] * 2, kind, lowercase=low) for low in (False, True))
    same = rows(lower.encode(["CAT", "cat"]))
    assert same[0] == same[1]
    different = rows(kept.encode(["CAT", "cat"]))
    assert different[0] != different[1]


def test_with_byte_pairs_no_word_is_unknown_and_word_starts_are_marked():
    tokenizer = Tokenizer.train(TEXTS * 3, kind="bpe", vocab_size=300)
    assert tokenizer.vocab_size == 300
    found = rows(tokenizer.encode(["zebra œuvre 猫", "foot ball", "football", ""]))
    assert all(token > 1 for row in found for token in row)
    assert found[1] != found[2]
    assert found[3] == []


@kinds
def test_long_texts_are_truncated_to_max_tokens(kind):
    tokenizer = Tokenizer.train(TEXTS, kind)
    whole = rows(tokenizer.encode(TEXTS))
    assert rows(tokenizer.encode(TEXTS, max_tokens=3)) == [row[:3] for row in whole]


def test_texts_are_encoded_together_as_one_by_one(monkeypatch):
    monkeypatch.setattr(module, "TEXTS_PER_CHUNK", 2)
    tokenizer = Tokenizer.train(TEXTS)
    together = tokenizer.encode(TEXTS)
    assert rows(together) == [rows(tokenizer.encode([text]))[0] for text in TEXTS]
    assert together.ids.dtype == np.int32
    assert together.offsets.dtype == np.int64
    assert len(tokenizer.encode([])) == 0


@kinds
def test_a_tokenizer_is_read_back_from_its_json(kind):
    tokenizer = Tokenizer.train(TEXTS * 3, kind, vocab_size=290, lowercase=False)
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    assert rows(again.encode(TEXTS)) == rows(tokenizer.encode(TEXTS))


VALID = {"kind": "bpe", "lowercase": True, "tokens": ["[PAD]", "[UNK]", "a", "b", "ab"], "merges": [["a", "b"]]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        "[" * 100_000,
        *(json.dumps({key: value for key, value in VALID.items() if key != name}) for name in VALID),
        *(
            json.dumps({**VALID, **change})
            for change in (
                {"kind": "pickle"},
                {"kind": ["bpe"]},
                {"lowercase": 1},
                {"tokens": "[PAD]"},
                {"tokens": 5},
                {"tokens": []},
                {"tokens": ["[UNK]", "[PAD]", "a", "b", "ab"]},
                {"tokens": [*VALID["tokens"], "a"]},
                {"tokens": [*VALID["tokens"], ""]},
                {"tokens": [*VALID["tokens"], None]},
                {"tokens": [*VALID["tokens"], ["a"]]},
                {"tokens": [*VALID["tokens"], "\ud800"]},
                {"merges": [["a"]]},
                {"merges": ["ab"], "kind": "word"},
                {"merges": [["a", "x"]]},
                {"merges": [["b", "a"]]},
                {"merges": [[1, 2]]},
                {"merges": [[["a"], "b"]]},
                {"merges": 3},
            )
        ),
    ],
    ids=lambda text: text[:70],
)
def test_json_that_is_not_a_tokenizer_is_refused_in_one_line(text):
    with pytest.raises(hb.FileError, match="the tokenizer in this file is damaged, or not one of holobind's") as caught:
        Tokenizer.from_json(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_the_unchanged_json_of_that_test_is_valid():
    assert rows(Tokenizer.from_json(json.dumps(VALID)).encode(["ab"]))[0][-1] == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tokenizer.train("one text"), "pass \\[text\\]"),
        (lambda: Tokenizer.train(TEXTS, kind="char"), "kind must be one of 'word', 'bpe'; got 'char'"),
        (lambda: Tokenizer.train(TEXTS, vocab_size=2), "vocab_size must be at least 3, got 2"),
        (lambda: Tokenizer.train(TEXTS, min_count=0), "min_count must be at least 1, got 0"),
        (lambda: Tokenizer.train(["a", 5]), "text 1 is int, not a string"),
        (lambda: Tokenizer.train(TEXTS).encode(["a", "b\ud800"]), "text 1 has half a surrogate pair"),
        (lambda: Tokenizer.train(TEXTS).encode(TEXTS, max_tokens=0), "max_tokens must be at least 1, got 0"),
    ],
)
def test_invalid_arguments_are_errors(call, message):
    with pytest.raises(hb.HolobindError, match=message):
        call()


def test_tokens_are_cached_by_texts_and_tokenizer(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLOBIND_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "MIN_CHARACTERS_TO_CACHE", 1)
    tokenizer, other = Tokenizer.train(TEXTS), Tokenizer.train(TEXTS, vocab_size=4)
    expected = rows(tokenizer.encode(TEXTS))
    assert not list(tmp_path.rglob("*.cache"))
    assert rows(tokenizer.encode(TEXTS, cache=True)) == expected
    assert len(list(tmp_path.rglob("*.cache"))) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "_encode", None)
        assert rows(tokenizer.encode(list(TEXTS), cache=True)) == expected
    for changed in ([*TEXTS, "x"], [TEXTS[0] + TEXTS[1], *TEXTS[2:]], TEXTS[::-1]):
        assert rows(tokenizer.encode(changed, cache=True)) == rows(tokenizer.encode(changed))
    assert rows(other.encode(TEXTS, cache=True)) == rows(other.encode(TEXTS))
    assert rows(tokenizer.encode(TEXTS, max_tokens=2, cache=True)) == rows(tokenizer.encode(TEXTS, max_tokens=2))
    for file in tmp_path.rglob("*.cache"):
        data = bytearray(file.read_bytes())
        data[-9] ^= 1
        file.write_bytes(data)
    assert rows(tokenizer.encode(TEXTS, cache=True)) == expected
    monkeypatch.setattr(token_cache, "cache_dir", lambda: tmp_path / "file")
    (tmp_path / "file").touch()
    assert rows(tokenizer.encode(TEXTS, cache=True)) == expected  # a cache that cannot be written is not an error


@pytest.fixture
def tokenizer():
    return Tokenizer(["[PAD]", "[UNK]", "cat", "dog", "emu"])


VECTORS = "cat 0.5 -1 2e-1\nzebra 9 9 9\ndog 1 2 3\n"


def check(found):
    assert found.shape == (5, 3)
    assert found.dtype == torch.float32
    assert found[2].tolist() == pytest.approx([0.5, -1, 0.2])
    assert found[3].tolist() == [1, 2, 3]
    assert not found[0].any()
    assert found[[1, 4]].abs().min() > 0
    assert found[[1, 4]].abs().max() < 0.5


@pytest.mark.parametrize("header", ["", "3 3\n", "3\t3\r\n"], ids=repr)
@pytest.mark.parametrize("compression", [None, gzip, lzma], ids=["none", "gz", "xz"])
@pytest.mark.parametrize("change", [str, lambda s: s.replace("\n", " \n"), lambda s: s.replace(" ", "\t")])
def test_word_vectors_are_read_from_every_format(tokenizer, tmp_path, header, compression, change):
    path = tmp_path / {None: "v.txt", gzip: "v.vec.gz", lzma: "v.xz"}[compression]
    data = (header + change(VECTORS)).encode()
    path.write_bytes(compression.compress(data) if compression else data)
    check(load_word_vectors(path, tokenizer))
    check(load_word_vectors(path, tokenizer, dim=3))


def test_vectors_of_words_that_are_not_in_the_file_depend_on_the_seed(tokenizer, tmp_path):
    (tmp_path / "v").write_text(VECTORS)
    first, same, other = (load_word_vectors(tmp_path / "v", tokenizer, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first[4], other[4])


def test_a_word_in_the_same_case_wins_and_then_the_first_in_the_file(tokenizer, tmp_path):
    (tmp_path / "v").write_text("CAT 1\nCat 2\ncat 3\ncat 4\nDog 5\nDOG 6\n")
    found = load_word_vectors(tmp_path / "v", tokenizer, dim=1)
    assert found[2:4, 0].tolist() == [3, 5]
    cased = Tokenizer(tokenizer.tokens, lowercase=False)
    assert load_word_vectors(tmp_path / "v", cased, dim=1)[2].item() == 3
    assert load_word_vectors(tmp_path / "v", cased, dim=1)[3].abs().item() < 0.5


def test_words_of_the_file_may_contain_spaces(tokenizer, tmp_path):
    (tmp_path / "v").write_text(VECTORS + "at name@domain.com 1 2 3\n. . . 1 2 3\n\n")
    check(load_word_vectors(tmp_path / "v", tokenizer))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("cat 1 2 3\nzebra 1 2\n", r"v:2: expected a word and 3 numbers, found 3 fields: 'zebra 1 2'"),
        ("cat 1 2 3\nzebra 1 2 3 4\n", r"v:2: expected a word and 3 numbers, found 5 fields"),
        ("cat 1 2 3\ndog 1 x 3\n", r"v:2: 'x' is not a number; expected a word and 3 numbers"),
        ("cat 1 2 3\ndog 1 nan 3\n", r"v:2: expected a word and 3 finite numbers, found 'dog 1 nan 3'"),
        ("cat 1 2 3\ndog 1 1e99 3\n", r"v:2: expected a word and 3 finite numbers"),
        ("cat 1 2 3\ndog 1  3\n", r"v:2: expected a word and 3"),
        ("2 3\ncat 1 2 3\n\ndog 1 2\n", r"v:4: expected a word and 3 numbers"),
        ("2 3\ncat 1 2\n", r"v:2: expected a word and 3 numbers"),
        ("cat\ndog\n", r"v:1: expected a word and its numbers, found 1 fields: 'cat'"),
        ("2 0\ncat\n", r"v:2: expected a word and its numbers"),
        ("\0\1\2 " * 400_000, r"v:1: the line has 1048576 bytes or more; are these vectors in text format\?"),
        ("zebra 1 2 3\n", r"v: has none of the tokenizer's 3 words; is it of the same language\?"),
        ("", r"v: has none of the tokenizer's 3 words"),
    ],
)
def test_a_malformed_line_is_an_error_with_its_number(tokenizer, tmp_path, lines, message):
    (tmp_path / "v").write_text(lines)
    with pytest.raises(hb.DataError, match=message) as caught:
        load_word_vectors(tmp_path / "v", tokenizer)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_files_that_cannot_be_read_are_errors(tokenizer, tmp_path):
    with pytest.raises(hb.DataError, match="No such file"):
        load_word_vectors(tmp_path / "v", tokenizer)
    (tmp_path / "v.gz").write_text(VECTORS)
    with pytest.raises(hb.DataError, match=r"v\.gz"):
        load_word_vectors(tmp_path / "v.gz", tokenizer)
    many = "".join(f"word{i} 1 2 3\n" for i in range(5000)) + VECTORS
    for name, compression in (("v.gz", gzip), ("v.xz", lzma)):
        (tmp_path / name).write_bytes(compression.compress(many.encode())[:-20])
        with pytest.raises(hb.DataError, match=f"{name}:\\d+: the .* data is damaged or ends too early"):
            load_word_vectors(tmp_path / name, tokenizer)
    (tmp_path / "v").write_text("3 3\n" + VECTORS)
    with pytest.raises(hb.DataError, match="v:1: the vectors have 3 dimensions, not 5"):
        load_word_vectors(tmp_path / "v", tokenizer, dim=5)
    with pytest.raises(hb.OptionError, match="train the tokenizer with kind='word'"):
        load_word_vectors(tmp_path / "v", Tokenizer.train(TEXTS, kind="bpe"))


def test_encode_gives_the_examples_that_networks_accept():
    assert isinstance(Tokenizer.train(TEXTS).encode(TEXTS), TokenExamples)
