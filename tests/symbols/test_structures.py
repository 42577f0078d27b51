"""Each structure decodes to what was encoded, with honest error probabilities."""

import pytest
import torch

import holobind as hb
from holobind.symbols.structures import Bag, Record, Sequence, Stack, Tree
from holobind.symbols.vsa import MAPC, VTB

LETTERS = [chr(ord("a") + i) for i in range(26)]


@pytest.fixture
def v():
    vocabulary = hb.Vocabulary(2048, seed=1)
    for letter in LETTERS:
        vocabulary[letter]
    return vocabulary


def names(answers):
    return [answer.name for answer in answers]


def test_a_bag_decodes_to_names_with_counts(v):
    found = Bag(v).decode(Bag(v).encode(["a", "b", "a", "c", "a"]))
    assert {answer.name: round(answer.response) for answer in found} == {"a": 3, "b": 1, "c": 1}


def test_an_empty_bag_decodes_to_no_names(v):
    assert Bag(v).decode(Bag(v).encode([])) == []


def test_a_record_decodes_by_role_and_by_path(v):
    S = Record(v).encode({"name": "Jane", "pet": {"kind": "cat", "colour": "red"}})
    found = Record(v).decode(S, "name", "pet*kind", "pet*colour")
    assert {path: answer.name for path, answer in found.items()} == {
        "name": "Jane",
        "pet*kind": "cat",
        "pet*colour": "red",
    }


def test_a_vtb_record_decodes_its_roles_and_refuses_paths():
    v = hb.Vocabulary(1024, vsa="vtb")
    S = Record(v).encode({"name": "Jane", "pet": {"kind": "cat", "colour": "red"}})
    assert Record(v).decode(S, "name")["name"].name == "Jane"
    with pytest.raises(hb.OptionError, match=r"'pet\*kind' cannot be unbound: VTB\(\) does not commute"):
        Record(v).decode(S, "pet*kind")
    pet = VTB().unbind(S, v["pet"])
    assert Record(v).decode(pet, "kind")["kind"].name == "cat"


def test_a_tree_is_decoded_to_a_maximal_depth(v):
    S = Tree(v).encode(("a", ("b", "c")))
    assert isinstance(Tree(v).decode(S, max_depth=1)[1], hb.Answer)


@pytest.mark.parametrize("word", ["", "a", "banana", "thequickbrownfox"])
def test_a_sequence_keeps_order_and_repetition(v, word):
    assert "".join(names(Sequence(v).decode(Sequence(v).encode(word)))) == word
    assert "".join(names(Sequence(v).decode(Sequence(v).encode(word), length=len(word)))) == word


def test_a_stack_pops_the_last_name_first(v):
    stack = Stack(v).encode("abca")
    assert names(Stack(v).decode(stack)) == list("abca")
    top, below = Stack(v).pop(stack)
    assert top.name == "a"
    assert names(Stack(v).decode(below)) == list("abc")
    assert not Stack(v).pop(Stack(v).empty())[0].present


def test_a_tree_keeps_its_shape(v):
    tree = (("a", "b"), ("c", ("d", "a")))
    S = Tree(v).encode(tree)

    def plain(decoded):
        return decoded.name if isinstance(decoded, hb.Answer) else tuple(plain(side) for side in decoded)

    assert plain(Tree(v).decode(S)) == tree
    assert Tree(v).ask(S, "right", "right", "left").name == "d"
    assert Tree(v).decode(Tree(v).encode("a")).name == "a"


def test_roles_of_structures_are_never_answers(v):
    Sequence(v).encode("abc")
    Tree(v).encode(("a", "b"))
    assert list(v) == LETTERS


def test_structures_work_on_a_large_vocabulary():
    large = hb.LargeVocabulary([f"word{i}" for i in range(5000)], dim=1024)
    words = ["word17", "word4321", "word17"]
    assert names(Sequence(large).decode(Sequence(large).encode(words))) == words


def test_the_expected_error_is_the_fraction_of_wrong_answers():
    wrong, expected, count = 0, 0.0, 0
    for seed in range(60):
        v = hb.Vocabulary(128, seed)
        for letter in LETTERS:
            v[letter]
        order = torch.randint(26, (20,), generator=torch.Generator().manual_seed(seed)).tolist()
        word = [LETTERS[i] for i in order]
        for true, answer in zip(word, Sequence(v).decode(Sequence(v).encode(word), length=20), strict=True):
            wrong += answer.name != true
            expected += answer.error
            count += 1
    assert wrong > 0
    assert wrong / count == pytest.approx(expected / count, abs=0.05)


def test_gradients_flow_through_an_encoded_structure(v):
    v.add("x", torch.nn.Parameter(v["a"].clone()))
    assert torch.autograd.grad(Sequence(v).encode(["x", "b"]).square().sum(), v["x"])[0].abs().sum() > 0


def test_wrong_arguments_are_refused(v):
    with pytest.raises(hb.OptionError, match="need a vocabulary of an HRR system; the vsa of this one is MAPC"):
        Sequence(hb.Vocabulary(16, vsa=MAPC())).encode("ab")
    with pytest.raises(hb.OptionError, match="a side must be 'left' or 'right', got 'up'"):
        Tree(v).ask(v["a"], "up")
    with pytest.raises(hb.OptionError, match="must have two sides, got 3"):
        Tree(v).encode(("a", "b", "c"))
