"""What is not allowed is refused before any handler runs, with the headers that every answer has."""

import threading

import pytest
from helpers.served import TOKEN, wait_until

from holobind.serve import batching
from holobind.serve.guard import SECURITY_HEADERS

PREDICT = "/v1/models/fruit/predict"


@pytest.mark.parametrize(
    "path", ["/", "/symbols", "/static/labels.js", "/v1/models", "/nix", "/healthz", "/openapi.json"]
)
def test_every_answer_has_security_headers(client, path):
    answer = client.get(path)
    for name, value in SECURITY_HEADERS.items():
        assert answer.headers[name] == value
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "evil.example:80", "[::2]", "a@b"])
def test_a_loopback_server_answers_under_its_own_names_alone(client, host):
    assert client.get("/v1/models", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]", "[::1]:8000", "LOCALHOST"])
def test_names_of_loopback_are_answered(client, host):
    assert client.get("/v1/models", headers={"Host": host}).status_code == 200


def test_a_token_is_needed_for_all_but_health_and_pages(serve):
    with serve(token=TOKEN) as client:
        for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/projects", "/nix"):
            answer = client.get(path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/healthz", "/readyz", "/", "/symbols", "/static/style.css"):
            assert client.get(path).status_code == 200
        for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer", "Bearer \xe9"):
            sent = {"Authorization": wrong.encode("latin-1")}
            assert client.get("/v1/models", headers=sent).status_code == 401
        assert client.get("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_an_open_server_needs_its_token_for_teaching_alone(serve):
    with serve(token=TOKEN, open=True) as client:
        assert client.get("/v1/models").status_code == 200
        assert client.post(PREDICT, json={"text": "apple"}).status_code == 200
        for path, body in (("learn", {"documents": [{"text": "apple", "labels": []}]}), ("reload", None)):
            assert client.post(f"/v1/models/fruit/{path}", json=body).status_code == 401
        assert client.post("/v1/models/fruit/reload", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_size_of_a_body_is_bounded_whether_it_is_declared_or_not(serve):
    with serve(max_body_bytes=1000) as client:
        body = b'{"text": "' + b"a" * 985 + b'"}'
        sent = {"Content-Type": "application/json"}
        assert client.post(PREDICT, content=body, headers=sent).status_code == 200
        assert client.post(PREDICT, content=b" " * 4 + body, headers=sent).status_code == 413
        assert client.post(PREDICT, content=iter([b" " * 500, body]), headers=sent).status_code == 413
        assert client.app.state.service.metrics.running == 0


def test_texts_and_rows_are_bounded(serve):
    with serve(max_text_characters=10, max_rows=2) as client:
        assert client.post(PREDICT, json={"text": ["a" * 10, "b"]}).status_code == 200
        assert client.post(PREDICT, json={"text": "a" * 11}).status_code == 413
        assert client.post(PREDICT, json={"text": ["a"] * 3}).status_code == 422


@pytest.fixture
def one_batch(monkeypatch):
    """One batch at a time, so that one thread is all that predicts."""
    monkeypatch.setattr(batching, "BATCHES_AT_ONCE", 1)


def stop_predictions(client):
    """Let the thread that predicts wait; the function that is returned lets it go on."""
    go_on, started = threading.Event(), threading.Event()

    def work():
        started.set()
        go_on.wait(30)

    client.app.state.service.batcher._threads.submit(work)
    assert started.wait(10)
    return go_on.set


def in_background(client, n):
    """Send some requests at the same time; their answers, once they are joined."""
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.post(PREDICT, json={"text": "apple"}))) for _ in range(n)
    ]
    for thread in threads:
        thread.start()
    return threads, answers


def test_a_full_queue_refuses_with_429_and_answers_again_afterwards(serve, one_batch):
    with serve(max_queued_rows=3, batch_seconds=0.0) as client:
        batcher = client.app.state.service.batcher
        go_on = stop_predictions(client)
        first, first_answer = in_background(client, 1)
        wait_until(lambda: batcher._running)  # it is a batch of its own, and the only one until predictions go on
        threads, answers = in_background(client, 3)
        wait_until(lambda: batcher.queued_rows == 3)
        refused = client.post(PREDICT, json={"text": "apple"})
        go_on()
        for thread in first + threads:
            thread.join()
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert [each.status_code for each in first_answer + answers] == [200] * 4
        assert client.post(PREDICT, json={"text": "apple"}).status_code == 200
        assert batcher.queued_rows == 0


def test_too_many_requests_at_a_time_are_refused_with_503(serve, one_batch):
    with serve(max_requests=2) as client:
        go_on = stop_predictions(client)
        threads, answers = in_background(client, 2)
        wait_until(lambda: client.app.state.service.metrics.running == 2)
        refused = client.get("/v1/models")
        health = client.get("/healthz")
        go_on()
        for thread in threads:
            thread.join()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert health.status_code == 200
        assert [each.status_code for each in answers] == [200] * 2


def test_a_request_ends_after_its_time_and_leaves_nothing_behind(serve, one_batch):
    with serve(timeout_seconds=0.2) as client:
        go_on = stop_predictions(client)
        answer = client.post(PREDICT, json={"text": "apple"})
        assert answer.status_code == 504
        go_on()
        service = client.app.state.service
        wait_until(lambda: service.batcher.queued_rows == 0)
        assert service.metrics.running == 0
        client.app.state.service.settings.__dict__["timeout_seconds"] = 30.0
        assert client.post(PREDICT, json={"text": "apple"}).status_code == 200


def test_other_origins_read_answers_only_if_they_are_named(serve):
    with serve(origins=("https://library.example",), token=TOKEN) as client:
        named = {"Origin": "https://library.example", "Access-Control-Request-Method": "POST"}
        asked = client.options(PREDICT, headers={**named, "Access-Control-Request-Headers": "authorization"})
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == "https://library.example"
        other = client.options(PREDICT, headers={**named, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        refused = client.post(PREDICT, json={"text": "a"}, headers={"Origin": "https://library.example"})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://library.example"


def test_a_mistake_of_the_server_says_nothing_of_its_inside(serve, monkeypatch, caplog):
    with serve() as client:
        monkeypatch.setattr(type(client.app.state.service.registry), "__iter__", lambda _: 1 / 0)
        answer = client.get("/v1/models")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "ZeroDivisionError" not in answer.text
    assert "ZeroDivisionError" in caplog.text
