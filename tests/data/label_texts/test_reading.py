"""Label texts from files of each format, and what is refused."""

import gzip
import json

import pytest

from holobind.data.label_texts import as_label_texts, read_label_texts
from holobind.data.label_texts.reading import MAX_TEXT_CHARACTERS, MAX_TEXTS
from holobind.errors import DataError

URI = "http://example.org/"
WANTED = {f"{URI}c1": ["cats", "felines", "Animals that purr."], f"{URI}c2": ["dogs"]}

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .   # a comment with "quotes"
@prefix ex: <http://example.org/> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
ex:c1 a skos:Concept ; skos:altLabel "felines"@en , "chats"@fr ;
    skos:prefLabel "cats"@en, 'chat'@fr ; skos:broader [ skos:prefLabel "inner"@en ] ;
    skos:definition \"\"\"Animals that
    purr.\"\"\"@en ; skos:notation "12"^^<http://www.w3.org/2001/XMLSchema#int> .
<http://example.org/c2> skos:prefLabel "dogs"@en-GB ; skos:related ( ex:c1 ex:c3 ) .
ex:scheme a skos:ConceptScheme ; skos:prefLabel "all animals"@en .
ex:old skos:prefLabel "unicorns"@en ; owl:deprecated true .
ex:nameless skos:altLabel "nothing"@en .
"""
NTRIPLES = f"""
<{URI}c1> <http://www.w3.org/2004/02/skos/core#prefLabel> "cats"@en .
<{URI}c1> <http://www.w3.org/2004/02/skos/core#prefLabel> "chat"@fr .
<{URI}c1> <http://www.w3.org/2004/02/skos/core#altLabel> "fel\\u0069nes"@en .
<{URI}c1> <http://www.w3.org/2004/02/skos/core#definition> "Animals that\\npurr."@en .
<{URI}c2> <http://www.w3.org/2004/02/skos/core#prefLabel> "dogs" .
"""
RDF_XML = f"""<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#"
         xmlns:owl="http://www.w3.org/2002/07/owl#" xml:lang="en">
  <skos:Concept rdf:about="{URI}c1">
    <skos:altLabel>felines</skos:altLabel><skos:prefLabel xml:lang="fr">chat</skos:prefLabel>
    <skos:prefLabel>cats</skos:prefLabel>
    <skos:broader><skos:Concept rdf:about="{URI}c2"><skos:prefLabel>dogs</skos:prefLabel></skos:Concept></skos:broader>
    <skos:definition>Animals that purr.</skos:definition>
  </skos:Concept>
  <rdf:Description rdf:about="{URI}old" skos:prefLabel="unicorns">
    <owl:deprecated>true</owl:deprecated></rdf:Description>
  <skos:ConceptScheme rdf:about="{URI}all"><skos:prefLabel>all animals</skos:prefLabel></skos:ConceptScheme>
</rdf:RDF>"""
JSON = json.dumps(
    {f"{URI}c1": {"description": "Animals that purr.", "name": "cats", "synonyms": ["felines"]}, f"{URI}c2": "dogs"}
)
JSON_LINES = "\n".join(
    json.dumps({"uri": uri, "prefLabel": texts[0], "altLabels": texts[1:2], "definition": texts[2:]})
    for uri, texts in WANTED.items()
)
CSV = f"uri,altLabel,label_en,definition,label_fr\n{URI}c1,felines,cats,Animals that purr.,chat\n{URI}c2,,dogs,,\n"
TSV = f"<{URI}c1>\tcats\tfelines\tAnimals that purr.\n<{URI}c2>\tdogs\n"


def read(folder, name, content, **options):
    path = folder / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return read_label_texts(path, **options)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ttl", TURTLE), ("a.nt", NTRIPLES), ("a.rdf", RDF_XML), ("a.json", JSON), ("a.jsonl", JSON_LINES),
        ("a.csv", CSV), ("a.tsv", TSV), ("a.txt", TSV), ("a.ttl.gz", TURTLE),
    ],
)  # fmt: skip
def test_every_format_gives_the_same_texts(tmp_path, name, content):
    assert read(tmp_path, name, content, language="en").by_label == WANTED


def test_without_a_language_all_languages_are_read(tmp_path):
    assert read(tmp_path, "a.ttl", TURTLE).by_label[f"{URI}c1"][:4] == ["cats", "chat", "felines", "chats"]


def test_a_file_of_lines_has_the_texts_in_order(tmp_path):
    assert read(tmp_path, "a.txt", "cats\n\ndogs\n").in_order == [["cats"], [], ["dogs"]]


def test_texts_are_bounded_and_not_repeated(tmp_path):
    many = {"a": ["x" * 5000, "b  c\n d", "b c d", "", *(f"text {i}" for i in range(100))]}
    (found,) = read(tmp_path, "a.json", json.dumps(many)).by_label.values()
    assert found[:3] == ["x" * MAX_TEXT_CHARACTERS, "b c d", "text 0"] and len(found) == MAX_TEXTS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.ttl", "@prefix a: <b:> .\na:x c:y 'z' .", ":2: the prefix 'c' is not declared"),
        ("a.ttl", "<a:b> <a:c> 'd'", "ends within a statement"),
        ("a.ttl", "<a:b> <a:c> ] .", "']' closes nothing"),
        ("a.ttl", "<a:b> <a:c> " + "[ <a:d> " * 200, "nested more than 100 times"),
        ("a.ttl", "<a:b> <a:c> 'd\n' .", "is not Turtle"),
        ("a.ttl", "", "has no label texts"),
        ("a.nt", NTRIPLES.replace("prefLabel", "other"), "has no label texts"),
        ("a.rdf", "<a><b></a>", "not RDF/XML"),
        ("a.rdf", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "declares XML entities"),
        ("a.rdf", "<a>" * 300 + "</a>" * 300, "nested more than 100 times"),
        ("a.json", "[1", "not JSON"),
        ("a.json", "[" * 100_000, "not JSON"),
        ("a.json", "3", "an object, or a list of objects; got int"),
        ("a.json", '{"a": 3}', "'a': a label text is a text or a list of texts; got int"),
        ("a.json", '[{"x": "y"}]', "record 1 has no field uri"),
        ("a.json", '{"a": "\\ud800"}', "half of a surrogate pair"),
        ("a.csv", "x,y\n1,2\n", "has no field uri, id or label"),
        ("a.tsv", "\tcats\n", ":1: the row has no label"),
        ("a.txt", "", "has no label texts"),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_refused_in_one_line(tmp_path, name, content, message):
    with pytest.raises(DataError) as error:
        read(tmp_path, name, content)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_label_texts_in_python_are_a_file_or_a_mapping(tmp_path):
    assert as_label_texts({"a": "b", 3: ["c", "d"]}).by_label == {"a": ["b"], "3": ["c", "d"]}
    (tmp_path / "a.tsv").write_text("a\tb\n")
    assert as_label_texts(tmp_path / "a.tsv").by_label == {"a": ["b"]}
    with pytest.raises(DataError, match=r"a file, or \{label: text or list of texts\}; got list"):
        as_label_texts(["a"])
