"""Options: one table, from which the command line, the estimator, the model file and the docs take them."""

import inspect
import math

import pytest
from helpers.options_table import shown, table

import holobind as hb
from holobind.cli import train as train_cli
from holobind.training.config import (
    COMMAND_LINE_ONLY,
    ESTIMATOR_ONLY,
    MODEL_OPTIONS,
    OPTIONS,
    TRAIN_OPTIONS,
    ModelConfig,
    TrainConfig,
    join_options,
    split_options,
)


def test_every_option_of_the_table_is_on_the_command_line_and_no_other_is():
    names = [name for name in inspect.signature(train_cli.train).parameters if name != "data"]
    own = {name.removeprefix("as_") for name in names} - set(OPTIONS)
    assert own == set(COMMAND_LINE_ONLY)
    assert set(OPTIONS) <= set(names)


def test_the_estimator_has_the_options_of_the_table_with_their_defaults():
    parameters = inspect.signature(hb.HolographicClassifier.__init__).parameters
    assert list(parameters) == ["self", *OPTIONS, *ESTIMATOR_ONLY]
    for name, option in OPTIONS.items():
        if name != "text":  # off by default: X is a matrix of features
            assert parameters[name].default == option.default, name


def test_the_docs_show_the_table():
    assert shown() == table(), "run tests/helpers/options_table.py"


def test_a_model_stores_the_options_of_the_table(tmp_path):
    data = hb.data.synthetic("bibtex", scale=0.02)
    model = hb.learn(data.train, ModelConfig(network="fc", hidden=(8,), dim=8), TrainConfig(epochs=1))
    model.save(tmp_path / "model")
    stored = hb.load(tmp_path / "model").metadata["config"]
    assert set(stored) <= set(OPTIONS)
    assert stored["network"] == "fc" and stored["epochs"] == 1 and stored["dim"] == 8


def test_only_the_seed_belongs_to_both_configs():
    assert set(MODEL_OPTIONS) & set(TRAIN_OPTIONS) == {"seed"}


def test_options_split_into_two_configs_and_join_again():
    options = {"network": "fc", "dim": 7, "epochs": 3, "seed": 5, "hidden": (4, 5)}
    model, train = split_options(options)
    assert (model.dim, model.seed, train.epochs, train.seed) == (7, 5, 3, 5)
    joined = join_options(model, train)
    assert {name: joined[name] for name in options} == options
    assert split_options(joined) == (model, train)


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(hb.OptionError, match="there is no option 'lambda'"):
        split_options({"lambda": 1.0})


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "value", [object(), math.nan, "nonsense", -1, [-1]], ids=["object", "nan", "text", "-1", "list"]
)
def test_a_wrong_value_is_refused_in_one_line_that_names_the_option(name, value):
    if name in ("word_vectors", "encoder") and value == "nonsense":
        pytest.skip("any string may be a path")
    with pytest.raises(hb.OptionError) as refused:
        split_options({name: value})
    assert str(refused.value).startswith(f"{name} must be {OPTIONS[name].values.allowed}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_a_default_is_one_of_the_allowed_values_or_is_described_in_words(option):
    assert option.shown if option.default is None else option.values.holds(option.default)


def test_what_is_not_given_is_chosen_by_the_rows_and_the_network():
    few, many = TrainConfig().resolve(100), TrainConfig().resolve(10**6)
    assert (few.epochs, few.batch_size, many.epochs, many.batch_size) == (30, 32, 5, 512)
    fc, cnn = (TrainConfig().resolve(100, ModelConfig(network=name, loss="softmax")) for name in ("fc", "cnn"))
    assert (fc.learning_rate, fc.feature_learning_rate) == (1e-3, 1e-2)
    assert (cnn.learning_rate, cnn.feature_learning_rate) == (3e-3, None)
    assert (fc.label_learning_rate, cnn.label_learning_rate) == pytest.approx((1e-4, 3e-4))
    default = TrainConfig().resolve(50_000, ModelConfig(network="fc"))
    assert (default.learning_rate, default.feature_learning_rate, default.epochs) == (1e-3, None, 2)
    assert (default.metric, fc.metric) == ("nDCG@5", "P@1")
    given = TrainConfig(learning_rate=0.5).resolve(100, ModelConfig(network="fc"))
    assert (given.learning_rate, given.feature_learning_rate) == (0.5, None)


def test_the_learning_rate_rises_then_falls_to_0_like_a_cosine():
    config = TrainConfig(warmup=0.1)
    assert config.schedule(0.05) == pytest.approx(0.5)
    assert config.schedule(0.1) == pytest.approx(1.0)
    assert config.schedule(0.55) == pytest.approx(0.5)
    assert config.schedule(1.0) == pytest.approx(0.0)
