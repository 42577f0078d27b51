"""The examples run at their small size, learn something, and load what they say they load."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

import holobind as hb

FOLDER = Path(__file__).parent.parent.parent / "examples"
pytestmark = pytest.mark.usefixtures("one_thread")


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(name):
    """What the example returns, which is JSON."""
    found = example(name).main(["--small"])
    assert json.loads(json.dumps(found)) == found
    return found


def test_every_example_is_in_the_table_and_has_a_small_size():
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert {
        line.split("`")[1][:-3] for line in (FOLDER / "README.md").read_text().splitlines() if ".py`" in line
    } == names
    assert all("--small" in path.read_text() for path in FOLDER.glob("*.py"))


def test_the_plain_loop_learns_with_both_heads():
    results = run("plain_loop")["results"]
    assert results["HolographicHead"]["output layer weights"] < results["nn.Linear"]["output layer weights"] / 2
    assert all(found["P@5"] > 6 for found in results.values())  # chance: about 2, as rows have 4 of 224 labels


def test_next_items_are_found_by_all_output_layers():
    found = run("next_item")
    by_chance = 4.6 / found["items"]  # the NDCG@10 of ten random items
    assert all(result["NDCG@10"] > 3 * by_chance for result in found["results"].values())
    weights = {kind: result["output layer weights"] for kind, result in found["results"].items()}
    assert weights["holographic"] < weights["linear, full"] / 10


def test_the_language_models_learn():
    found = run("language_model")
    assert all(result["perplexity"] < 0.9 * found["vocabulary"] for result in found["results"].values())
    assert found["results"]["holographic, tied"]["weights"] < found["results"]["linear, tied"]["weights"]


def test_classes_are_found_among_thousands():
    found = run("million_classes")
    assert found["accuracy"] > 0.5
    assert found["output layer weights"] < found["nn.Linear would have"] / 50


# The loaders of next_item


def test_films_come_in_order_of_time(tmp_path):
    path = tmp_path / "ratings.dat"
    path.write_text("1::1193::5::978300760\n1::661::3::978300759\n2::1357::5::978298709\n1::914::3::978300761\n")
    module = example("next_item")
    assert module.movielens_sequences(path) == [["661", "1193", "914"], ["1357"]]
    path.write_text("1::1193::5::978300760\n1,661,3,978300759\n")
    with pytest.raises(SystemExit, match=r"ratings.dat:2: wants UserID::MovieID::Rating::Timestamp, got '1,661"):
        module.movielens_sequences(path)


def test_calls_come_in_order_of_the_source():
    source = b"def f(x):\n    a = g(h(x))\n    return a.append(len(a))\n\nclass C:\n    async def k(self): print()\n"
    assert list(example("next_item").calls_in_order(source)) == [["h", "g", "len", "append"], ["print"]]
    assert list(example("next_item").calls_in_order(b"def f(:")) == []
    nested = b"def f():\n    a()\n    def g():\n        b()\n    c()\n"
    assert list(example("next_item").calls_in_order(nested)) == [["a", "c"], ["b"]]


def test_sequences_become_ids_padded_on_the_left():
    rows, names = example("next_item").to_ids([list("abcab"), list("abcdaab"), ["a"]], 2, 4)
    assert names[:3] == ["a", "b", "c"]
    assert rows.tolist() == [[-100, 0, 1, 2, 0, 1], [0, 1, 2, 0, 0, 1]]


def test_the_sampled_softmax_is_the_full_one_where_every_item_is_drawn(monkeypatch):
    module = example("next_item")
    head, h, y = torch.nn.Linear(4, 6), torch.randn(2, 3, 4), torch.tensor([[0, 5, -100], [1, 2, 3]])
    monkeypatch.setattr(torch, "randint", lambda *_: torch.arange(6))
    torch.testing.assert_close(module.sampled_softmax(head, h, y), module.full_softmax(head, h, y))


# The Hugging Face model, whose Trainer needs accelerate


def tagger_batch(module):
    rows = [{"input_ids": [5, 6, 7], "labels": np.array([1, 3])}, {"input_ids": [8], "labels": np.array([2])}]
    return module.collate([*rows, {"input_ids": [9, 9], "labels": np.array([], int)}])


def test_both_heads_of_the_hugging_face_model_have_the_cross_entropy_of_even_probabilities(tmp_path):
    pytest.importorskip("transformers")
    module = example("hugging_face_trainer")
    options = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    Y = sparse.csr_array(np.eye(7, dtype=np.int32))
    for head in ("linear", "holographic"):
        model = module.build(head, hb.Split(Y, Y, None), options, None, 8).eval()
        batch = tagger_batch(module)
        assert batch["labels"].tolist() == [[1, 3], [2, -100], [-100, -100]]
        found = model(**batch)
        states = model.bert(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        mean = torch.stack([states[0, :3].mean(0), states[1, 0], states[2, :2].mean(0)])
        logits = model.classifier(mean) if head == "linear" else model.classifier.logits(mean)
        exact = -(logits.log_softmax(1)[0, [1, 3]].mean() + logits.log_softmax(1)[1, 2]) / 3
        torch.testing.assert_close(found["loss"], exact, atol=1e-4, rtol=1e-4)
        assert torch.equal(found["logits"], logits.topk(5).indices)
        model.save_pretrained(tmp_path / head)
        loaded = module.Tagger.from_pretrained(tmp_path / head)
        torch.testing.assert_close(loaded(**batch)["loss"], found["loss"])


def test_the_hugging_face_trainer_trains_both_heads():
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    found = run("hugging_face_trainer")
    assert set(found["results"]) == {"linear", "holographic"}


def test_an_encoder_is_fine_tuned_beside_the_closed_form():
    pytest.importorskip("transformers")
    found = run("fine_tune_encoder")["results"]
    assert set(found) == {"linear", "holographic"}
    for result in found.values():
        held_out = result["held out"]
        assert held_out[result["chosen"]]["P@1"] >= 0.9 * held_out["closed form"]["P@1"] > 5
        assert set(result["test"]) == set(held_out) >= {"fine-tuned alone", "features, in place", "features, beside"}


def test_a_fine_tuned_encoder_embeds_a_row_without_having_seen_its_labels(monkeypatch):
    pytest.importorskip("transformers")
    module = example("fine_tune_encoder")
    seen = []
    monkeypatch.setattr(module, "fine_tune", lambda encoder, head, Y, rows, *_: seen.append(set(rows.tolist())))
    encoder = module.build_encoder([f"text {i}" for i in range(30)], 1, 8, small=True)
    calls, embed = [], encoder.embed
    monkeypatch.setattr(encoder, "embed", lambda rows: calls.append(rows) or embed(rows) + len(calls))
    rows, Y = np.arange(4, 24), sparse.csr_array(np.eye(3, dtype=np.float32)[np.arange(30) % 3])
    args = argparse.Namespace(folds=2, loss="squares", epochs=1, rate=1e-3)
    tuned = module.FineTuned(encoder, "holographic", Y, rows, args)
    assert len(seen) == 2 and set.union(*seen) == set(rows.tolist()) and not set.intersection(*seen)
    for row in rows.tolist():
        (blind,) = [E for (_, E), used in zip(tuned.heads, seen, strict=True) if row not in used]
        torch.testing.assert_close(tuned.embeddings[row], blind[row])


def test_the_heads_of_the_fine_tuned_encoder_start_at_one_ridge_regression():
    """Where labels are no more than dims, both heads have the same scores before they are trained."""
    pytest.importorskip("transformers")
    module = example("fine_tune_encoder")
    E = torch.nn.functional.normalize(torch.randn(40, 6, generator=torch.Generator().manual_seed(0)), dim=1)
    Y = np.random.default_rng(0).random((40, 9)) < 0.3
    Y[np.arange(40), np.arange(40) % 9] = True  # no row without labels: a holographic head counts none of them
    Y = sparse.csr_array(Y.astype(np.float32))
    linear, holographic = (module.solved_head(name, E, Y) for name in ("linear", "holographic"))
    torch.testing.assert_close(linear.scores(E), holographic.scores(E), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(linear.loss(E, Y), holographic.loss(E, Y), atol=1e-3, rtol=1e-3)
    assert linear.loss(E, Y) < (torch.from_numpy(Y.toarray())).square().sum(1).mean()


def test_the_lightning_module_learns():
    pytest.importorskip("lightning")
    found = run("lightning_module")
    assert found["accuracy"] > 0.5 and found["perplexity"] < found["labels"]
