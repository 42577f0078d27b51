"""The files of the pages: whole, without inline scripts, without other servers."""

import re
from pathlib import Path

import pytest

import holobind.serve.app as application

FILES = Path(application.__file__).parent / "static"


def test_pages_have_no_inline_script_or_style_and_name_no_other_server(client):
    for path in ("/", "/symbols"):
        page = client.get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
        for address in re.findall(r'(?:src|href)="([^"#]+)"', page):
            assert client.get(address).status_code == 200, address
    for name in application.FILES:
        content = client.get(f"/static/{name}").content
        assert content == (FILES / name).read_bytes()
        if name != "inter-licence.txt":
            assert not re.search(rb"(?<!xmlns=\")https?://", content), name
    assert {path.name for path in FILES.iterdir()} == set(application.FILES)
    for outside in ("nix", "..%2fapp.py", "%2e%2e/app.py", "."):
        assert client.get(f"/static/{outside}").status_code == 404


def test_symbols_answer_as_the_vocabulary_does(client):
    import holobind as hb

    body = {"statement": "red*cat + blue*dog", "query": "red", "dim": 64, "seed": 3}
    found = client.post("/v1/symbols", json=body).json()
    vocabulary = hb.Vocabulary(64, 3)
    expected = vocabulary.ask(vocabulary.parse(body["statement"]), "red", 4)
    assert [each["name"] for each in found["answers"]] == [each.name for each in expected]
    assert [each["response"] for each in found["answers"]] == pytest.approx([e.response for e in expected], abs=1e-4)
    assert found["noise"] == pytest.approx((2 / 64) ** 0.5, rel=0.3)
    for wrong, said in (("red*", "position"), (" + ".join(f"n{i}" for i in range(201)), "at most 200 names")):
        answer = client.post("/v1/symbols", json={**body, "statement": wrong})
        assert answer.status_code == 422
        assert said in answer.json()["detail"]
