"""The verdicts on the paper's claims follow the numbers."""

import pytest
from holobind_paper import claims


def judged(text, results):
    """(verdict, evidence) of the claim that contains `text`."""
    (line,) = [line for line in claims.rows(results) if text in line[0]]
    return line[1], line[2]


def verdict(text, results):
    return judged(text, results)[0]


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ({"Bibtex": 0.9, "Delicious": 1.1, "Amazon-670K": 7.0}, "confirmed"),
        ({"Bibtex": 0.9, "Delicious": 1.1, "Amazon-670K": 6.0}, "partly"),
        ({"Bibtex": 0.9, "Delicious": 0.8, "Amazon-670K": 7.0}, "partly"),
        ({"Bibtex": 0.9, "Delicious": 0.8, "Amazon-670K": 0.7}, "not confirmed"),
    ],
)
def test_faster_training_is_judged_where_there_are_more_labels_than_dim(speeds, expected):
    labels = {"Bibtex": 159, "Delicious": 983, "Amazon-670K": 670091}
    rows = [
        {
            "dataset": name,
            "labels": labels[name],
            "dim": 400,
            "paper": 6.28,
            "speedup": {"HRR-FC": speed, "HRR-FC, random": 2},
        }
        for name, speed in speeds.items()
    ]
    found, evidence = judged("training is 41.86 % faster", {"speed": {"quick": False, "rows": rows}})
    assert found == expected
    assert "0.90x to 0.90x with fewer labels than d'" in evidence


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": (46, 60), "b": (65, 64.5)}, "confirmed"),
        ({"a": (46, 60), "b": (65, 60)}, "partly"),
        ({"a": (58, 60), "b": (65, 66)}, "partly"),
        ({"a": (46, 40), "b": (65, 60)}, "not confirmed"),
    ],
)
def test_accuracy_is_judged_case_by_case(scores, expected):
    rows = [
        {"dataset": name, "network": "FC", "scores": {"FC": {"P": [linear]}, "HRR-FC": {"P": [holographic]}}}
        for name, (linear, holographic) in scores.items()
    ]
    assert verdict("accuracy is similar", {"accuracy": {"quick": False, "rows": rows}}) == expected


@pytest.mark.parametrize(
    ("naive", "exact", "expected"), [(15, 14, "confirmed"), (50, 14, "partly"), (50, 40, "not confirmed")]
)
def test_nothing_is_learned_if_label_frequency_is_as_good(naive, exact, expected):
    scores = {"naive": naive, "naive, exact inverse": exact, "label frequency": 15}
    rows = [{"dataset": "a", "scores": {name: {"P": [value]} for name, value in scores.items()}}]
    assert verdict("without the projection", {"ablation-projection": {"quick": False, "rows": rows}}) == expected


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([[0.1, -0.1, 0.3], [1.0, 1.2, 0.9]], "confirmed"),
        ([[-3.0, 3.0, -1.6], [0.1, 0.2, 0.1]], "confirmed"),  # within the noise
        ([[-1.0, -1.1, -0.9], [0.1, 0.2, 0.1]], "partly"),
        ([[-1.0, -1.1, -0.9]], "not confirmed"),
    ],
)
def test_learning_vectors_has_a_benefit_only_beyond_the_noise(differences, expected):
    found = {"quick": False, "summary": "", "rows": [{"P@5 differences": values} for values in differences]}
    assert verdict("learning the label vectors", {"learned-labels": found}) == expected
    assert verdict("learning p and m", {"learned-present-missing": found}) == expected
