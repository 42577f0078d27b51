"""Labels by their text: scores against their definition, labels without rows, explanations, files and the estimator."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.commands import is_one_line_error, run
from helpers.label_texts import N_LABELS, N_UNSEEN, corpus, label_texts, model, split, subject, topic

import holobind as hb
from holobind.codebooks import OrbitCodebook
from holobind.data.csr import from_arrays, from_label_ids
from holobind.errors import DataError, OptionError
from holobind.heads.added_scores import AddedScores
from holobind.label_text import LabelText, suggested
from holobind.label_text_weights import MAX_FRACTION_OF_BEST, TextWeights

pytestmark = pytest.mark.usefixtures("one_thread")
UNSEEN = range(N_LABELS - N_UNSEEN, N_LABELS)


def name(label):
    return label_texts()[label][0]


def without_texts():
    documents, labels = corpus()
    named = [[name(i) for i in own] for own in labels]
    return hb.HolographicClassifier(text=True, l2=1.0, knn_weight=0.5, update=True).fit(documents, named).model_


def match_by_definition(label_text, text):
    """The match of every label, label by label, from dense vectors."""
    x, texts = (label_text.tfidf.transform([text]).toarray()[0], label_text.index.toarray())
    own = [texts[label_text.owners == label] for label in range(label_text.n_labels)]
    return [max(float(a @ x) + float((a**2)[x > 0].sum()) for a in each) / 2 for each in own]


def related_by_definition(scores, labels, of_names):
    """The cosine of the positive scores of one row with those of each name, without the label itself."""

    def vector(scores, labels, without=-1):
        found = np.zeros(N_LABELS)
        found[labels] = np.maximum(scores, 0)
        found[[without] * (without >= 0)] = 0
        return found / max(np.linalg.norm(found), 1e-12)

    return [vector(scores, labels) @ vector(*each, label) for label, each in enumerate(zip(*of_names, strict=True))]


def drawn_scores(n, rng, k=20):
    scores = np.sort(rng.random((n, k)).astype(np.float32))[:, ::-1] - np.float32(0.5)
    return scores, np.array([rng.permutation(N_LABELS)[:k] for _ in range(n)])


def test_text_scores_are_their_definition():
    alike = [[f"{topic(i)} {subject(i % 5)}", *texts[1:]] for i, texts in enumerate(label_texts())]
    rng = np.random.default_rng(0)
    of_names, (scores, labels) = drawn_scores(N_LABELS, rng), drawn_scores(5, rng)
    names = {label: of_label[0] for label, of_label in enumerate(alike)}
    suggestions = suggested(lambda texts: of_names, names, (N_LABELS, N_LABELS))
    label_text = LabelText.fit(alike, corpus()[0]).with_suggestions(suggestions)
    texts = [f"{text} synonym{3 * i}" for i, text in enumerate(corpus(n=5, seed=3)[0])]
    ((_, match, related, similar),) = label_text.text_scores(label_text.rows(texts), scores, labels)
    wanted = [match_by_definition(label_text, text) for text in texts]
    np.testing.assert_allclose(match, wanted, atol=1e-3)  # names of float16 have lengths of 1 but for 1e-3
    assert similar is None and np.max(wanted) > 0.4
    wanted = [related_by_definition(*row, of_names) for row in zip(scores, labels, strict=True)]
    np.testing.assert_allclose(related, wanted, atol=1e-3)
    assert np.std(wanted) > 0.1 and np.max(wanted) < 0.9


def test_the_text_score_is_a_weighted_mean():
    weights, ones = TextWeights(embedding_weight=0.5), np.ones((2, 3), np.float32)
    assert weights.text_score(ones, ones, ones) == pytest.approx(ones)
    assert weights.text_score(ones, 0 * ones, -ones) == pytest.approx(ones / 3)
    assert weights.text_score(0 * ones, ones, 0 * ones) == pytest.approx(ones / 2)
    assert TextWeights().text_score(ones, 0 * ones, None) == pytest.approx(ones / 2.5)


def test_a_label_without_rows_is_found_by_labels_that_are_suggested_for_its_name():
    """The document has no word of the name; the name has words of the documents of label 3."""
    texts, named = [*label_texts()], corpus()
    unseen = UNSEEN[0]
    texts[unseen] = [f"{topic(3)} {subject(3)} unheard"]
    documents = [f"{text} about{i}" for text, own in zip(*named, strict=True) for i in own[:1]]
    found = hb.learn(
        hb.Split(split().X, split().Y, documents),
        hb.ModelConfig(text=True, l2=1.0, knn_weight=0.0),
        label_texts=texts,
    )
    label_text = found.label_text
    assert (
        np.flatnonzero(np.diff(label_text.suggestions.indptr)).tolist() == list(UNSEEN)[:1]
    )  # other names are unknown
    assert label_text.suggestions[[unseen]].argmax() == 3
    assert not np.intersect1d(label_text.rows(["about3 word1"]).words.indices, label_text.index[-5:].indices).size
    (part,) = [part for part in found.explain(["about3 word1"], [unseen])[0].parts if part.kind == "label text"]
    assert part.value > 0 and not part.details["words"] and part.details["related labels"][0] == 3


def test_what_is_added_falls_with_the_rows_of_a_label_and_is_never_negative():
    weights = TextWeights(weight=1.0, half_rows=10.0)
    n_rows, best, texts = np.array([[1, 10, 1000, 0]]), np.array([[2.0]]), np.full((1, 4), 0.5, np.float32)
    none, own = np.zeros((1, 4), np.float32), np.array([[0.7, 0.1, -3.0, 0.9]], np.float32)
    values = weights.learned(texts, n_rows, none, best)
    np.testing.assert_allclose(values[0], [0.25 / 3 / 1.1, 0.25 / 3 / 2, 0.25 / 3 / 101, 0], rtol=1e-6)
    of_own = weights.learned(texts, n_rows, own, best) - values  # in proportion to scores that are positive
    np.testing.assert_allclose(of_own[0], [0.5 * 0.7 / 1.1, 0.5 * 0.1 / 2, 0, 0], rtol=1e-5)
    assert (weights.learned(-texts, n_rows, own, best) == 0).all()
    assert (weights.learned(texts, n_rows, none, -best) == 0).all()
    np.testing.assert_allclose(replace(weights, min_best=0.5).learned(texts, n_rows, none, -best), values / 4)


def test_labels_without_rows_come_after_the_fifth_unless_the_match_is_strong():
    weights = TextWeights(zero_weight=2.0, zero_labels=2, strong_weight=3.0, strong_text=0.5, min_fifth=0.1)

    def unseen(*texts, weights=weights, best=1.0, fifth=0.6):
        t = np.array([texts], np.float32)
        return weights.unseen(t, np.zeros(t.shape, int), np.array([[best]]), np.array([[fifth]]))[0]

    values = unseen(0.1, 0.4, 0.45, 0.05)
    assert values[0] == values[3] == 0  # not among the two best
    assert 0.97 * 0.6 < values[1] < values[2] < 0.6
    strong = unseen(0.2, 0.8, 50.0)
    assert strong[1] == pytest.approx(0.95 * np.tanh(0.9 / 0.95)) and strong[2] == pytest.approx(MAX_FRACTION_OF_BEST)
    np.testing.assert_allclose(unseen(0.2, 0.1), [0.4, 0.2], rtol=1e-6)  # weak matches stay below
    assert (unseen(0.4, 0.45, best=0.0, fifth=0.0) == 0).all()
    least = unseen(0.4, 0.45, weights=replace(weights, min_best=1.0), best=0.0, fifth=-1.0)
    assert 0.097 < least[0] < least[1] < 0.1
    assert (unseen(0.4, 0.9, weights=replace(weights, zero_labels=0)) == 0).all()
    assert (
        weights.unseen(np.ones((1, 2), np.float32), np.array([[1, 5]]), np.ones((1, 1)), np.ones((1, 1))) == 0
    ).all()


def test_weak_matches_without_rows_are_ranked_after_five_labels_with_rows():
    with_texts, label_text = model(), model().label_text
    text = f"word1 word2 word3 {subject(N_LABELS - 1)}"
    try:
        for strong, places in ((0.0, [5, 6]), (4.0, [0, 1, 2, 3, 4])):
            weights = replace(
                label_text.weights, zero_weight=50.0, zero_labels=1, strong_weight=strong, strong_text=0.1
            )
            with_texts.label_text = label_text.with_weights(weights)
            ranked = with_texts.top_k([text], 10)[1][0].tolist()
            assert ranked.index(N_LABELS - 1) in places and not {*ranked} & {*UNSEEN[:-1]}
    finally:
        with_texts.label_text = label_text


def test_labels_without_rows_are_suggested_by_their_text():
    texts, labels = corpus(n=40, seed=5, unseen=True)
    with_texts = model()
    ranked = with_texts.top_k(texts, 9)[1]
    found = [label in row for row, own in zip(ranked, labels, strict=True) for label in own]
    assert np.mean(found) > 0.9
    before, with_texts.label_text = with_texts.label_text, None
    try:
        ranked = with_texts.top_k(texts, 9)[1]
    finally:
        with_texts.label_text = before
    assert np.mean([label in row for row, own in zip(ranked, labels, strict=True) for label in own]) < 0.4


def test_the_top_k_is_that_of_all_scores_and_labels_above_a_threshold_are_too():
    texts = corpus(n=30, seed=7)[0] + corpus(n=10, seed=8, unseen=True)[0]
    scores = model().scores(texts)
    values, ids = model().top_k(texts, 6)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(values, np.take_along_axis(scores, order, 1), atol=1e-6)
    above = model().labels_above(texts, 0.1).toarray() > 0
    np.testing.assert_array_equal(above, scores > 0.1)
    only = model().top_k(texts, 2, only=list(UNSEEN))[1]
    np.testing.assert_array_equal(only, UNSEEN[0] + np.argsort(-scores[:, UNSEEN], axis=1, kind="stable")[:, :2])


def test_an_explanation_has_the_label_text_as_a_part_and_adds_up():
    text = f"{topic(UNSEEN[0])} word1 {topic(3)}"
    for label in (UNSEEN[0], 3):
        (found,) = model().explain([text], [label])
        assert found.score == pytest.approx(sum(part.value for part in found.parts), abs=1e-5)
        (part,) = [part for part in found.parts if part.kind == "label text"]
        assert part.value > 0 and part.details["words"] == [topic(label)]
    assert found.parts[-1].kind == "bias"


def test_a_file_gives_the_same_scores_and_the_same_bytes(tmp_path):
    texts = corpus(n=10, seed=2)[0]
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    model().save(first)
    loaded = hb.load(first)
    np.testing.assert_array_equal(loaded.scores(texts), model().scores(texts))
    assert loaded.label_text.weights == model().label_text.weights
    loaded.save(second)
    assert first.read_bytes() == second.read_bytes()


def test_more_labels_than_a_chunk_and_labels_beyond_the_texts():
    label_text = LabelText.fit(label_texts()[:10], corpus()[0])
    rows = label_text.rows([f"{topic(3)} {subject(3)} word1"])
    scores, labels = np.array([[0.9, 0.8, 0.1]], np.float32), np.array([[25, 0, 29]])  # of a model with 30 labels
    codebook, h = OrbitCodebook(N_LABELS, 16), torch.zeros(1, 16)
    values, found = label_text.added(rows, scores, labels, np.ones(N_LABELS, np.int64), codebook, h)
    assert found[0, 0] == 3 and found.max() < 10 and values.min() >= 0


def test_the_weights_are_chosen_on_hidden_labels_and_calibration_follows_the_final_scores():
    rng = np.random.default_rng(0)
    n_labels = 240
    texts = [[f"{topic(i)} {subject(i)}"] for i in range(n_labels)]
    rows = [sorted(set(rng.integers(0, n_labels, 2).tolist())) for _ in range(1200)]
    documents = [" ".join(map(topic, row)) + f" word{rng.integers(30)}" for row in rows]
    X = from_arrays(np.empty(0, np.float32), np.empty(0), np.zeros(len(rows) + 1), (len(rows), 0))
    fitted = hb.learn(
        hb.Split(X, from_label_ids(rows, n_labels), documents),
        hb.ModelConfig(text=True, l2=1.0, knn_weight=0, label_trees=0),
        label_texts=texts,
    )
    chosen = fitted.metadata["label_text"]
    assert chosen["validation"]["with texts"]["recall@10 of hidden labels"] > 90 and chosen["zero_labels"] > 0
    assert fitted.calibration is not None


def test_label_texts_need_texts_and_the_default_model():
    rows = split()
    features = hb.Split(model().examples(rows.texts).X, rows.Y)
    with pytest.raises(DataError, match="compared with the texts of rows, and this model would read features only"):
        hb.learn(features, label_texts=label_texts())
    with pytest.raises(OptionError, match="label texts belong to the closed form"):
        hb.learn(rows, hb.ModelConfig(network="fc"), label_texts=label_texts())
    with pytest.raises(DataError, match="texts of 3 labels, and the data has 30"):
        hb.learn(rows, label_texts=label_texts()[:3])
    with pytest.raises(DataError, match="give it texts, not rows of features"):
        model().top_k(features.X, 1)


def test_the_estimator_suggests_labels_that_y_does_not_have():
    texts, labels = corpus()
    names = [[f"label {i}" for i in own] for own in labels]
    described = {f"label {i}": of_label for i, of_label in enumerate(label_texts())}
    fitted = hb.HolographicClassifier(text=True, l2=1.0, knn_weight=0.5, label_texts=described).fit(texts, names)
    assert len(fitted.classes_) == N_LABELS
    assert f"label {UNSEEN[1]}" in fitted.predict_names([f"{topic(UNSEEN[1])} {subject(UNSEEN[1])}"], 3)[0]
    by_id = {str(i): of_label for i, of_label in enumerate(label_texts())} | {"99": ["more"]}
    with pytest.raises(DataError, match="y has a column for each of 30 labels"):
        hb.HolographicClassifier(text=True, label_texts=by_id).fit(texts, split().Y)


def test_the_command_line_trains_explains_and_inspects(tmp_path, capsys):
    texts, labels = corpus()
    data, described, out = tmp_path / "data.tsv", tmp_path / "labels.tsv", tmp_path / "m.safetensors"
    rows = (f"{text}\t" + "\t".join(f"L{i}" for i in own) for text, own in zip(texts, labels, strict=True))
    data.write_text("\n".join(rows) + "\n")
    described.write_text("".join(f"L{i}\t" + "\t".join(own) + "\n" for i, own in enumerate(label_texts())))
    options = ["--format", "tsv", "--l2", "1", "--knn-weight", "0.5", "--out", out]
    code, _, err = run(capsys, "train", data, "--label-text", described, *options)
    assert code == 0 and "26 of the data's 26 labels have one, and 4 labels without rows are added" in err
    shown = run(capsys, "inspect", out, "--json")[1]
    assert '"labels without rows": 4' in shown and '"zero_weight"' in shown
    explained = run(capsys, "explain", out, f"{topic(UNSEEN[0])} word2", "--label", f"L{UNSEEN[0]}", "--json")[1]
    assert '"label text"' in explained and f'"words": ["{topic(UNSEEN[0])}"]' in explained
    unknown_words = f"{topic(UNSEEN[0])} {subject(UNSEEN[0])}".encode()  # to all but the label texts
    predicted = run(capsys, "predict", out, "-", "--k", "3", stdin=unknown_words)[1]
    assert f'"L{UNSEEN[0]}"' in predicted
    bad = run(capsys, "train", data, "--label-language", "en", *options)
    assert is_one_line_error(bad, "--label-language is that of --label-text")
    described.write_text("other\tsomething else\n")
    bad = run(capsys, "train", data, "--label-text", described, *options)
    assert bad[0] == 2 and "none of the data's 26 labels, such as 'L0', is among the 1 with a text" in bad[2]


def test_raised_scores_can_be_raised_again():
    generator = torch.Generator().manual_seed(0)
    codebook, h = OrbitCodebook(50, 16, 0), torch.randn(4, 16, generator=generator)
    drawn = [
        (torch.rand(4, 6, generator=generator), torch.rand(4, 50, generator=generator).argsort(1)[:, :6]) for _ in "12"
    ]
    nested = AddedScores(AddedScores(codebook, *drawn[0]), *drawn[1])
    scores = codebook.scores(h)
    for values, labels in drawn:
        scores = scores.scatter_add(1, labels, values)
    torch.testing.assert_close(nested.scores(h), scores)
    torch.testing.assert_close(nested.top_k(h, 8)[0], scores.topk(8).values)
    torch.testing.assert_close(nested.part(slice(1, 3)).scores(h[1:3]), scores[1:3])
    some = torch.arange(12).view(4, 3)
    torch.testing.assert_close(nested.scores_of(h, some), scores.gather(1, some))


def test_new_labels_of_an_update_are_found_by_their_name_or_by_given_texts():
    updatable = model(update=True)
    n_texts = updatable.label_text.n_texts
    given = {"named": ["named", "otherwise called"], "rowless": ["rowless", "zebra crossing"], name(0): "unused"}
    texts = ["word1 word2 anything", "word3 word4 anything"]
    after = updatable.update(texts, [["brand new"], ["named"]], label_texts=given)
    assert after.label_names[N_LABELS:] == ["brand new", "named", "rowless"]
    assert after.frequencies.counts[N_LABELS:].tolist() == [1, 1, 0] and after.label_text.n_texts == n_texts + 5
    queries = ["brand new word7", "otherwise called word8", "a zebra crossing word9"]
    assert after.top_k(queries, 1)[1][:, 0].tolist() == [N_LABELS, N_LABELS + 1, N_LABELS + 2]
    before = updatable.label_text.index.toarray()
    np.testing.assert_array_equal(after.label_text.index[:n_texts, : before.shape[1]].toarray(), before)
    assert after.label_text.index[:n_texts].nnz == updatable.label_text.index.nnz  # old texts have no new words
    assert updatable.label_text.n_texts == n_texts and updatable.n_labels == N_LABELS


def test_labels_are_added_by_their_text_without_any_row():
    after = model(update=True).update([], [], label_texts={name(0): name(0), "rowless": ["rowless", "zebra crossing"]})
    assert after.n_labels == N_LABELS + 1 and after.frequencies.n_rows == 300
    assert after.top_k(["a zebra crossing"], 1)[1].tolist() == [[N_LABELS]]
    with pytest.raises(OptionError, match="has no texts of its labels"):
        without_texts().update([], [], label_texts={"a": "b"})


def test_a_forgotten_label_is_not_found_by_its_text_and_its_id_gets_other_texts():
    unseen = N_LABELS - 1
    forgotten = model(update=True).forget(labels=[name(unseen)])
    text = f"{topic(unseen)} {subject(unseen)}"
    assert unseen not in forgotten.top_k([text], 5)[1]
    reused = forgotten.update(["word5 word6"], [["brand new"]])
    assert reused.label_names[unseen] == "brand new" and reused.n_labels == N_LABELS
    scores = reused.scores([text, "brand new word7"])[:, unseen]
    assert scores[1] > scores[0] + 0.1


def test_the_command_line_adds_labels_by_their_text(tmp_path, capsys):
    path, texts = tmp_path / "m.safetensors", tmp_path / "texts.json"
    model(update=True).save(path)
    texts.write_text(json.dumps({name(0): [name(0)], "rowless": ["rowless", "zebra crossing"]}))
    code, out, _ = run(capsys, "update", path, "--label-text", texts, "--json")
    assert code == 0 and json.loads(out)["new labels"] == 1
    assert hb.load(path).top_k(["zebra crossing"], 1)[1].tolist() == [[N_LABELS]]
    assert is_one_line_error(run(capsys, "update", path, "--label-language", "en", "--reject", texts), "--label-text")
    assert is_one_line_error(run(capsys, "update", path), "--label-text with new labels")


def test_the_score_of_a_label_without_rows_has_no_crosstalk():
    label_text = LabelText.fit(label_texts(), corpus()[0])
    rows = label_text.rows([f"{topic(29)} {subject(29)} word1"] * 6)
    best = np.tile(np.linspace(2, 1, 6, dtype=np.float32), (6, 1)), np.tile(np.arange(6), (6, 1))
    counts = np.where(np.arange(N_LABELS) < 26, 5, 0)
    codebook, h = OrbitCodebook(N_LABELS, 16), 0.3 * torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    values, labels = label_text.added(rows, *best, counts, codebook, h)
    found = AddedScores(codebook, torch.from_numpy(values), torch.from_numpy(labels)).scores(h)[:, 29]
    assert codebook.scores(h)[:, 29].std() > 0.1 and found.std() < 1e-5 and 1 < found[0] < 2


def test_a_new_label_of_partial_fit_is_found_by_its_name():
    documents, labels = corpus(n=60)
    named, texts = [[name(i) for i in own] for own in labels], {name(i): own for i, own in enumerate(label_texts())}
    classifier = hb.HolographicClassifier(text=True, l2=1.0, knn_weight=0.5, label_texts=texts)
    classifier.partial_fit(documents, named).partial_fit(["word1 word2"], [["zebra crossing"]])
    assert classifier.predict_names(["the zebra at the crossing"], k=1) == [["zebra crossing"]]
