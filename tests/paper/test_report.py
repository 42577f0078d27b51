"""The page follows the results."""

import pytest
from holobind_paper import compression, report, result

import holobind as hb


def test_the_report_has_the_available_results_and_lists_the_others_as_not_run(tmp_path):
    with pytest.raises(hb.OptionError, match="holds no results"):
        report.run(tmp_path, tmp_path / "page.md")
    compression.run(tmp_path)
    report.run(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| the output layer is up to 99.55 % smaller | confirmed | the head saves 99.55 % of 512 x 670,091" in page
    assert "| the model is up to 42.09 % smaller | partly | the paper's own sizes give 82.71 %" in page
    assert "| training is 41.86 % faster, and an epoch up to 6.28x | not run |" in page
    assert "| capacity | not run |" in page


def test_the_report_follows_the_numbers(tmp_path):
    data = compression.run(tmp_path)
    for row in data["rows"]:
        if row["dataset"] == "Amazon-670K":
            row["output_percent"] = 12.34
    result.write_json(tmp_path / "compression.json", data)
    report.run(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| the output layer is up to 99.55 % smaller | not confirmed | the head saves 12.34 %" in page
