"""The examples of the pages work: every Python block of every page is run, in order, as one script a page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


OPTIONAL = re.compile(r"^(?:from|import) (transformers)\b", flags=re.MULTILINE)  # shown, but not needed


def run(page, chosen):
    namespace = {}
    for block in chosen:
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_every_python_block_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page, [block for block in blocks(page) if not OPTIONAL.search(block)])


@pytest.mark.parametrize("page", [page for page in PAGES if OPTIONAL.search(page.read_text())], ids=lambda p: p.name)
def test_blocks_that_need_an_optional_package_run_where_it_is_installed(page):
    for package in OPTIONAL.findall(page.read_text()):
        pytest.importorskip(package)
    run(page, blocks(page))


def test_the_readme_finds_the_fruit_and_the_cat(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(ROOT / "README.md", blocks(ROOT / "README.md"))
    assert capsys.readouterr().out == "[['fruit']]\ncat\n"
    assert (tmp_path / "apples.safetensors").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+?)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_the_reproduction_is_that_of_the_results(tmp_path):
    from holobind_paper import report

    (tmp_path / "figures").symlink_to(ROOT / "docs" / "figures")
    report.run(ROOT / "experiments" / "results", tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs" / "reproduction.md").read_text()
