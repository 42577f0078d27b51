"""`holobind explain`: the library's parts, as JSON, as bars, and as a page that holds nothing but escaped text."""

import json

import pytest
from helpers.commands import is_one_line_error, run
from helpers.pages import problems_of

import holobind as hb
from holobind.cli.explain import to_html
from holobind.explanation import Explanation, Part


def test_json_has_parts_that_add_up_to_the_score_of_predict(capsys, text_model):
    code, out, _ = run(capsys, "explain", text_model, "print json file path", "--json", "-k", 2)
    found = json.loads(out)
    _, out, _ = run(capsys, "predict", text_model, "-", "-k", 2, stdin=b"print json file path\n")
    predicted = json.loads(out)["labels"]
    assert code == 0 and [each["label"] for each in found] == [each["label"] for each in predicted]
    for each, label in zip(found, predicted, strict=True):
        assert each["score"] == pytest.approx(label["score"], abs=1e-5)
        assert each["probability"] == pytest.approx(label["probability"], abs=1e-3)
        assert sum(part["value"] for part in each["parts"]) == pytest.approx(each["score"], abs=1e-4)


def test_the_terminal_shows_bars_and_the_rest_as_a_sum(capsys, text_model, feature_model):
    code, out, _ = run(capsys, "explain", text_model, "print json file path", "--parts", 2)
    assert code == 0 and "█" in out and "smaller parts" in out and "exact: the parts add up" in out
    label = hb.load(feature_model).top_k(hb.load(feature_model).examples([[1.0] * 92]).X, 8)[1][0, -1]
    code, out, _ = run(capsys, "explain", feature_model, "0:1 3:0.5", "--label", label)
    assert code == 0 and out.startswith(f"{label}: rank") and "feature 3" in out


def test_the_page_escapes_everything_and_needs_no_network(capsys, text_model, tmp_path):
    page = tmp_path / "why.html"
    hostile = '<script src="http://evil">json</script> & print'
    assert run(capsys, "explain", text_model, hostile, "--html", page)[0] == 0
    problems, text = problems_of(page.read_text())
    assert not problems and hostile in text and "<mark" in page.read_text()
    name = "<img src=x onerror=alert(1)>\"'"
    parts = [Part("feature", name, 0.5, {"feature": 1}), Part("token", name, -0.2, {"position": 0})]
    problems, text = problems_of(to_html([Explanation(name, 0.3, 0.5, 1, "method", parts, 0.0, name)]))
    assert not problems and text.count(name) >= 4


def test_a_text_without_a_known_word_is_said_to_be_one(capsys, text_model):
    code, _, err = run(capsys, "explain", text_model, "qqq zzz")
    assert code == 0 and "the model knows no word or feature of it" in err
    assert "knows no word" not in run(capsys, "explain", text_model, "json file")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("TEXT-MODEL", "json", "--label", "no such"), "has no label 'no such'"),
        (("FEATURE-MODEL", "some words"), "'some' is neither"),
        (("FEATURE-MODEL", "500:1"), "500"),
        (("TEXT-MODEL", "json", "--html", "MODEL"), "--html"),
    ],
)
def test_mistakes_are_one_line(capsys, text_model, feature_model, arguments, message):
    paths = {"TEXT-MODEL": text_model, "FEATURE-MODEL": feature_model, "MODEL": text_model}
    assert is_one_line_error(run(capsys, "explain", *(paths.get(each, each) for each in arguments)), message)
