"""Names of concepts in SKOS: Turtle, its subset N-Triples, and RDF/XML. No other part of RDF is interpreted.

Of each concept the preferred, alternative and hidden labels, definitions and scope notes are read. Concepts marked as
deprecated, and what is a concept scheme or a collection, are left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from holobind.errors import DataError

SKOS = "http://www.w3.org/2004/02/skos/core#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
XML = "http://www.w3.org/XML/1998/namespace"
DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"
TYPE = f"{RDF}type"
NAMES = (f"{SKOS}prefLabel", f"{RDFS}label")  # a concept has one of them
TEXTS = (*NAMES, *(f"{SKOS}{name}" for name in ("altLabel", "hiddenLabel", "definition", "scopeNote")))
OTHER_THINGS = {f"{SKOS}{name}" for name in ("ConceptScheme", "Collection", "OrderedCollection")}
MAX_DEPTH = 100  # of nested elements and blank nodes

TOKEN = re.compile(
    r"""
    (?P<blank>[\s]+|\#[^\n]*)
  | <(?P<iri>[^<>"{}|^`\\\x00-\x20]*)>
  | (?P<string>\"\"\"(?:[^"\\]|\\.|\"(?!\"\"))*\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*'''
             |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | @(?P<at>[A-Za-z]+(?:-[A-Za-z0-9]+)*)
  | (?P<datatype>\^\^)
  | (?P<mark>[.;,\[\]()](?![0-9]))
  | (?P<word>[^\s<>"'\[\](),;\#^@]*[^\s<>"'\[\](),;\#^@.])
    """,
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f"}


class Triple(NamedTuple):
    """A statement. The language of a literal is lower case, "" for none; a resource has None."""

    subject: str
    predicate: str
    value: str
    language: str | None


def concept_texts(triples: Iterable[Triple], language: str | None = None) -> dict[str, list[str]]:
    """The texts of each concept, its preferred label first.

    language   such as "en": other languages are left out. A text without a language belongs to every language
    """
    found: dict[str, list[tuple[int, str]]] = {}
    left_out: set[str] = set()
    order = {predicate: i for i, predicate in enumerate(TEXTS)}
    for subject, predicate, value, spoken in triples:
        if not subject:
            continue
        if (predicate == TYPE and value in OTHER_THINGS) or (predicate == DEPRECATED and value in ("true", "1")):
            left_out.add(subject)
        elif predicate in order and spoken is not None and _is_in(spoken, language):
            found.setdefault(subject, []).append((order[predicate], value))
    return {
        subject: [value for _, value in sorted(texts, key=lambda text: text[0])]
        for subject, texts in found.items()
        if subject not in left_out and min(texts)[0] < len(NAMES)
    }


def _is_in(spoken: str, language: str | None) -> bool:
    return not language or not spoken or spoken.partition("-")[0] == language.lower().partition("-")[0]


def turtle_triples(text: str, path: Path) -> Iterator[Triple]:
    """The statements of a Turtle or N-Triples file. Blank nodes have no name here, so they are the subject ""."""
    prefixes: dict[str, str] = {}
    base = ""
    subject: str | None = None
    predicate: str | None = None
    literal: tuple[str, str] | None = None  # its value and language, until what follows it is known
    directive: list[str] | None = None
    datatype = False
    outer: list[tuple[str | None, str | None]] = []
    for kind, token, at in _tokens(text, path):
        if literal is not None and kind == "at":
            literal = literal[0], token.lower()
            continue
        if literal is not None and kind == "datatype":
            datatype = True
            continue
        if datatype:
            datatype = False
            continue
        if literal is not None:
            if subject and predicate:
                yield Triple(subject, predicate, *literal)
            literal = None
        if kind == "at" or (kind == "word" and token.lower() in ("prefix", "base") and subject is None):
            directive = [token.lower()]
        elif directive is not None:
            directive.append(token)
            wanted = 3 if directive[0] == "prefix" else 2
            if len(directive) == wanted:
                if directive[0] == "prefix":
                    prefixes[directive[1].removesuffix(":")] = directive[2]
                else:
                    base = directive[1]
                directive = None
        elif kind == "mark":
            if token == ".":
                if outer:
                    raise _error(text, at, path, "a blank node is not closed")
                subject = predicate = None
            elif token == ";":
                predicate = None
            elif token in "[(":
                outer.append((subject, predicate))
                if len(outer) > MAX_DEPTH:
                    raise _error(text, at, path, f"blank nodes are nested more than {MAX_DEPTH} times")
                subject, predicate = "", None if token == "[" else "()"
            elif token in "])":
                if not outer:
                    raise _error(text, at, path, f"{token!r} closes nothing")
                subject, predicate = outer.pop()
                subject = "" if subject is None else subject
        elif kind == "string":
            literal = _unescape(token), ""
        else:
            term = token if kind == "word" else _absolute(token, base)
            if kind == "word":
                term = _expand(token, prefixes, predicate is None and subject is not None, text, at, path)
            if subject is None:
                subject = "" if token.startswith("_:") else term
            elif predicate is None:
                predicate = term
            elif subject:
                yield Triple(subject, predicate, term, None)
    if subject is not None or outer or literal is not None:
        raise DataError(f"{path}: it ends within a statement; is it complete?")


def xml_triples(content: bytes, path: Path) -> Iterator[Triple]:
    """The statements of an RDF/XML file. A file that declares entities is refused: they can expand without bound."""
    found: list[Triple] = []
    parser = expat.ParserCreate(namespace_separator=" ")
    stack: list[_Element] = []

    def refuse(*_: object) -> None:
        raise DataError(f"{path}: it declares XML entities, which are not read; convert it to Turtle or N-Triples")

    def start(tag: str, attributes: dict[str, str]) -> None:
        name = _iri(tag)
        named = {_iri(key): value for key, value in attributes.items()}
        language = named.get(XML + "lang", stack[-1].language if stack else "").lower()
        if len(stack) > MAX_DEPTH:
            raise DataError(f"{path}: elements are nested more than {MAX_DEPTH} times")
        if name == f"{RDF}RDF" and not stack:
            return
        is_node = not stack or not stack[-1].is_node
        if not is_node:
            resource = named.get(f"{RDF}resource")
            if resource is not None:
                found.append(Triple(stack[-1].subject, name, resource, None))
            stack.append(_Element(False, stack[-1].subject, name, language, []))
            return
        subject = named.get(f"{RDF}about", "")
        found.append(Triple(subject, TYPE, name, None))
        found.extend(Triple(subject, key, value, language) for key, value in named.items() if key in TEXTS)
        stack.append(_Element(True, subject, "", language, []))

    def end(tag: str) -> None:
        if not stack:
            return
        element = stack.pop()
        if not element.is_node and (value := "".join(element.text)).strip():
            found.append(Triple(element.subject, element.predicate, value, element.language))

    def characters(text: str) -> None:
        if stack and not stack[-1].is_node:
            stack[-1].text.append(text)

    parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, characters
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise DataError(f"{path}: not RDF/XML ({error}); Turtle and N-Triples are read, too") from error
    return iter(found)


class _Element(NamedTuple):
    is_node: bool
    subject: str
    predicate: str
    language: str
    text: list[str]


def _iri(name: str) -> str:
    namespace, _, local = name.rpartition(" ")
    return namespace + local


def _tokens(text: str, path: Path) -> Iterator[tuple[str, str, int]]:
    """The kind, the text and the place of each token."""
    at = 0
    match: Callable[[str, int], re.Match[str] | None] = TOKEN.match
    while at < len(text):
        found = match(text, at)
        if found is None:
            raise _error(text, at, path, f"{text[at : at + 30]!r} is not Turtle")
        kind = found.lastgroup or ""
        if kind != "blank":
            yield kind, found[kind], at
        at = found.end()


def _expand(word: str, prefixes: dict[str, str], as_predicate: bool, text: str, at: int, path: Path) -> str:
    """A prefixed name as an IRI; other words, such as numbers, as they are."""
    if as_predicate and word == "a":
        return TYPE
    prefix, colon, local = word.partition(":")
    if not colon or prefix == "_":
        return word
    if prefix not in prefixes:
        raise _error(text, at, path, f"the prefix {prefix[:40]!r} is not declared")
    return prefixes[prefix] + re.sub(r"\\(.)", r"\1", local)


def _absolute(iri: str, base: str) -> str:
    return iri if ":" in iri else base + iri


def _unescape(token: str) -> str:
    """The text of a string token."""
    quotes = 3 if token.startswith(('"""', "'''")) and len(token) >= 6 else 1
    return ESCAPE.sub(_unescaped, token[quotes:-quotes])


def _unescaped(match: re.Match[str]) -> str:
    if match[3] is not None:
        return ESCAPED.get(match[3], match[3])
    code = int(match[1] or match[2], 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _error(text: str, at: int, path: Path, what: str) -> DataError:
    return DataError(f"{path}:{text.count(chr(10), 0, at) + 1}: {what}")
