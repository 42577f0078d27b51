"""Corrections become part of the model in service, and a crash loses none that was accepted."""

import json
import shutil
import signal
import threading
import urllib.error
import urllib.request

import pytest
from helpers.models import fruit_model
from helpers.served import TOKEN, served, wait_until

from holobind.errors import FileError
from holobind.model import load
from holobind.serve import Settings, create_app, learning

LEARN, SHOW, PREDICT, RELOAD = (f"/v1/models/fruit{each}" for each in ("/learn", "", "/predict", "/reload"))
NAMES, TEXTS, _, build = fruit_model(update=True)
NEW = {"text": "basket7 and basket8", "labels": ["dragonfruit"]}
SENT = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "fruit.safetensors"
    build().save(path)
    return path


@pytest.fixture
def files(trained, tmp_path):
    """The model file, and the directory of the journal."""
    path = tmp_path / "fruit.safetensors"
    shutil.copy(trained, path)
    return path, tmp_path / "journal"


@pytest.fixture
def teach(serve, files):
    """A function that opens a client of a server that learns."""

    def opened(**settings):
        return serve([files[0]], token=TOKEN, journal=files[1], **settings)

    return opened


def learn(client, *documents):
    answer = client.post(LEARN, json={"documents": documents}, headers=SENT)
    assert answer.status_code == 202, answer.text
    return answer.json()


def best(client, text):
    answer = client.post(PREDICT, json={"text": text, "k": 1}, headers=SENT)
    return answer.json()["predictions"][0]["labels"][0]["label"]


def about(client):
    return client.get(SHOW, headers=SENT).json()


def test_a_document_is_learned_when_it_is_accepted(teach):
    with teach() as client:
        before = about(client)
        assert before["learns"]
        for _ in range(3):
            answer = learn(client, NEW)
        after = about(client)
        assert answer == {"accepted": 1, "learned": True, "version": after["version"]}
        assert after["version"] != before["version"]
        assert (after["labels"], after["training_rows"]) == (before["labels"] + 1, before["training_rows"] + 3)
        assert after["learned_documents"] == 3
        assert best(client, "basket8 basket7") == "dragonfruit"
        assert 'holobind_learned_documents{model="fruit"} 3' in client.get("/metrics", headers=SENT).text


def test_a_rejected_label_loses(teach):
    text = TEXTS[0]
    with teach() as client:
        ask = {"text": text, "k": len(NAMES)}
        scores = [client.post(PREDICT, json=ask, headers=SENT).json()["predictions"][0]["labels"]]
        wrong = scores[0][0]["label"]
        assert learn(client, {"text": text, "labels": [], "rejected": [wrong]})["learned"]
        scores.append(client.post(PREDICT, json=ask, headers=SENT).json()["predictions"][0]["labels"])
        before, after = ({each["label"]: each["score"] for each in found} for found in scores)
        assert after[wrong] < before[wrong]


def test_the_last_files_are_kept_and_are_models(teach, files):
    with teach(keep=2) as client:
        for _ in range(4):
            learn(client, NEW)
    kept = sorted((files[1] / "fruit").iterdir())
    assert [path.name for path in kept] == ["00000003.safetensors", "00000004.safetensors"]
    assert load(kept[0]).frequencies.n_rows == len(TEXTS) + 3
    assert load(files[0]).frequencies.n_rows == len(TEXTS)  # the file that was trained stays as it was


def test_a_new_start_goes_on_with_the_last_file_and_the_journal_after_it(teach, files, monkeypatch):
    with teach() as client:
        learn(client, NEW)
    with monkeypatch.context() as patched:
        patched.setattr(learning, "update_model", lambda *_: 1 / 0)
        with teach() as client:  # whatever goes wrong, the document is in the journal
            assert learn(client, NEW)["learned"] is False
            assert about(client)["learned_documents"] == 1
    with teach() as client:
        assert about(client)["learned_documents"] == 2
        assert best(client, "basket8 basket7") == "dragonfruit"
    last = files[1] / "fruit" / "00000002.safetensors"
    last.write_bytes(last.read_bytes()[:1000])
    with teach() as client:  # a broken file: the one before it, and the journal
        assert about(client)["learned_documents"] == 2
    shutil.rmtree(files[1] / "fruit")
    with teach() as client:
        assert about(client)["learned_documents"] == 2


def test_a_document_that_cannot_be_learned_harms_no_other(teach, files):
    with teach() as client:
        learn(client, NEW)
    with (files[1] / "fruit.jsonl").open("a") as journal:
        line = json.loads((files[1] / "fruit.jsonl").read_text())
        for wrong in ({"labels": [99]}, {"labels": ["apple"], "rejected": ["nix"]}, {"labels": 3}):
            journal.write(json.dumps({**line, **wrong}) + "\n")
        journal.write("{\n[]\n" + json.dumps(line) + "\n")
    with teach() as client:
        assert about(client)["learned_documents"] == 2


def test_another_model_file_begins_anew_and_leaves_old_documents_to_its_training(teach, files):
    with teach() as client:
        learn(client, NEW)
        model = load(files[0])
        model.update(TEXTS[:1], [["apple"]]).save(files[0])
        assert client.post(RELOAD, headers=SENT).json()["learned_documents"] == 0
        assert about(client)["training_rows"] == len(TEXTS) + 1
        learn(client, NEW)
        assert about(client)["learned_documents"] == 1
        assert client.post(RELOAD, headers=SENT).json()["learned_documents"] == 1  # the same file


def test_a_model_that_cannot_learn_on_keeps_documents(serve, model_files, tmp_path):
    with serve([model_files[1]], token=TOKEN, journal=tmp_path) as client:
        body = {"documents": [{"features": {"1": 1.0}, "labels": [0]}]}
        answer = client.post("/v1/models/rows/learn", json=body, headers=SENT).json()
        assert (answer["accepted"], answer["learned"]) == (1, False)
        assert client.get("/v1/models/rows", headers=SENT).json()["learns"] is False


def test_one_server_writes_a_journal(teach, files):
    with teach(), pytest.raises(FileError, match="another run"), teach():
        pass


def test_a_killed_server_has_lost_no_accepted_document(files):
    path, journal = files
    accepted, failures = [], []

    def post(address, body):
        sent = urllib.request.Request(
            f"{address}{LEARN}", json.dumps(body).encode(), {**SENT, "Content-Type": "application/json"}
        )
        with urllib.request.urlopen(sent, timeout=60) as answer:
            return json.load(answer)

    def work(address, worker):
        for i in range(1000):
            try:
                text = f"basket7 of {worker}, {i}"
                post(address, {"documents": [{"text": text, "labels": ["dragonfruit"]}]})
                accepted.append(text)
            except OSError as error:  # it was killed
                failures.append(error)
                return

    with served(path, "--journal", journal, HOLOBIND_TOKEN=TOKEN) as (address, process):
        threads = [threading.Thread(target=work, args=(address, worker)) for worker in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(accepted) >= 12)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        for thread in threads:
            thread.join()
    assert len(failures) == 3
    kept = [json.loads(line)["text"] for line in (journal / "fruit.jsonl").read_text().splitlines()]
    assert set(accepted) <= set(kept)
    # A new server, in this process: it has every accepted document, also those that no model file had yet.
    app = create_app([path], Settings(token=TOKEN, journal=journal))
    service = app.state.service
    version = service.learners["fruit"].resume(service.registry.get("fruit").current)
    assert version.learned_documents == len(kept)
    assert version.model.frequencies.n_rows == len(TEXTS) + len(kept)


def test_requests_are_answered_while_a_model_learns(teach):
    with teach() as client:
        go_on, started = threading.Event(), threading.Event()
        learner = client.app.state.service.learners["fruit"]
        step = learner.step

        def slow(version):
            started.set()
            assert go_on.wait(60)
            return step(version)

        learner.step = slow
        thread = threading.Thread(target=lambda: learn(client, NEW))
        thread.start()
        assert started.wait(60)
        assert best(client, TEXTS[0]) in NAMES
        assert about(client)["learned_documents"] == 0
        go_on.set()
        thread.join()
        assert about(client)["learned_documents"] == 1
