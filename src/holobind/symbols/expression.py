"""Statements as text, such as `first*(name*Jane + age*30) - 0.5*~red`, read by a small parser and never by eval.

    sum     =  ["-"] product (("+" | "-") product)*
    product =  factor ("*" factor)*
    factor  =  "~" factor  |  "(" sum ")"  |  name  |  "quoted name"  |  weight

A name consists of letters, digits and underscores, and does not start with an underscore. Any other name is quoted. A
number with a decimal point is a weight; a whole number is a name, as in age*30. The sign ⊗ is read as *.

The text is parsed into a tree before any name is looked up, so a statement with a syntax error creates no names.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from torch import Tensor

from holobind import algebra
from holobind.errors import ExpressionError
from holobind.symbols.vsa import VSA

MAX_CHARACTERS = 100_000
MAX_NESTING = 100  # of brackets and ~
MAX_WEIGHT = 3.4e38  # the largest float32, about
MAX_EXPANDED_FACTORS = 1_000_000  # in all products of a statement whose brackets are multiplied out

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


@dataclass(frozen=True)
class Name:
    text: str


@dataclass(frozen=True)
class Inverse:
    operand: "Factor"


@dataclass(frozen=True)
class Product:
    """weight * (((f1 * f2) * f3) * ...): binding is evaluated from left to right."""

    weight: float
    factors: "tuple[Factor, ...]"


@dataclass(frozen=True)
class Sum:
    """Products; the second element of a term is True if it is subtracted."""

    terms: tuple[tuple[Product, bool], ...]


Factor: TypeAlias = Name | Inverse | Sum


def parse(text: str) -> Sum:
    """The tree of a statement; an ExpressionError with the position if the text is not in the grammar."""
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"the statement has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed")
    return _Parser(text).statement()


def evaluate(text: str, symbol: Callable[[str], Tensor], system: VSA) -> Tensor:
    """The vector of a statement: `symbol(name)` gives the vector of a name, `system` binds and inverts."""

    def of_sum(node: Sum) -> Tensor:
        first, subtracted = node.terms[0]
        total = -of_product(first) if subtracted else of_product(first)
        for product, subtracted in node.terms[1:]:
            total = total - of_product(product) if subtracted else total + of_product(product)
        return total

    def of_product(node: Product) -> Tensor:
        vector = reduce(system.bind, map(of_factor, node.factors))
        return vector if node.weight == 1.0 else node.weight * vector

    def of_factor(node: Factor) -> Tensor:
        match node:
            case Name(name):
                return symbol(name)
            case Inverse(operand):
                return system.invert(of_factor(operand))
            case Sum():
                return of_sum(node)

    return algebra.finite("the vector of the statement", of_sum(parse(text)))


def names(text: str) -> list[str]:
    """The names in a statement, in order, each once. The text is not otherwise checked."""
    tokens = (token for token in _tokens(text[:MAX_CHARACTERS]) if token.kind in ("name", "quoted"))
    return list(dict.fromkeys(_unquoted(token) for token in tokens))


def is_only_left_operand(statement: str, key: str) -> bool:
    """Whether names of `key` occur in the products of `statement`, but `key` is the right operand of none of them.

    Where binding does not commute, such a key cannot be unbound. Brackets are multiplied out: in a*(b + c*d) the right
    operands are b and c*d; in a*b*c, which is (a*b)*c, the only right operand is c. False if it cannot be decided,
    because a whole product is inverted or there are too many products.
    """
    right: set[_Expanded] = set()
    bound_names: set[str] = set()
    try:
        for product in _bound_products(parse(statement)):
            right.update(_expand(product.factors[-1]))
            bound_names.update(_names_of(product))
        wanted = _expand(parse(key))
    except _UndecidedError:
        return False
    return not bound_names.isdisjoint(names(key)) and right.isdisjoint(wanted)


class _Parser:
    """Recursive descent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.nesting = 0

    def statement(self) -> Sum:
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

    def _sum(self) -> Sum:
        subtracted = self._take("-")
        terms = [(self._product(), subtracted)]
        while True:
            if self._take("+"):
                terms.append((self._product(), False))
            elif self._take("-"):
                terms.append((self._product(), True))
            else:
                return Sum(tuple(terms))

    def _product(self) -> Product:
        weight, start = 1.0, self._next
        factors: list[Factor] = []
        while True:
            factor = self._factor()
            if isinstance(factor, float):
                weight *= factor
                if weight > MAX_WEIGHT:
                    raise self._error(f"a weight must be at most {MAX_WEIGHT:g}", start)
            else:
                factors.append(factor)
            if not self._take("*", "⊗"):
                break
        if not factors:
            raise self._error("a weight must multiply a name; a whole number without a point is a name", start)
        return Product(weight, tuple(factors))

    def _factor(self) -> Factor | float:
        token = self._next
        if token.kind == "weight":
            self.at += 1
            return float(token.text)
        if token.kind in ("name", "quoted"):
            self.at += 1
            return Name(_unquoted(token))
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self._error(f"more than {MAX_NESTING} brackets or ~ inside each other")
        value: Factor
        if self._take("~"):
            operand = self._factor()
            if isinstance(operand, float):
                raise self._error("~ inverts a name or a bracket, not a weight", token)
            value = Inverse(operand)
        elif self._take("("):
            value = self._sum()
            if not self._take(")"):
                raise self._error(f"expected ) for the ( at position {token.position + 1}")
        else:
            raise self._error("expected a name, a number, ~ or (")
        self.nesting -= 1
        return value

    def _error(self, expected: str, token: _Token | None = None) -> ExpressionError:
        token = token or self._next
        found = f"'{token.text[:20]}'" if token.text else "the end"
        around = self.text[max(0, token.position - 20) : token.position + 20].replace("\n", " ")
        return ExpressionError(f'position {token.position + 1}: {expected}, found {found} near "{around.strip()}"')


# An expanded product is a name, ("~", operand) or ("*", factor, factor, ...). Weights and signs are dropped.
_Expanded: TypeAlias = "str | tuple[_Expanded, ...]"


class _UndecidedError(Exception):
    """The right operands cannot be listed."""


def _bound_products(node: Factor) -> Iterator[Product]:
    """The products of at least two factors among the terms of a sum, also in brackets."""
    match node:
        case Sum(terms):
            for product, _ in terms:
                if len(product.factors) > 1:
                    yield product
                else:
                    yield from _bound_products(product.factors[0])
        case Inverse(Sum() | Inverse()):
            raise _UndecidedError


def _names_of(node: Product | Factor) -> Iterator[str]:
    match node:
        case Name(name):
            yield name
        case Inverse(operand):
            yield from _names_of(operand)
        case Product(_, factors):
            for factor in factors:
                yield from _names_of(factor)
        case Sum(terms):
            for product, _ in terms:
                yield from _names_of(product)


def _expand(node: Factor) -> set[_Expanded]:
    """All products of a factor whose brackets are multiplied out."""
    match node:
        case Name(name):
            return {name}
        case Inverse(Name(name)):
            return {("~", name)}
        case Sum(terms):
            return set().union(*(_expand_product(product) for product, _ in terms))
    raise _UndecidedError  # how the inverse of a product is a product depends on the system


def _expand_product(node: Product) -> set[_Expanded]:
    factors = [_expand(factor) for factor in node.factors]
    size = len(factors)
    for choices in factors:
        size *= len(choices)
        if size > MAX_EXPANDED_FACTORS:
            raise _UndecidedError
    if len(factors) == 1:
        return factors[0]
    return {("*", *_factors(first), *others) for first, *others in itertools.product(*factors)}


def _factors(product: _Expanded) -> tuple[_Expanded, ...]:
    return product[1:] if isinstance(product, tuple) and product[0] == "*" else (product,)


def _unquoted(token: _Token) -> str:
    return token.text[1:-1] if token.kind == "quoted" else token.text


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "wrong"
        found.append(_Token(kind, match[kind], match.start(kind)))
        if kind == "end":
            break
    return found
