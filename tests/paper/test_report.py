"""The page follows the results."""

import json
from pathlib import Path

import pytest
from holobind_paper import compression, registry, report, result
from holobind_paper.claims_networks import baselines_learn

import holobind as hb


def test_the_report_has_the_available_results_and_lists_the_others_as_not_run(tmp_path):
    with pytest.raises(hb.OptionError, match="holds no results"):
        report.run(tmp_path, tmp_path / "page.md")
    compression.run(tmp_path)
    report.run(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| the output layer is up to 99.55 % smaller | table 2 | confirmed | the head saves 99.55 % of 512" in page
    assert "| the model is up to 42.09 % smaller | table 2 | partly | the paper's own sizes give 82.71 %" in page
    assert "| training is up to 6.28 times as fast with many labels | table 3 | not run yet |" in page
    assert "| capacity | not run yet |" in page
    assert "Of the paper's eight datasets 0 are run here." in page


def test_the_report_follows_the_numbers(tmp_path):
    data = compression.run(tmp_path)
    for row in data["rows"]:
        if row["dataset"] == "Amazon-670K":
            row["output_percent"] = 12.34
    result.write_json(tmp_path / "compression.json", data)
    report.run(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| the output layer is up to 99.55 % smaller | table 2 | not confirmed | the head saves 12.34 %" in page


RESULTS = Path(__file__).parents[2] / "experiments" / "results"


def page_of(folder):
    report.run(folder, folder / "page.md")
    return (folder / "page.md").read_text()


def test_words_of_the_page_change_with_the_results(tmp_path):
    """The prose about the projection, its verdicts and the statement of what was run are templates."""
    for path in (*RESULTS.glob("*.json"), *RESULTS.glob("*.jsonl")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = page_of(tmp_path)
    assert "Compared with the exact inverse, in capacity: very much" in before
    assert "2 are run here (Bibtex, Delicious)" in before
    capacity = json.loads((tmp_path / "capacity.json").read_text())
    for row in capacity["rows"]:
        if row["vsa"] == "HRR w/ Proj":
            row["capacity"], row["first_above"] = 4, 6
    (tmp_path / "capacity.json").write_text(json.dumps(capacity))
    spread = json.loads((tmp_path / "response-spread.json").read_text())
    for row in spread["rows"]:
        row["paper_std"] = row["std"]
    (tmp_path / "response-spread.json").write_text(json.dumps(spread))
    for path in tmp_path.glob("*.jsonl"):
        kept = [line for line in path.read_text().splitlines(keepends=True) if '"Delicious"' not in line]
        path.write_text("".join(kept))
    after = page_of(tmp_path)
    assert "Compared with the exact inverse, in capacity: it loses" in after
    assert "perhaps its n counts vectors" in before and "perhaps its n counts vectors" not in after
    assert "1 is run here (Bibtex)" in after


def test_a_table_keeps_its_columns_where_a_cell_has_a_bar():
    assert result.markdown([["a", "b"], ["|score|", "1"]]).splitlines()[2] == "| \\|score\\| | 1 |"


def test_no_reported_baseline_is_within_two_points_of_label_frequency():
    found = registry.collect(RESULTS, "accuracy")
    if found is None:
        pytest.skip("no cell of table 1 is run yet")
    assert baselines_learn({"accuracy": found}) == []


def test_figures_of_trained_tables_are_drawn_from_the_finished_cells(tmp_path):
    figures = tmp_path / "figures"
    figures.mkdir()
    report.run(RESULTS, tmp_path / "page.md", figures)
    drawn = {path.name for path in figures.iterdir()}
    assert drawn == {"dimension.png", "learned-present-missing.png"}
    page = (tmp_path / "page.md").read_text()
    assert all(f"figures/{name}" in page for name in drawn)
