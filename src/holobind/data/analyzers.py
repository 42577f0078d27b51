"""Analyzers: the features of a text before they are counted. Words and prefixes, or character n-grams.

A text is cut into runs of letters, digits and combining marks, in lower case and in Unicode's form NFKC. An analyzer
gives the features of a run:

    word    a run of two characters or more is a word: the word, and its first four letters with an asterisk, "cook*".
            Where a run is in a script that does not separate words (Chinese, Japanese, Thai, Lao, Khmer, Burmese), its
            n-grams stand for the words that nobody marked.
    prefix  as word, with four prefixes of four to seven letters: what label texts and documents are compared by
    char    the n-grams of all runs
    plain   words of two letters or digits alone, as scikit-learn cuts them; combining marks end a word

`choose_analyzer` chooses word or char from texts.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain

ANALYZERS = ("word", "prefix", "char", "plain")
PREFIX_LETTERS = 4  # letters of a prefix, which serves as a stem for any language
LABEL_PREFIX_LETTERS = (4, 5, 6, 7)  # of the analyzer "prefix"
MIN_WORD_LETTERS = 2

# Scripts that do not separate words. In the first ones a character is a syllable or a word, in the others a letter.
SYLLABLES = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
LETTERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
UNSPACED = re.compile(f"[{SYLLABLES}]+|[{LETTERS}]+")
SYLLABLE = re.compile(f"[{SYLLABLES}]")
SYLLABLE_NGRAMS = (1, 2, 3)  # lengths of n-grams; experiments/text_features.py compares them
LETTER_NGRAMS = (2, 3, 4, 5)
CHAR_NGRAMS = (3, 4, 5)  # of other scripts, with a blank at both ends of the run
SYLLABLES_PER_WORD, LETTERS_PER_WORD = 2, 5  # about; to say how long a text is

MAX_MEAN_WORD_LETTERS = 18  # words of a longer mean length are sentences whose blanks were lost

PLAIN_RUN = re.compile(r"\w{2,}")  # texts come without underscores, which is faster than excluding them


def runs(text: str, analyzer: str) -> list[str]:
    """The runs of a text; an underscore ends a run."""
    text = text.lower().replace("_", " ")
    if analyzer == "plain" or (analyzer in ("word", "prefix") and text.isascii()):
        return PLAIN_RUN.findall(text)
    if text.isascii():
        return _ascii_run().findall(text)
    return _run().findall(unicodedata.normalize("NFKC", text).lower())


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text stand; in a script that does not separate words, every character by itself."""
    spans: list[tuple[int, int]] = []
    for match in _run().finditer(text.replace("_", " ")):
        end = match.start()
        for unspaced in UNSPACED.finditer(match[0]):
            first, last = (match.start() + place for place in unspaced.span())
            spans += [(end, first)] if end < first else []
            spans += [(i, i + 1) for i in range(first, last)]
            end = last
        spans += [(end, match.end())] if end < match.end() else []
    return spans


def normal_form(word: str) -> str:
    """A word as features have it."""
    return unicodedata.normalize("NFKC", word.lower()).lower()


def is_unspaced(run: str) -> bool:
    """Whether some of it is in a script that does not separate words."""
    return not run.isascii() and UNSPACED.search(run) is not None


def features(run: str, analyzer: str) -> list[str]:
    """The features of a run, as often as it has them."""
    if analyzer == "plain":
        return [run]
    if not is_unspaced(run):
        if analyzer == "prefix":
            return _prefixes(run)
        return _ngrams(f" {run} ", CHAR_NGRAMS) if analyzer == "char" else _word(run)
    found: list[str] = []
    end = 0
    for match in UNSPACED.finditer(run):
        if between := run[end : match.start()]:
            found += features(between, analyzer)
        lengths = SYLLABLE_NGRAMS if SYLLABLE.match(match[0]) else LETTER_NGRAMS
        found += _ngrams(match[0], lengths)
        end = match.end()
    return found + (features(run[end:], analyzer) if run[end:] else [])


def n_words(run: str, analyzer: str) -> int:
    """About how many words a run stands for."""
    if analyzer == "plain":
        return 1
    if analyzer in ("word", "prefix") and not is_unspaced(run):
        return int(len(run) >= MIN_WORD_LETTERS)
    if SYLLABLE.search(run):
        return max(1, len(run) // SYLLABLES_PER_WORD)
    return max(1, len(run) // LETTERS_PER_WORD) if is_unspaced(run) or len(run) > MAX_MEAN_WORD_LETTERS else 1


def choose_analyzer(texts: Iterable[str]) -> str:
    """ "char" where words are too long to be words, else "word". Scripts that do not separate words do not count."""
    found = chain.from_iterable(runs(text, "word") for text in texts)
    n_letters = n_found = 0
    for word in found:
        if not is_unspaced(word):
            n_letters, n_found = n_letters + len(word), n_found + 1
    return "char" if n_letters > MAX_MEAN_WORD_LETTERS * n_found else "word"


def prefix(word: str) -> str:
    return word[:PREFIX_LETTERS] + "*"


def _word(run: str) -> list[str]:
    if len(run) < MIN_WORD_LETTERS:
        return []
    return [run, prefix(run)] if len(run) >= PREFIX_LETTERS else [run]


def _prefixes(run: str) -> list[str]:
    """The word, and its prefixes: a word that is shorter than a prefix has none, so that "cat" is not "cats"."""
    if len(run) < MIN_WORD_LETTERS:
        return []
    return [run, *(f"{run[:n]}*" for n in LABEL_PREFIX_LETTERS if n <= len(run))]


def _ngrams(run: str, lengths: Sequence[int]) -> list[str]:
    """The substrings of these lengths, or all of the run if it is shorter than all of them."""
    if len(run) < lengths[0]:
        return [run]
    return [run[i : i + n] for n in lengths for i in range(len(run) - n + 1)]


@cache
def _ascii_run() -> re.Pattern[str]:
    return re.compile(r"\w+")


@cache
def _run() -> re.Pattern[str]:
    """Runs of letters, digits and combining marks; Python's \\w has no marks, and cuts Hindi and Thai at vowels."""
    return re.compile(rf"[\w{''.join(_mark_ranges())}]+")


def _mark_ranges() -> Iterator[str]:
    first = None
    for code in range(0x300, 0x10000):
        if unicodedata.category(chr(code))[0] == "M":
            first = code if first is None else first
        elif first is not None:
            yield f"{chr(first)}-{chr(code - 1)}"
            first = None
    yield "\u200c-\u200d"  # joiners, inside of Persian and Indic words
