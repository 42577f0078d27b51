"""The pages in a real browser: type, point, exclude, teach, many texts, dark mode, 400 pixels, keyboard."""

import os
import re
from pathlib import Path

import pytest
from helpers.browser import browser, find_chromium
from helpers.served import TOKEN, served

import holobind.serve.app as application

FILES = Path(application.__file__).parent / "static"
TAB = 9


def test_pages_have_no_inline_script_or_style_and_name_no_other_server(client):
    for path in ("/", "/symbols"):
        page = client.get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
        for address in re.findall(r'(?:src|href)="([^"#]+)"', page):
            assert client.get(address).status_code == 200, address
    for name in application.FILES:
        content = client.get(f"/static/{name}").content
        assert content == (FILES / name).read_bytes()
        assert not re.search(rb"(?<!xmlns=\")https?://", content)
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


@pytest.fixture(scope="module")
def address(model_files, tmp_path_factory):
    if not os.environ.get("HOLOBIND_BROWSER"):
        pytest.skip("the browser is tested with HOLOBIND_BROWSER=1")
    if find_chromium() is None:
        pytest.skip("no Chromium is installed; Debian's package chromium has one")
    with served(*model_files, "--journal", tmp_path_factory.mktemp("journal"), HOLOBIND_TOKEN=TOKEN) as (found, _):
        yield found


def names_of_controls(page):
    """(role, name) of all that can have the focus, as a screen reader gets them."""
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    return [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
        and any(each["name"] == "focusable" and each["value"]["value"] for each in node.get("properties", []))
        and node["role"]["value"] != "RootWebArea"
    ]


def test_a_person_labels_texts(address, tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text('id,text\n1,apple pear\n2,"plum2, fig3"\n3,zzz\n')
    with browser() as page:
        page.size(1200, 900)
        page.open(f"{address}/")
        page.until("document.querySelector('#token-dialog').open")
        page.js("document.querySelector('#token').focus()")
        page.write(TOKEN)
        page.press("Enter", 13)
        page.until("document.querySelector('#about').textContent.includes('9 labels')")
        page.click("#text")
        page.write("apple pear fig1")
        page.until("document.querySelectorAll('#labels li').length === 9")
        first = page.js("document.querySelector('#labels .name').dataset.label")
        page.point("#labels .name")
        page.until("document.querySelector('#marked mark') !== null")
        assert page.js("document.querySelector('#marked').textContent") == "apple pear fig1"
        assert page.js("document.querySelectorAll('#near li').length") > 0
        page.click("#labels li .mark:last-child")
        page.until("document.querySelectorAll('#rejected li').length === 1")
        page.until("document.querySelectorAll('#labels li').length === 8")
        assert first not in page.js("[...document.querySelectorAll('#labels .name')].map(e => e.dataset.label)")
        page.click("#teach")
        page.until("document.querySelector('#message').textContent.startsWith('Kept')")
        page.click("#search")
        page.write("label 7")
        page.until("document.querySelectorAll('#found li').length === 1")
        page.choose_file("#batch", table)
        page.until("document.querySelectorAll('#rows tr').length === 3")
        assert page.js("document.querySelector('#rows tr:last-child td:last-child').textContent") == "none"
        assert all(name for _, name in names_of_controls(page))
        light = page.js("getComputedStyle(document.body).backgroundColor")
        page.colours("dark")
        assert page.js("getComputedStyle(document.body).backgroundColor") != light
        page.size(400, 800, phone=True)
        assert page.js("document.documentElement.scrollWidth") <= 400
        page.screenshot(tmp_path / "phone.png")
        page.js("document.querySelector('#text').focus()")
        order = []
        for _ in range(5):
            page.press("Tab", TAB)
            order.append(page.js("document.activeElement.id || document.activeElement.className"))
        assert order == ["file", "k", "sure", "name", "mark"]
        page.open(f"{address}/symbols")
        page.until("document.querySelectorAll('#answers li').length === 4")
        assert page.js("document.querySelector('#answers li.present').textContent").startswith("cat")
        page.click("#names button:nth-child(3)")
        page.until("document.querySelector('#answers li.present')?.textContent.startsWith('dog')")
        assert all(name for _, name in names_of_controls(page))
        assert page.js("document.documentElement.scrollWidth") <= 400
        assert all(each.startswith(address) for each in page.requested), page.requested
        assert [each for each in page.errors if "401" not in str(each)] == []
