"""Clients of Annif get what they expect."""

import pytest

from holobind.serve.languages import LANGUAGES, detect

SUGGEST = "/v1/projects/fruit/suggest"
TEXT = "apple pear fig1"


def test_a_project_is_what_the_http_backend_of_annif_reads(client):
    """It posts a form to an address, and asks the address without /suggest whether the project is trained."""
    form = {"text": TEXT, "limit": 3, "project": "fruit"}
    results = client.post(SUGGEST, data=form).json()["results"]
    assert [set(each) for each in results] == [{"uri", "label", "notation", "score"}] * 3
    predicted = client.post("/v1/models/fruit/predict", json={"text": TEXT, "k": 3}).json()["predictions"][0]["labels"]
    assert [each["label"] for each in results] == [each["label"] for each in predicted]
    assert all(0 < each["score"] <= 1 for each in results)
    project = client.get(SUGGEST.removesuffix("/suggest")).json()
    assert project["is_trained"] is True
    assert project["modification_time"]
    assert client.get("/v1/projects").json() == {"projects": [project, client.get("/v1/projects/rows").json()]}
    assert client.get("/v1/vocabs").json()["vocabs"][0] == project["vocab"]
    assert set(client.get("/v1/").json()) == {"title", "version"}


def test_a_batch_is_its_documents(client):
    body = {"documents": [{"document_id": "a", "text": TEXT}, {"text": "plum2 fig3"}, {"document_id": "c", "text": ""}]}
    found = client.post("/v1/projects/fruit/suggest-batch", params={"limit": 2}, json=body).json()
    assert [each["document_id"] for each in found] == ["a", None, "c"]
    assert found[0]["results"] == client.post(SUGGEST, data={"text": TEXT, "limit": 2}).json()["results"]
    assert found[2]["results"] == []
    many = {"documents": [{"text": "a"}] * 33}
    assert client.post("/v1/projects/fruit/suggest-batch", json=many).status_code == 422


def test_the_threshold_leaves_out_lower_scores(client):
    results = client.post(SUGGEST, data={"text": TEXT}).json()["results"]
    threshold = results[1]["score"]
    above = client.post(SUGGEST, data={"text": TEXT, "threshold": threshold}).json()["results"]
    assert above == [each for each in results if each["score"] >= threshold]


@pytest.mark.parametrize(
    ("address", "sent", "status"),
    [
        ("/v1/projects/nix/suggest", {"data": {"text": "a"}}, 404),
        (SUGGEST, {"data": {"limit": 3}}, 422),
        (SUGGEST, {"data": {"text": "a", "limit": "many"}}, 422),
        (SUGGEST, {"data": {"text": "a", "threshold": "nan"}}, 422),
        (SUGGEST, {"data": {"text": "a", "language": "fi"}}, 400),
        (SUGGEST, {"json": {"text": "a"}}, 415),
        (SUGGEST, {"data": {str(i): "a" for i in range(30)}}, 400),
        ("/v1/projects/rows/suggest", {"data": {"text": "a"}}, 422),
        ("/v1/projects/fruit/learn", {"json": [{"text": "a", "subjects": []}]}, 403),
        ("/v1/detect-language", {"json": {"text": "a", "languages": ["xx"]}}, 400),
        ("/v1/detect-language", {"json": {"text": "a", "languages": []}}, 400),
    ],
)
def test_mistakes_are_problem_objects(client, address, sent, status):
    answer = client.post(address, **sent)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


def test_a_vocabulary_gives_uris_to_labels(serve, tmp_path):
    vocabulary = tmp_path / "fruit.tsv"
    vocabulary.write_text("".join(f"<http://example.org/{i}>\tlabel {i}\n" for i in range(9)))
    with serve(vocabulary=vocabulary) as plain:
        uris = {each["uri"] for each in plain.post(SUGGEST, data={"text": TEXT}).json()["results"]}
    assert all(uri.startswith("urn:holobind:fruit:") for uri in uris)  # these labels have other names


def test_what_annif_learns_is_in_the_journal(teacher):
    uri = teacher.post(SUGGEST, data={"text": TEXT, "limit": 1}).json()["results"][0]["uri"]
    body = [{"text": "apple", "subjects": [{"uri": uri, "label": "x"}, {"uri": "http://new", "label": "new"}]}]
    assert teacher.post("/v1/projects/fruit/learn", json=body).status_code == 204
    (kept,) = teacher.app.state.service.journal.read("fruit")
    assert kept["labels"][0].startswith("label ")
    assert kept["labels"][1] == "new"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The history of the book is in this library, and it was written by a teacher.", "en"),
        ("Die Geschichte des Buches ist in der Bibliothek, und es wurde von einem Lehrer geschrieben.", "de"),
        ("Le livre est dans la bibliothèque et il a été écrit par un professeur pour les enfants.", "fr"),
        ("Kirja on kirjastossa ja sen on kirjoittanut opettaja, joka oli myös lukija.", "fi"),
        ("Boken finns på biblioteket och den skrevs av en lärare som inte var känd.", "sv"),
    ],
)
def test_the_language_of_a_sentence_is_told(client, text, language):
    body = {"text": text, "languages": sorted(LANGUAGES)}
    results = client.post("/v1/detect-language", json=body).json()["results"]
    assert results[0]["language"] == language
    assert results[-1]["language"] is None
    assert detect("", ["en", "de"]) == [("en", 0.0), ("de", 0.0), (None, 1.0)]
