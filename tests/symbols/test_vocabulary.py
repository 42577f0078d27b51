"""Names, statements and queries; the examples of the paper hold."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close

import holobind as hb
from holobind.symbols.vsa import HRR, MAPC, SYSTEMS, VTB, UnitaryHRR

JANE_AND_JOE = "first*(name*Jane + age*30) + second*(name*Joe + age*33)"
DOG = "legs_key*legs + tail_key*tail + head_key*(eyes_key*eyes + nose_key*nose + mouth_key*mouth)"


@pytest.fixture
def v():
    return hb.Vocabulary(512, seed=0)


# Names.


def test_the_vector_of_a_name_does_not_depend_on_the_order_of_creation(v):
    other = hb.Vocabulary(512, seed=0)
    first = [v[name] for name in ("red", "cat", "dog")]
    last = [other[name] for name in ("dog", "cow", "cat", "red")]
    assert torch.equal(first[0], last[3])
    assert torch.equal(first[2], last[0])
    assert not torch.equal(hb.Vocabulary(512, seed=1)["red"], v["red"])


def test_a_vocabulary_is_a_collection_of_names(v):
    assert len(v) == 0
    assert "red" not in v
    assert v.vectors.shape == (0, 512)
    v.parse("red*cat")
    assert list(v) == ["red", "cat"]
    assert "red" in v
    assert_close(v.vectors, torch.stack([v["red"], v["cat"]]))
    assert repr(v) == "Vocabulary(dim=512, seed=0, 2 names)"


def test_vectors_are_drawn_by_the_system_of_the_vocabulary():
    assert_close(hb.Vocabulary(64)["a"], hb.unitary(hb.Vocabulary(64)["a"]))
    assert hb.Vocabulary(64, vsa=MAPC())["a"].abs().max() <= 1
    with pytest.raises(hb.ShapeError, match="perfect square, got 15"):
        hb.Vocabulary(15, vsa=VTB())


def test_a_system_is_given_by_its_name_or_as_an_instance():
    for name, system in SYSTEMS.items():
        assert hb.Vocabulary(16, vsa=name).vsa == hb.Vocabulary(16, vsa=system).vsa == system
    assert hb.Vocabulary(16).vsa == UnitaryHRR()


@pytest.mark.parametrize(
    ("vsa", "found"),
    [("bsc", "'bsc'"), ("VTB", "'VTB'"), (3, "3"), (None, "None"), (hb, "<module"), (VTB, "did you mean VTB()?")],
)
def test_any_other_system_is_refused_with_what_is_allowed(vsa, found):
    with pytest.raises(hb.OptionError) as caught:
        hb.Vocabulary(16, vsa=vsa)
    message = str(caught.value)
    assert "vsa must be one of 'unitary-hrr', 'hrr-exact'" in message
    assert "or a VSA instance such as holobind.vsa.VTB()" in message
    assert found in message
    assert "\n" not in message


def test_attributes_create_no_names(v):
    v.parse("red*cat")
    for name in ("ndim", "rde", "blue", "__array__", "_private"):
        assert not hasattr(v, name)
    assert list(v) == ["red", "cat"]
    assert_close(v.red.vector, v["red"])
    with pytest.raises(AttributeError, match=r"'rde' is neither an attribute nor a name.*did you mean red\?"):
        _ = v.rde
    with pytest.raises(AttributeError, match=r"v\['zebra'\] creates it"):
        _ = v.zebra
    large = hb.LargeVocabulary(["cat", "dog"], dim=32)
    assert_close(large.cat.vector, large["cat"])
    assert not hasattr(large, "cow")


def test_a_vocabulary_can_be_copied(v):
    v.parse("red*cat")
    assert torch.equal(copy.deepcopy(v)["red"], v["red"])
    assert list(pickle.loads(pickle.dumps(v))) == ["red", "cat"]


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 1001, 3])
def test_a_name_must_be_printable_text(v, name):
    with pytest.raises(hb.OptionError, match="1 to 1000 printable characters"):
        v[name]


def test_add_takes_a_vector_or_draws_it_from_the_seed(v):
    v.add("Jane", hb.identity(512))
    v.add("Jane")
    assert torch.equal(v["Jane"], hb.identity(512))
    v.add("red")
    assert "red" in v
    assert torch.equal(v["red"], hb.Vocabulary(512)["red"])
    with pytest.raises(hb.ShapeError, match=r"'Joe' must have shape \(512,\), got \(3,\)"):
        v.add("Joe", torch.ones(3))


# Statements.


@pytest.mark.parametrize("system", [UnitaryHRR(), HRR(), HRR("approximate"), VTB(), MAPC()], ids=repr)
def test_operators_and_text_give_the_same_vector(system):
    v = hb.Vocabulary(64, vsa=system)
    for name in ("red", "cat", "blue", "dog", "cow"):
        v.add(name)
    by_operators = v.red * v.cat + 0.5 * v.blue * v.dog - ~v.red * v.cow * 2.0
    assert_close(by_operators.vector, v.parse("red*cat + 0.5*blue*dog - 2.0*~red*cow"))
    assert_close((-v.red).vector, -v["red"])


def test_several_statements_are_a_batch(v):
    texts = ["red*cat", "red*dog + blue*cat"]
    batch = v.parse(texts)
    assert batch.shape == (2, 512)
    for statements in (batch, texts):
        assert [answers[0].name for answers in v.ask_batch(statements, "red")] == ["cat", "dog"]


def test_strict_statements_have_known_names_only(v):
    v.parse("red*cat")
    assert_close(v.parse("red*cat", strict=True), v.parse("red*cat"))
    for text in ("red*dog", ["red*cat", "red*dog"]):
        with pytest.raises(hb.UnknownNameError, match="'dog' is not among the 2 names"):
            v.parse(text, strict=True)
    assert list(v) == ["red", "cat"]


# Queries: the examples of the paper.


def test_the_red_one_is_the_cat(v):
    answers = v.ask("red*cat + blue*dog", "red")
    assert answers[0].name == "cat"
    assert answers[0].present
    assert not any(answer.present for answer in answers[1:])
    assert answers[0].response == pytest.approx(1, abs=0.2)
    assert [answer.similarity for answer in answers] == sorted((a.similarity for a in answers), reverse=True)


def test_the_name_of_the_first_and_the_age_of_the_second(v):
    S = v.parse(JANE_AND_JOE)
    assert v.ask(S, "first*name")[0].name == "Jane"
    assert v.ask(S, "second*age")[0].name == "33"
    assert v.contains(S, "first*name*Jane")
    assert not v.contains(S, "second*name*Jane")


def test_a_dog_has_legs_and_the_full_path_to_its_eyes_has_the_stronger_response():
    v = hb.Vocabulary(2048)
    dog = v.parse(DOG)
    assert v.ask(dog, "legs_key")[0].name == "legs"
    assert v.contains(dog, "legs_key*legs")
    full = {answer.name: answer for answer in v.ask(dog, "head_key*eyes_key", k=len(v))}["eyes"]
    short = {answer.name: answer for answer in v.ask(dog, "eyes_key", k=len(v))}["eyes"]
    assert full.present
    assert full.response > short.response + 0.5


def test_a_statement_can_be_a_statement_object_a_tensor_or_text(v):
    v.parse("red*cat + blue*dog")
    S = v.red * v.cat + v.blue * v.dog
    for statement in (S, S.vector, "red*cat + blue*dog"):
        assert v.ask(statement, "blue")[0].name == "dog"
    assert v.ask(S, v["blue"])[0].name == "dog"


# Queries where binding does not commute.


def test_a_vtb_statement_is_asked_with_the_right_operand():
    v = hb.Vocabulary(1024, vsa="vtb")
    text = "cat*red + dog*blue"
    assert v.ask(text, "red")[0].name == "cat"
    assert v.ask_batch([text], "blue")[0][0].name == "dog"
    for call in (lambda: v.ask(text, "cat"), lambda: v.ask_batch([text], "cat")):
        with pytest.raises(
            hb.OptionError, match=r"'cat' is the right operand of no \*.*VTB\(\) does not commute"
        ) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not v.ask(v.parse(text), "cat")[0].present  # operands of a vector are not known: noise
    assert v.ask(v.vsa.swap(v.parse(text)), "cat")[0].name == "red"


def test_a_path_in_a_vtb_statement_is_asked_one_key_at_a_time():
    v = hb.Vocabulary(1024, vsa="vtb")
    text = "(Jane*name + 30*age)*first"
    with pytest.raises(hb.OptionError, match="unbind a path one key at a time"):
        v.ask(text, "first*name")
    first = v.vsa.unbind(v.parse(text), v["first"])
    assert v.ask(first, "name")[0].name == "Jane"


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.commutative])
def test_both_operands_can_be_asked_where_binding_commutes(name):
    v = hb.Vocabulary(1024, vsa=name)
    assert v.ask("red*cat", "red")[0].name == "cat"
    assert v.ask("red*cat", "cat")[0].name == "red"


# Confidence and expected error.


def test_confidence_is_calibrated():
    """Over many statements, a fraction p of the answers with confidence p is present."""
    names = [f"n{i}" for i in range(30)]
    bands = {}
    for seed in range(100):
        v = hb.Vocabulary(64, seed)
        v.parse(names)
        keys, values, others = names[:10], names[10:20], names[20:]
        S = v.parse(" + ".join(f"{key}*{value}" for key, value in zip(keys, values, strict=True)))
        for key, value, other in zip(keys, values, others, strict=True):
            answers = {answer.name: answer for answer in v.ask(S, key, k=30)}
            for name, present in ((value, True), (other, False)):  # equal prior probabilities
                bands.setdefault(round(answers[name].confidence * 4), []).append(present)
    assert sorted(bands) == [0, 1, 2, 3, 4]
    for band, outcomes in bands.items():
        assert sum(outcomes) / len(outcomes) == pytest.approx(band / 4, abs=0.13), (band, len(outcomes))


def test_error_is_the_expected_fraction_of_wrong_answers():
    n, wrong, expected = 24, 0, 0.0
    for trial in range(20):
        names = [f"t{trial}n{i}" for i in range(2 * n)]
        fresh = hb.Vocabulary(256, seed=trial)
        S = fresh.parse(" + ".join(f"{names[i]}*{names[n + i]}" for i in range(n)))
        for i in range(n):
            best = fresh.ask(S, names[i], k=1)[0]
            wrong += best.name != names[n + i]
            expected += best.error
    assert wrong / (20 * n) == pytest.approx(expected / (20 * n), abs=0.06)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda v: v.ask("red*cat", "rde"), hb.UnknownNameError, "'rde' is not among the 2 names.*did you mean red"),
        (lambda v: v.contains("red*cat", "zebra"), hb.UnknownNameError, "use it in a statement first, or add it"),
        (lambda v: v.ask(torch.ones(3), "red"), hb.ShapeError, r"has 512 dimensions, got shape \(3,\)"),
        (lambda v: v.ask(torch.ones(2, 512), v["red"]), hb.ShapeError, "use ask_batch"),
        (lambda v: v.ask("red*cat", "red", k=0), hb.OptionError, "k must be at least 1, got 0"),
        (lambda v: v.clean_up(torch.ones(512)), hb.UnknownNameError, "has no names yet"),
    ],
)
def test_wrong_queries_are_refused(v, call, error, message):
    with pytest.raises(error, match=message):
        call(v)


# Learning.


def test_a_role_vector_is_learned_by_gradient_descent():
    """The key is found from statements and the fillers that are bound with it."""
    v = hb.Vocabulary(128)
    animals = ["cat", "dog", "cow", "hen"]
    batch = v.parse([f"colour*{animal} + size*x{i}" for i, animal in enumerate(animals)]).detach()
    wanted = torch.stack([v[animal] for animal in animals])
    role = torch.nn.Parameter(hb.random(1, 128, torch.Generator().manual_seed(0))[0])
    optimiser = torch.optim.Adam([role], lr=0.02)
    for _ in range(200):
        optimiser.zero_grad()
        loss = -hb.similarity(hb.unbind(batch, hb.unitary(role)), wanted).mean()
        loss.backward()
        optimiser.step()
    v.add("learned", hb.unitary(role))
    assert [answers[0].name for answers in v.ask_batch(batch, "learned")] == animals
    assert hb.similarity(v["learned"], v["colour"]) > 0.9


# Large vocabularies.


def test_a_large_vocabulary_agrees_with_a_comparison_with_every_vector():
    v = hb.LargeVocabulary([f"name{i}" for i in range(1000)], dim=96, seed=3)
    vectors = v.vectors
    assert_close(vectors.norm(dim=-1), torch.ones(1000))
    S = v.parse("name7*name900 + name500*name501")
    answer = hb.unbind(S, v["name7"])
    best = (vectors @ answer).topk(5).indices.tolist()
    assert [found.name for found in v.ask(S, "name7")] == [f"name{i}" for i in best]
    assert best[0] == 900
    assert len(v) == 1000
    assert "name999" in v


def test_pairs_of_a_large_vocabulary_do_not_answer_queries_for_other_pairs():
    """Rolls of one base vector bind to rolls of its square: unshuffled, 12*34 would answer the query 7 with 39."""
    v = hb.LargeVocabulary([f"name{i}" for i in range(500)], dim=512)
    answers = v.ask("name7*name450 + name12*name34", "name7", k=500)
    assert answers[0].name == "name450"
    assert {answer.name: answer for answer in answers}["name39"].response == pytest.approx(0, abs=0.3)


def test_other_names_in_a_large_vocabulary_are_roles_and_never_answers():
    v = hb.LargeVocabulary(["Paris", "Rome", "euro"], dim=256)
    S = v.parse("capital*Paris + currency*euro")
    assert v.ask(S, "capital")[0].name == "Paris"
    assert {answer.name for answer in v.ask(S, "capital", k=10)} == {"Paris", "Rome", "euro"}
    assert_close(v["capital"], hb.unitary(v["capital"]))
    with pytest.raises(hb.UnknownNameError, match="'captial'"):
        v.ask(S, "captial")
    with pytest.raises(hb.OptionError, match="names of a LargeVocabulary are fixed, got 'cow'"):
        v.add("cow", torch.ones(256))
    with pytest.raises(hb.OptionError, match="names must be distinct, got 1 duplicates"):
        hb.LargeVocabulary(["cat", "cat"], dim=32)
    with pytest.raises(hb.OptionError, match="at least one name"):
        hb.LargeVocabulary([], dim=32)


# Files.


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_a_saved_vocabulary_is_loaded_unchanged(tmp_path, system):
    v = hb.Vocabulary(64, seed=5, vsa=system)
    S = v.parse("red*cat + 'big dog'*größe")
    v.add("mine", torch.nn.Parameter(torch.ones(64)))
    v.save(tmp_path / "v.safetensors")
    back = hb.Vocabulary.load(tmp_path / "v.safetensors")
    assert list(back) == list(v)
    assert torch.equal(back.vectors, v.vectors)
    assert back.vsa == system
    assert back.ask(S, "red") == v.ask(S, "red")
    assert torch.equal(back["new"], v["new"])
    assert list(tmp_path.iterdir()) == [tmp_path / "v.safetensors"]


def test_a_large_vocabulary_is_saved_as_its_names(tmp_path):
    v = hb.LargeVocabulary([f"name{i}" for i in range(5000)], dim=256, seed=2)
    v.save(tmp_path / "v.safetensors")
    assert (tmp_path / "v.safetensors").stat().st_size < 100_000
    back = hb.Vocabulary.load(tmp_path / "v.safetensors")
    assert isinstance(back, hb.LargeVocabulary)
    assert torch.equal(back["name4999"], v["name4999"])
