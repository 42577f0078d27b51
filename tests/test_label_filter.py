"""Excluded labels: the ranking of the others, exactly, in every way it is computed."""

import numpy as np
import pytest
from helpers.models import HEADS, SEEN, L, X, Y, build

import holobind as hb
from holobind import label_filter
from holobind.calibration import fit_calibration
from holobind.errors import LabelError, OptionError
from holobind.model import Model


@pytest.mark.parametrize("masked", [False, True], ids=["longer ranking", "masked scores"])
@pytest.mark.parametrize("options", [HEADS[0], HEADS[2], HEADS[6]], ids=str)
@pytest.mark.parametrize("ordered", [False, True])
def test_the_ranking_is_that_of_the_allowed_labels_by_all_scores(monkeypatch, options, masked, ordered):
    if masked:
        monkeypatch.setattr(label_filter, "MAX_EXTRA_LABELS", 0)
        monkeypatch.setattr(label_filter, "MAX_MASKED_BYTES", 4 * L * 7)  # seven rows at a time
    model = build("linear", options)
    if ordered:
        order = np.random.default_rng(1).permutation(L)
        model = Model(model.network, model.head, SEEN, label_order=order)
    scores = model.scores(X)
    model.calibration = fit_calibration(-np.sort(-scores, axis=1), np.random.default_rng(0).random(scores.shape) < 0.3)
    for exclude, only in (([2, 5], None), ([], [1, 3, 8, 0]), ([3], [1, 3, 8, 0])):
        allowed = sorted(set(range(L) if only is None else only) - set(exclude))
        found = model.rank(X, 3, exclude=exclude, only=only)
        best = np.array(allowed)[np.argsort(-scores[:, allowed], axis=1, kind="stable")[:, :3]]
        np.testing.assert_array_equal(found.ids, best)
        np.testing.assert_allclose(found.scores, np.take_along_axis(scores, best, 1), atol=1e-5)
        whole = model.rank(X, L)
        for row in range(len(scores)):
            probability = dict(zip(whole.ids[row].tolist(), whole.probabilities[row].tolist(), strict=True))
            assert found.probabilities[row].tolist() == pytest.approx([probability[i] for i in best[row]], abs=1e-5)


def test_labels_excluded_for_good_stay_so_in_a_file_and_in_requests(tmp_path):
    model = build(label_names=[f"label {i}" for i in range(L)])
    model.restrict(exclude=["label 0", 4])
    model.save(tmp_path / "model.safetensors")
    again = hb.load(tmp_path / "model.safetensors")
    assert not {0, 4} & set(again.top_k(X, L - 2)[1].ravel().tolist())
    assert set(again.top_k(X, 2, exclude=["label 1"], only=[0, 1, 2, 3])[1].ravel().tolist()) == {2, 3}
    assert not {0, 4} & set(again.labels_above(X, -100.0).indices.tolist())
    with pytest.raises(OptionError, match="k must be from 1 to the number of labels, 7"):
        again.top_k(X, 8)
    with pytest.raises(OptionError, match="leave no label"):
        again.top_k(X, 1, only=["label 0"])
    again.restrict()
    np.testing.assert_array_equal(again.top_k(X, L)[1], build().top_k(X, L)[1])


@pytest.mark.parametrize(
    ("names", "label", "message"),
    [
        (True, "label 99", "has no label 'label 99'; it has 9 names, such as 'label 0'"),
        (True, 9, "has no label '9'"),
        (True, -1, "has no label '-1'"),
        (True, True, "has no label 'True'"),
        (True, 1.5, "has no label '1.5'"),
        (False, "9", "ids from 0 to 8"),
        (False, "x", "ids from 0 to 8"),
    ],
)
def test_unknown_labels_are_refused(names, label, message):
    model = build(label_names=[f"label {i}" for i in range(L)] if names else None)
    with pytest.raises(LabelError, match=message):
        model.top_k(X, 2, exclude=[label])


def test_one_text_is_no_list_of_labels():
    with pytest.raises(OptionError, match="a list of labels"):
        build().top_k(X, 2, exclude="12")


def test_chosen_sets_have_no_excluded_label_and_reach_the_probability():
    model = hb.learn(hb.Split(X, Y))
    model.calibration = fit_calibration(
        -np.sort(-model.scores(X), axis=1), np.eye(len(Y.toarray()), L, dtype=bool) | (Y.toarray() > 0)
    )
    chosen = model.choose(X, "recall=0.9", exclude=[1], min_probability=0.1)
    taken = chosen.ids >= 0
    assert 1 not in chosen.ids[taken] and (chosen.probabilities[taken] >= 0.1).all() and taken.any()
    p = model.predict_proba(X)
    rows = np.repeat(np.arange(len(p)), taken.sum(1))
    np.testing.assert_allclose(p[rows, chosen.ids[taken]], chosen.probabilities[taken], atol=1e-5)
    model.restrict(exclude=[1])
    assert (model.predict_proba(X)[:, 1] == 0).all()
