"""Statements as text: `first*(name*Jane + age*30) - 0.5*~red`, read by a small parser and never by eval.

    sum     =  ["-"] product (("+" | "-") product)*
    product =  factor ("*" factor)*
    factor  =  "~" factor  |  "(" sum ")"  |  name  |  "quoted name"  |  weight

A name is letters, digits and underscores, not starting with an underscore; anything else goes in quotes. A number
with a decimal point is a weight; a whole number is a name, as in age*30. The sign ⊗ is read as *.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from holobind.errors import ExpressionError
from holobind.symbols.vsa import VSA

MOST_CHARACTERS = 100_000
MOST_NESTED = 100

_TOKEN = re.compile(
    r"""\s*(?:(?P<weight>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<name>[^\W_]\w*)|(?P<quoted>"[^"\n]*"|'[^'\n]*')"""
    r"""|(?P<sign>[-+*~()⊗])|(?P<end>$)|(?P<wrong>.))""",
    re.DOTALL,
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int


def evaluate(text: str, symbol: Callable[[str], Tensor], system: VSA) -> Tensor:
    """The vector of a statement, with `symbol(name)` for its names and `system` for its products."""
    if len(text) > MOST_CHARACTERS:
        raise ExpressionError(f"the statement has {len(text):,} characters; at most {MOST_CHARACTERS:,} are read")
    return _Parser(text, symbol, system).statement()


def names(text: str) -> list[str]:
    """The names a statement mentions, in order, each once. The text is not otherwise checked."""
    found = (token for token in _tokens(text[:MOST_CHARACTERS]) if token.kind in ("name", "quoted"))
    return list(dict.fromkeys(_plain(token) for token in found))


class _Parser:
    """Recursive descent; every value is a vector times a weight, and a bare weight has no vector."""

    def __init__(self, text: str, symbol: Callable[[str], Tensor], system: VSA) -> None:
        self.text, self.symbol, self.system = text, symbol, system
        self.tokens = _tokens(text)
        self.at = 0
        self.nested = 0

    def statement(self) -> Tensor:
        total = self._sum()
        if self._next.kind != "end":
            raise self._error("expected +, -, * or the end")
        return total

    @property
    def _next(self) -> _Token:
        return self.tokens[self.at]

    def _take(self, *signs: str) -> bool:
        taken = self._next.kind == "sign" and self._next.text in signs
        self.at += taken
        return taken

    def _sum(self) -> Tensor:
        total = -self._product() if self._take("-") else self._product()
        while True:
            if self._take("+"):
                total = total + self._product()
            elif self._take("-"):
                total = total - self._product()
            else:
                return total

    def _product(self) -> Tensor:
        weight, vector, start = 1.0, None, self._next
        while True:
            factor = self._factor()
            if isinstance(factor, float):
                weight *= factor
            else:
                vector = factor if vector is None else self.system.bind(vector, factor)
            if not self._take("*", "⊗"):
                break
        if vector is None:
            raise self._error("a weight must multiply a name; a whole number without a point is a name", start)
        return vector if weight == 1.0 else weight * vector

    def _factor(self) -> Tensor | float:
        token = self._next
        if token.kind == "weight":
            self.at += 1
            return float(token.text)
        if token.kind in ("name", "quoted"):
            self.at += 1
            return self.symbol(_plain(token))
        self.nested += 1
        if self.nested > MOST_NESTED:
            raise self._error(f"more than {MOST_NESTED} brackets or ~ inside each other")
        if self._take("~"):
            inverted = self._factor()
            if isinstance(inverted, float):
                raise self._error("~ inverts a name or a bracket, not a weight", token)
            value = self.system.invert(inverted)
        elif self._take("("):
            value = self._sum()
            if not self._take(")"):
                raise self._error(f"expected ) for the ( at position {token.position + 1}")
        else:
            raise self._error("expected a name, a number, ~ or (")
        self.nested -= 1
        return value

    def _error(self, expected: str, token: _Token | None = None) -> ExpressionError:
        token = token or self._next
        found = f"'{token.text[:20]}'" if token.text else "the end"
        around = self.text[max(0, token.position - 20) : token.position + 20].replace("\n", " ")
        return ExpressionError(f'position {token.position + 1}: {expected}, found {found} near "{around.strip()}"')


def _plain(token: _Token) -> str:
    return token.text[1:-1] if token.kind == "quoted" else token.text


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "wrong"
        found.append(_Token(kind, match[kind], match.start(kind)))
        if kind == "end":
            break
    return found
