"""The pages in a real browser (`make test-browser`): type, point, correct, teach, many texts, phone, dark, axe."""

import os
from pathlib import Path

import pytest
from helpers.browser import browser, find_chromium
from helpers.models import L
from helpers.served import TOKEN, served

pytestmark = pytest.mark.skipif(
    not os.environ.get("HOLOBIND_BROWSER") or find_chromium() is None,
    reason="the browser is tested by `make test-browser`, with Debian's package chromium or another Chromium",
)
TAB, ENTER, DOWN = ("Tab", 9), ("Enter", 13), ("ArrowDown", 40)
TEXT = "apple pear fig1"
README_TEXT = (
    "def load_settings(path, default=None):\n"
    '    """Read a JSON file of settings, and return them as a dict.\n\n'
    '    If the file does not exist, return the default."""'
)
LABELS = "[...document.querySelectorAll('#labels .name')].map(e => e.dataset.label)"


@pytest.fixture(scope="module")
def address(model_files, tmp_path_factory):
    with served(*model_files, "--journal", tmp_path_factory.mktemp("journal"), HOLOBIND_TOKEN=TOKEN) as (found, _):
        yield found


@pytest.fixture(scope="module")
def chromium():
    with browser() as page:
        yield page


@pytest.fixture
def page(chromium, address):
    """The page for labels with the model fruit, on a desktop, after a token was given."""
    chromium.size(1200, 900)
    chromium.colours("light")
    chromium.requested.clear()
    chromium.errors.clear()
    chromium.open("about:blank")
    chromium.open(f"{address}/#token={TOKEN}")
    chromium.until("document.querySelector('#about').textContent.includes('9 labels')")
    yield chromium
    assert all(each.startswith((address, "about:", "blob:")) for each in chromium.requested), chromium.requested
    assert chromium.errors == []


def write_text(page, text=TEXT):
    page.click("#text")
    page.write(text)
    page.until("document.querySelectorAll('#labels li').length >= 8")


def point_at_first_label(page):
    page.point("#labels .name")
    page.until("!document.querySelector('#why').hidden && document.querySelectorAll('#near > li').length > 0")


def serious(page):
    """What axe finds, of serious or critical impact."""
    page.js(Path(os.environ["HOLOBIND_AXE"]).read_text() + "; 0")
    found = page.js(
        "axe.run(document, {resultTypes: ['violations']}).then(r => JSON.parse(JSON.stringify(r.violations)))"
    )
    return [
        (each["id"], node["target"], node["failureSummary"])
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def test_a_token_is_asked_for_and_a_token_in_the_address_leaves_it(chromium, address):
    chromium.open("about:blank")
    chromium.open(f"{address}/")
    chromium.js("sessionStorage.clear()")
    chromium.open(f"{address}/?again")
    chromium.until("document.querySelector('#token-dialog').open")
    chromium.js("document.querySelector('#token').focus()")
    chromium.write(TOKEN)
    chromium.press(*ENTER)
    chromium.until("document.querySelector('#about').textContent.includes('9 labels')")
    chromium.open("about:blank")
    chromium.open(f"{address}/#token={TOKEN}")
    assert chromium.js("location.hash") == ""


def test_words_are_marked_in_the_text_when_a_label_is_pointed_at(page):
    write_text(page)
    assert page.js("document.querySelectorAll('#marked mark').length") == 0
    point_at_first_label(page)
    assert page.js("document.querySelectorAll('#marked mark').length") > 0
    assert page.js("document.querySelector('#marked').textContent.replace('\\u200b', '')") == TEXT
    place = "(e => { const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height] })"
    under, field = (page.js(f"{place}(document.querySelector('{each}'))") for each in ("#marked", "#text"))
    assert under == pytest.approx(field, abs=1)  # the copy lies under the field, line by line
    assert page.js("document.querySelectorAll('#words li').length") > 0
    widths = page.js("[...document.querySelectorAll('#labels .bar')].map(e => parseFloat(e.style.width))")
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0


def test_labels_follow_the_sliders(page):
    write_text(page)
    for name, value, expected in (("k", 3, "length === 3"), ("sure", 100, "length === 0")):
        page.js(
            f"(e => {{ e.value = {value}; e.dispatchEvent(new Event('input')) }})(document.querySelector('#{name}'))"
        )
        page.until(f"document.querySelectorAll('#labels li').{expected}")


def test_a_person_corrects_and_teaches_with_the_keyboard(page, address):
    write_text(page)
    first, second = page.js(LABELS)[:2]
    page.js("document.querySelector('#labels .name').focus()")
    page.press("x")
    page.until("document.querySelectorAll('#rejected li').length === 1")
    page.until("document.querySelectorAll('#labels li').length >= 7")
    assert first not in page.js(LABELS)
    assert page.js("document.activeElement.dataset.label") == second
    page.press("a")
    assert page.js("document.querySelector('#labels li.accepted .name').dataset.label") == second
    page.press(*DOWN)
    assert page.js("document.activeElement.dataset.label") == page.js(LABELS)[1]
    page.js("document.querySelector('#search').focus()")
    added = next(label for label in (f"label {i}" for i in range(L)) if not (first + second).count(label))
    page.write(added)
    page.until("document.querySelectorAll('#found li').length === 1")
    page.press(*ENTER)
    page.until(f"/Has [^]*{added}/.test(document.querySelector('#lesson').textContent)")
    page.click("#teach")
    page.until("/^(Learned|Kept)/.test(document.querySelector('#message').textContent)")
    page.until("document.querySelector('#lesson').textContent.startsWith('Accept or reject')")
    assert page.js("document.querySelector('#teach').disabled")


def test_many_texts_have_a_table_to_download(page, tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text('id,text\n1,apple pear\n2,"plum2, fig3"\n3,zzz\n')
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.choose_file("#batch", table)
    page.until("document.querySelectorAll('#rows tr').length === 3")
    assert page.js("document.querySelector('#rows tr:last-child td:last-child').textContent") == "none"
    page.until("!document.querySelector('#download').hidden")
    page.click("#download")
    page.wait_for((tmp_path / "labels.csv").exists)
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert lines[0] == "text,labels,probabilities"
    assert lines[-1] == "zzz,,"
    (tmp_path / "texts.csv").write_text("nix\n1\n")
    page.choose_file("#batch", table)
    page.until("document.querySelector('#batch-status').textContent.includes('no column')")


def test_a_file_can_be_dropped_on_the_text(page):
    page.js(
        "(() => { const data = new DataTransfer(); data.items.add(new File(['apple plum3'], 'a.txt'));"
        "document.querySelector('#text').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true,"
        "cancelable: true})) })()"
    )
    page.until("document.querySelector('#text').value === 'apple plum3'")
    page.until("document.querySelectorAll('#labels li').length >= 8")


def test_labels_are_copied(page, address):
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"], origin=address)
    write_text(page)
    page.click("#copy-csv")
    page.until("document.querySelector('#message').textContent === 'CSV copied.'")
    assert page.js("navigator.clipboard.readText()").startswith("label,probability\n")
    page.click("#copy-json")
    page.until("document.querySelector('#message').textContent === 'JSON copied.'")
    assert page.js("navigator.clipboard.readText().then(t => JSON.parse(t).length)") >= 8


def test_a_name_and_a_place_in_the_order_for_every_control(page):
    write_text(page)
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    names = [
        node.get("name", {}).get("value", "")
        for node in nodes
        if not node["ignored"]
        and any(each["name"] == "focusable" and each["value"]["value"] for each in node.get("properties", []))
        and node["role"]["value"] != "RootWebArea"
    ]
    assert len(names) > 20
    assert all(names)
    page.js("document.querySelector('#text').focus()")
    order = []
    for _ in range(6):
        page.press(*TAB)
        order.append(page.js("document.activeElement.id || document.activeElement.className"))
    assert order == ["copy-csv", "copy-json", "k", "sure", "name", "mark accept"]


@pytest.mark.parametrize(("width", "colours"), [(1200, "light"), (1200, "dark"), (400, "light"), (400, "dark")])
def test_pages_fit_and_axe_finds_nothing_serious(page, address, width, colours, tmp_path):
    page.size(width, 850, phone=width == 400)
    page.colours(colours)
    for path in ("/", "/symbols"):
        page.open(f"{address}{path}")
        if path == "/":
            page.until("document.querySelector('#about').textContent.includes('9 labels')")
            write_text(page)
            point_at_first_label(page)
            page.click("#labels .accept")
            page.click("#labels li:nth-child(2) .reject")
            page.until("document.querySelectorAll('#rejected li').length === 1")
        else:
            page.until("document.querySelectorAll('#answers li').length === 4")
        light = page.js("getComputedStyle(document.body).backgroundColor")
        assert (light == "rgb(246, 245, 242)") == (colours == "light")
        assert page.js("document.documentElement.scrollWidth") <= width
        page.screenshot(tmp_path / f"{path.strip('/') or 'labels'}-{width}-{colours}.png")
        if "HOLOBIND_AXE" in os.environ:
            assert serious(page) == []
    if "HOLOBIND_AXE" not in os.environ:
        pytest.skip("axe is not installed: HOLOBIND_AXE names its axe.min.js, as `make test-browser` does")


def test_symbols_respond(page, address):
    page.open(f"{address}/symbols")
    page.until("document.querySelectorAll('#answers li').length === 4")
    assert page.js("document.querySelector('#answers li.present .text').textContent") == "cat"
    page.click("#names button:nth-child(3)")
    page.until("document.querySelector('#answers li.present .text')?.textContent === 'dog'")
    page.js("(e => { e.value = 'red*'; e.dispatchEvent(new Event('input')) })(document.querySelector('#statement'))")
    page.until("document.querySelector('#status').classList.contains('error')")
    chromium_errors = [each for each in page.errors if "422" not in str(each)]
    page.errors[:] = chromium_errors


def test_the_demo_is_a_page_with_labels(chromium, tmp_path, capfd):
    """HOLOBIND_SCREENSHOT names a file for the picture that the README shows."""
    log = tmp_path / "log"
    with log.open("w") as file, served("--demo", "--no-browser", log=file) as (found, _):
        token = log.read_text().rpartition("#token=")[2].strip()
        chromium.size(1200, 800)
        chromium.colours("light")
        chromium.open("about:blank")
        chromium.open(f"{found}/#token={token}")
        chromium.until("document.querySelector('#about').textContent.includes('labels from')")
        chromium.click("#text")
        chromium.write(README_TEXT)
        chromium.until("document.querySelectorAll('#labels li').length === 8")
        point_at_first_label(chromium)
        assert "open" in chromium.js(LABELS)
        chromium.js("document.activeElement.blur(); document.fonts.ready.then(() => 0)")
        picture = Path(os.environ.get("HOLOBIND_SCREENSHOT", tmp_path / "demo.png"))
        chromium.screenshot(picture, height=1000)
        assert picture.stat().st_size > 20_000
