"""The routes of the API answer what the model answers."""

import json

import pytest
from helpers.models import F, L, X

import holobind as hb
from holobind.serve import schemas

TEXTS = ["apple pear fig1", "plum2 fig3", "zzz"]
PREDICT = "/v1/models/fruit/predict"


@pytest.fixture(scope="module")
def fruit(model_files):
    return hb.load(model_files[0])


def problem_of(response, status):
    """The detail of a problem object."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail"}
    assert body["status"] == status
    return body["detail"]


def test_predictions_are_those_of_the_model(client, fruit):
    ranking = fruit.rank(TEXTS, 4)
    answer = client.post(PREDICT, json={"text": TEXTS, "k": 4}).json()
    schemas.PredictResponse.model_validate(answer)
    first, second, unknown = answer["predictions"]
    for row, found in enumerate([first, second]):
        names = [fruit.label_names[i] for i in ranking.ids[row]]
        assert [each["label"] for each in found["labels"]] == names
        assert [each["score"] for each in found["labels"]] == pytest.approx(ranking.scores[row].tolist(), abs=1e-5)
    assert unknown == {"labels": [], "unknown": "no known word"}


def test_one_text_is_a_list_of_one(client):
    one = client.post(PREDICT, json={"text": TEXTS[0]}).json()["predictions"]
    assert one == client.post(PREDICT, json={"text": [TEXTS[0]]}).json()["predictions"]


def test_features_are_rows_of_the_matrix(client, model_files):
    rows = [{str(j): float(X[[i], [j]][0]) for j in X[[i]].indices} for i in range(3)]
    scores, ids = hb.load(model_files[1]).top_k(X[:3], 2)
    found = client.post("/v1/models/rows/predict", json={"features": rows, "k": 2}).json()["predictions"]
    assert [[each["label"] for each in row["labels"]] for row in found] == ids.tolist()
    assert found[0]["labels"][0]["score"] == pytest.approx(scores[0, 0], abs=1e-5)


def test_excluded_labels_and_labels_below_the_threshold_are_left_out(client, fruit):
    everything = client.post(PREDICT, json={"text": TEXTS[0], "k": L}).json()["predictions"][0]["labels"]
    best = everything[0]["label"]
    others = client.post(PREDICT, json={"text": TEXTS[0], "k": L, "exclude": [best]}).json()["predictions"][0]["labels"]
    assert [each["label"] for each in others] == [each["label"] for each in everything[1:]]
    key = "probability" if fruit.calibration is not None else "score"
    threshold = everything[2][key]
    above = client.post(PREDICT, json={"text": TEXTS[0], "k": L, "threshold": threshold}).json()["predictions"][0]
    assert above["labels"] == [each for each in everything if each[key] >= threshold]


def test_the_words_of_an_explanation_are_the_text_and_its_parts_add_up(client):
    body = {"text": TEXTS[0], "k": 2, "explain": True}
    (found,) = client.post(PREDICT, json=body).json()["predictions"]
    assert [each["label"] for each in found["explanations"]] == [each["label"] for each in found["labels"]]
    for each in found["explanations"]:
        assert "".join(text for text, _ in each["words"]) == TEXTS[0]
    body["explain"] = [found["labels"][1]["label"]]
    (again,) = client.post(PREDICT, json=body).json()["predictions"]
    assert again["explanations"] == found["explanations"][1:]


def test_models_say_what_they_are(client, fruit):
    listed = client.get("/v1/models").json()["models"]
    assert [each["id"] for each in listed] == ["fruit", "rows"]
    assert listed[0]["labels"] == fruit.n_labels
    assert (listed[0]["reads"], listed[1]["reads"], listed[1]["features"]) == ("texts", "features", F)
    assert client.get("/v1/models/rows").json() == listed[1]
    assert "fruit, rows" in problem_of(client.get("/v1/models/nix"), 404)


def test_labels_are_found_by_a_part_of_their_name(client, fruit):
    found = client.get("/v1/models/fruit/labels", params={"q": "LABEL 3"}).json()["labels"]
    assert found == [fruit.label_names[3]]
    assert client.get("/v1/models/fruit/labels", params={"q": "label", "limit": 4}).json()["labels"] == list(
        fruit.label_names[:4]
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "send one of them"),
        ({"text": "a", "features": {"1": 1}}, "send one of them"),
        ({"features": {"1": 1}}, "reads texts"),
        ({"text": []}, "1 to 1024 rows"),
        ({"text": "a", "k": 0}, "k: "),
        ({"text": "a", "k": 10**9}, "k is from 1 to 1000"),
        ({"text": "a", "k": True}, "k: "),
        ({"text": "a", "threshold": 2}, "threshold"),
        ({"text": "a", "exclude": ["nix"]}, "no label 'nix'"),
        ({"text": "a", "exclude": [f"label {i}\r\x85é" for i in range(L)]}, "leave no label"),
        ({"text": "a", "explain": ["nix"]}, "no label 'nix'"),
        ({"text": ["a"] * 11, "explain": True}, "at most 20 explanations"),
        ({"text": "a", "nix": 1}, "nix"),
        ({"text": "a\ud800"}, "surrogate"),
        ({"text": 3}, "text"),
    ],
)
def test_a_mistake_is_a_problem_object(client, body, said):
    sent = json.dumps(body)
    assert said in problem_of(client.post(PREDICT, content=sent, headers={"Content-Type": "application/json"}), 422)


@pytest.mark.parametrize(
    "row", [{"11": 1.0}, {"-1": 1.0}, {"01": 1.0}, {"\u0661": 1.0}, {"1": 1e39}, {"9" * 5000: 1.0}]
)
def test_a_feature_that_the_model_does_not_have_is_a_problem(client, row):
    assert "feature" in problem_of(client.post("/v1/models/rows/predict", json={"features": row}), 422)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b'{"text": NaN}', b"\xff\xfe", b"null", b'{"k": Infinity}']
)
def test_a_body_that_is_no_request_is_refused(client, content):
    answer = client.post(PREDICT, content=content, headers={"Content-Type": "application/json"})
    assert problem_of(answer, answer.status_code)
    assert answer.status_code in (400, 422)


def test_the_description_names_every_route(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/models/{model_id}/predict", "/v1/projects/{project_id}/suggest", "/v1/symbols", "/metrics"} <= set(
        paths
    )
    body = paths["/v1/projects/{project_id}/suggest"]["post"]["requestBody"]["content"]
    assert body["application/x-www-form-urlencoded"]["schema"]["required"] == ["text"]


def test_learning_and_reloading_need_a_token_and_learning_a_journal(client, serve):
    document = {"documents": [{"text": "apple", "labels": ["new"]}]}
    assert "--token" in problem_of(client.post("/v1/models/fruit/learn", json=document), 403)
    assert "--token" in problem_of(client.post("/v1/models/fruit/reload"), 403)
    token = "x" * 20
    with serve(token=token) as other:
        other.headers["Authorization"] = f"Bearer {token}"
        assert "--journal" in problem_of(other.post("/v1/models/fruit/learn", json=document), 501)


def test_documents_are_in_the_journal_when_they_are_accepted(teacher):
    documents = [
        {"text": "apple", "labels": ["label 1\r\x85é", "new"], "rejected": ["label 2\r\x85é"]},
        {"text": "pear", "labels": []},
    ]
    answer = teacher.post("/v1/models/fruit/learn", json={"documents": documents})
    assert answer.status_code == 202
    assert answer.json()["accepted"] == 2
    assert answer.json()["learned"] is True
    kept = list(teacher.app.state.service.journal.read("fruit"))
    assert [each["text"] for each in kept] == ["apple", "pear"]
    assert kept[0]["labels"] == documents[0]["labels"]
    for wrong in ({"labels": []}, {"text": "a", "labels": [99]}, {"text": "a", "labels": [], "rejected": ["nix"]}):
        problem_of(teacher.post("/v1/models/fruit/learn", json={"documents": [documents[0], wrong]}), 422)
    assert len(list(teacher.app.state.service.journal.read("fruit"))) == 2


def test_metrics_count_requests_rows_and_unknown_words(serve):
    with serve() as client:
        client.post(PREDICT, json={"text": ["apple nonsense", "zzz"]})
        client.get("/v1/models/nix")
        text = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['holobind_requests_total{route="/v1/models/{model_id}/predict",method="POST",status="200"}'] == "1"
    assert lines['holobind_requests_total{route="/v1/models/{model_id}",method="GET",status="404"}'] == "1"
    assert lines['holobind_rows_total{model="fruit"}'] == "2"
    assert lines['holobind_rows_without_known_word_total{model="fruit"}'] == "1"
    assert lines['holobind_words_total{model="fruit"}'] == "2"
    assert lines['holobind_unknown_words_total{model="fruit"}'] == "1"
    assert int(lines["process_resident_memory_bytes"]) > 1 << 20
