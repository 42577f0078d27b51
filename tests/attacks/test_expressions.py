"""Statements as an attacker would write them: each has a finite vector and finite answers, or an error of one line."""

import math
import random

import pytest

import holobind as hb
from holobind.errors import HolobindError, OptionError

N_STATEMENTS = 3000
SYSTEMS = ("unitary-hrr", "hrr-exact", "vtb", "map-c-exact")
PIECES = [
    *("a", "b", "red", "30", "0", "1e40", "ß", "名"),
    *("0.5", "1.0e20", "3.0e38", "1.0e40", "1.0e400", "1.0e-40", "0.0", ".5", f"{'9' * 5000}.0"),
    *("*", "*", "*", "+", "-", "~", "(", ")", "⊗", " ", "\n"),
    *('"a b"', '""', '"\udcff"', '"\x01"', "'", '"', "\udcff", "\x00", "_", "x" * 2000),
]


def random_statement(draw):
    """Pieces in any order, or, half of the time, in the order of the grammar."""
    if draw.random() < 0.5:
        return "".join(draw.choices(PIECES, k=draw.randint(0, 12)))
    terms = ("*".join(draw.choices(PIECES[:17], k=draw.randint(1, 4))) for _ in range(draw.randint(1, 4)))
    return draw.choice(("+", "-")).join(terms)


def test_random_statements_are_finite_or_refused_in_one_line():
    draw = random.Random(20)
    outcomes = {"answered": 0, "refused": 0}
    for number in range(N_STATEMENTS):
        text = random_statement(draw)
        vocabulary = hb.Vocabulary(16, vsa=SYSTEMS[number % len(SYSTEMS)])
        try:
            vector = vocabulary.parse(text)
            answers = vocabulary.ask(vector, next(iter(vocabulary)), 2)
        except HolobindError as error:
            assert "\n" not in str(error), repr(text)
            outcomes["refused"] += 1
        else:
            values = [value for answer in answers for value in (answer.similarity, answer.response, answer.confidence)]
            assert vector.isfinite().all() and all(map(math.isfinite, values)), repr(text)
            outcomes["answered"] += 1
    assert min(outcomes.values()) > N_STATEMENTS / 10, outcomes


@pytest.mark.parametrize("weight", ["1.0e39", "1.0e400", "1.0e30*1.0e30", f"{'9' * 400}.0"])
def test_a_weight_beyond_float32_is_refused(weight):
    vocabulary = hb.Vocabulary(16)
    with pytest.raises(HolobindError, match=r"a weight must be at most 3.4e\+38"):
        vocabulary.parse(f"{weight}*a*b")
    assert len(vocabulary) == 0  # nothing was created


def test_a_response_that_is_not_finite_is_refused():
    vocabulary = hb.Vocabulary(16)
    for statement, part in (("1.0e30*a*b", "1.0e-30*a*b"), ("a*b", "a - a")):
        with pytest.raises(OptionError, match="is not finite"):
            vocabulary.response(statement, part)


def test_a_refused_name_is_not_created():
    vocabulary = hb.Vocabulary(16)
    for name in ("\udcff", "\x1b[31m", "", "x" * 1001):
        with pytest.raises(OptionError, match="printable characters"):
            vocabulary[name]
    assert len(vocabulary) == 0


@pytest.mark.parametrize("dim", [10**12, 10**40, 10**5000], ids=["a trillion", "beyond int64", "beyond str"])
def test_vectors_beyond_memory_are_refused_before_they_are_made(dim):
    with pytest.raises(OptionError, match="take a smaller dim"):
        hb.Vocabulary(dim)


@pytest.mark.parametrize("seed", [2**63, -(2**63), 10**5000], ids=["large", "negative", "beyond str"])
def test_a_seed_that_no_generator_takes_is_refused(seed):
    with pytest.raises(OptionError, match="seed must be a whole number"):
        hb.Vocabulary(16, seed)
