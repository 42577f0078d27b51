"""A real Annif, unpatched, gets suggestions from holobind by its `http` backend: commands, evaluation and page.

HOLOBIND_ANNIF names the executable `annif` of an environment of its own; PATH is searched otherwise.
"""

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
from helpers.models import fruit_model
from helpers.served import TOKEN, free_port, served, wait_until

ANNIF = os.environ.get("HOLOBIND_ANNIF") or shutil.which("annif")
pytestmark = pytest.mark.skipif(ANNIF is None, reason="Annif is not installed; HOLOBIND_ANNIF can name its command")

NAMES, TEXTS, SETS, build = fruit_model()
URIS = [f"http://example.org/fruit/{i}" for i in range(len(NAMES))]
PROJECT = """[remote]
name=holobind by HTTP
language=en
backend=http
vocab=fruit
endpoint={}/v1/projects/fruit/suggest
"""


@pytest.fixture(scope="module")
def annif(tmp_path_factory):
    """A function that runs an Annif command in a directory with a project of the served model."""
    folder = tmp_path_factory.mktemp("annif")
    build().save(folder / "fruit.safetensors")
    vocabulary = folder / "vocabulary.tsv"
    vocabulary.write_text("".join(f"<{uri}>\t{name}\n" for uri, name in zip(URIS, NAMES, strict=True)))
    # The backend sends no token: --open answers it, and keeps teaching for those who have one.
    arguments = (folder / "fruit.safetensors", "--vocabulary", vocabulary, "--open")
    with served(*arguments, HOLOBIND_TOKEN=TOKEN) as (address, _):
        (folder / "projects.cfg").write_text(PROJECT.format(address))

        def run(*arguments, text=None):
            command = [ANNIF, *map(str, arguments)]
            return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, check=True).stdout

        run("load-vocab", "--language", "en", "fruit", vocabulary)
        run.folder, run.address = folder, address
        yield run


def suggestions(address, text, limit):
    """What the server itself answers to the same form."""
    form = urllib.parse.urlencode({"text": text, "limit": limit}).encode()
    with urllib.request.urlopen(f"{address}/suggest", form) as answer:
        return json.load(answer)["results"]


def test_suggestions_are_those_of_the_model(annif):
    found = [line.split("\t") for line in annif("suggest", "--limit", 3, "remote", text=TEXTS[1]).splitlines()]
    expected = suggestions(f"{annif.address}/v1/projects/fruit", TEXTS[1], 3)
    assert [(uri.strip("<>"), name) for uri, name, _ in found] == [(e["uri"], e["label"]) for e in expected]
    assert [float(score) for *_, score in found] == pytest.approx([e["score"] for e in expected], abs=1e-4)
    assert expected[0]["uri"] in URIS


def test_an_evaluation_through_annif_has_the_metrics_of_the_model(annif):
    corpus = annif.folder / "test.tsv"
    with corpus.open("w") as file:
        for text, labels in zip(TEXTS[:12], SETS, strict=False):
            file.write(f"{text}\t{' '.join(f'<{URIS[NAMES.index(name)]}>' for name in labels)}\n")
    printed = dict(line.rsplit(None, 1) for line in annif("eval", "--limit", 1, "remote", corpus).splitlines() if line)
    best = [suggestions(f"{annif.address}/v1/projects/fruit", text, 1)[0]["label"] for text in TEXTS[:12]]
    hits = sum(name in labels for name, labels in zip(best, SETS, strict=False))
    assert hits > 6
    assert float(printed["Precision@1:"]) == pytest.approx(hits / 12, abs=1e-3)


def test_the_page_of_annif_shows_the_project_and_its_suggestions(annif):
    port = free_port()
    process = subprocess.Popen(
        [ANNIF, "run", "--port", str(port)],
        cwd=annif.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"

        def page_is_there():
            try:
                with urllib.request.urlopen(f"{address}/", timeout=10) as page:
                    return b"Annif" in page.read()
            except (urllib.error.URLError, ConnectionError):
                return False

        wait_until(page_is_there)
        with urllib.request.urlopen(f"{address}/v1/projects") as answer:
            (project,) = json.load(answer)["projects"]
        assert (project["project_id"], project["is_trained"]) == ("remote", True)
        own = suggestions(f"{address}/v1/projects/remote", TEXTS[1], 3)
        ours = suggestions(f"{annif.address}/v1/projects/fruit", TEXTS[1], 3)
        assert [(e["uri"], e["label"]) for e in own] == [(e["uri"], e["label"]) for e in ours]
    finally:
        process.terminate()
        process.wait(30)
