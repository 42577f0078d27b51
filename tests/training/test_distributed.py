"""Two real processes under torchrun give the result of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.distributed import SHAPES, UNEVEN, plain, scored
from helpers.training import data, same, weights
from safetensors.torch import load_file
from torch.testing import assert_close

import holobind as hb

SCRIPT = Path(__file__).parents[1] / "helpers" / "distributed.py"


def environment():
    paths = os.pathsep.join(filter(None, [str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The script's folder once both processes are done; torchrun finds a free port by itself (standalone)."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    done = subprocess.run(
        [*command, str(folder)], env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def found(place):
    return [json.loads((place / f"{rank}.json").read_text()) for rank in (0, 1)]


def both(place, name):
    return [load_file(place / f"{name}.{rank}.safetensors") for rank in (0, 1)]


def assert_like(a, b):
    for name, tensor in a.items():
        assert_close(tensor, b[name], atol=2e-4, rtol=2e-3)


@pytest.mark.parametrize("name", [*SHAPES, "uneven"])
def test_two_processes_train_the_model_that_one_trains(place, found, name):
    """The same rows in every batch: gradients differ in the order of their sums only."""
    one, other = both(place, name)
    assert same(one, other) and found[0]["world"] == found[1]["world"] == 2
    made, state = plain(data(), *(("linear_skip", UNEVEN) if name == "uneven" else (name,)))
    assert_like(weights(made), one)
    for mine, theirs in zip(state.history, found[0][name]["history"], strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
        assert mine["P@1"] == pytest.approx(theirs["P@1"], abs=2.1)  # two of 97 rows
    assert found[0][name]["history"] == found[1][name]["history"]  # global, not each its own


@pytest.mark.parametrize(("name", "twin"), [("sharded fc", "fc"), ("sharded uneven", "uneven")])
def test_a_first_layer_divided_among_processes_trains_as_a_whole_one(place, found, name, twin):
    one, other = both(place, name)
    assert same(one, other)
    whole = both(place, twin)[0]
    assert one.keys() == whole.keys()
    assert_like(one, whole)
    for mine, theirs in zip(found[0][name]["history"], found[0][twin]["history"], strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
        assert mine["P@1"] == pytest.approx(theirs["P@1"], abs=2.1)
    assert found[0][name]["history"] == found[1][name]["history"]


def test_outputs_and_gradients_of_a_divided_layer_are_those_of_a_whole_one(found):
    """Adam hides the scale of gradients, so they are compared themselves."""
    for each in found:
        assert max(each["shard differences"]) < 1e-6


def test_learn_with_a_divided_layer_gives_the_model_of_whole_ones(place):
    one, other = both(place, "learned True")
    assert same(one, other)
    assert_like(one, both(place, "learned False")[0])


def test_each_process_has_half_of_a_divided_layer_and_of_its_optimiser_state(found):
    one, other = (each["shards"] for each in found)
    assert one["features"] == other["features"]
    for name in ("weight", "mean", "square", "steps"):
        assert one[name] + other[name] == one["features"] and abs(one[name] - other[name]) <= 1


def test_a_divided_run_that_was_stopped_resumes_to_the_same_weights(place, found):
    resumed, straight = both(place, "sharded resumed"), both(place, "sharded straight")
    assert same(*resumed) and same(resumed[0], straight[0])
    assert found[0]["sharded resumed"]["history"] == found[0]["sharded straight"]["history"]


def test_the_checkpoint_of_a_divided_run_is_that_of_a_whole_one(place, found):
    # The run had ended: resumed with a whole layer, it has the weights of its best epoch.
    assert same(both(place, "resumed whole")[0], both(place, "sharded resumed")[0])
    tensors = load_file(place / "sharded checkpoint")
    for name in ("model.network.first.weight", "best.network.first.weight", "optimiser.network.first.weight.mean"):
        assert len(tensors[name]) == found[0]["shards"]["features"]


def test_a_signal_to_one_process_stops_all_and_they_resume_to_the_same_weights(place, found):
    assert found[0]["stopped"] and found[1]["stopped"]
    resumed, straight = both(place, "resumed"), both(place, "straight")
    assert same(*resumed) and same(resumed[0], straight[0])
    assert found[0]["resumed"]["history"] == found[0]["straight"]["history"]


def test_a_checkpoint_that_not_all_processes_see_is_refused(found):
    for each in found:
        assert "is seen by 1 of 2 processes; put it on a file system that all machines share" in each["refused"]


def test_distributed_top_k_is_that_of_one_process(found):
    for each in found:
        for name, _, _ in scored():
            equal, apart = each[f"top {name}"]
            assert equal and apart < 1e-5
        alone, together = each["evaluation"]
        assert alone == together


def test_processes_that_share_the_rows_of_a_ranking_all_have_that_of_one_process(found):
    for each in found:
        assert each["shared ranking"] == [True, True, True]
        assert each["evaluation of shared rows"] == each["evaluation"][0]


def test_processes_solve_the_closed_form_of_one(place):
    one, other = both(place, "solved")
    assert same(one, other)
    # Alone there may be more threads, and a factored system then differs in rounding.
    assert_close(one, weights(hb.learn(data(), hb.ModelConfig())), atol=1e-4, rtol=1e-4)


def test_processes_that_share_the_compression_of_a_model_write_the_file_of_one(found):
    assert found[0]["file of shared compression"]


@pytest.mark.parametrize(("shared", "repeated"), [("columns", 0), ("rows", 1)])
def test_a_stopped_fit_of_two_processes_continues_to_the_same_bytes(found, shared, repeated):
    for each in found:
        resumed = each[f"resumed {shared}"]
        whole, first, second = resumed["blocks"]
        assert resumed["same"] and first > 1 and first + second == whole + repeated


def test_collectives_of_two_processes(found):
    for each in found:
        assert each["collectives"] == {
            "sum": [3.0, 30.0],
            "gather": [[0], [1, 1]],
            "concatenate": [0, 1, 1],
            "exchange": [5.0, 50.0],
            "by rows": list(range(0, 60, 3)),
        }


def test_processes_swap_the_arrays_that_they_have_for_each_other(found):
    # Process r has an array of r + 1 rows and q + 1 columns of 10 r + q for process q.
    for q, each in enumerate(found):
        assert each["swapped"] == [[[10 * r + q] * (q + 1)] * (r + 1) for r in range(2)]


def test_every_task_of_a_queue_is_done_once_and_each_process_starts_with_its_largest(found):
    assert sorted(found[0]["tasks"] + found[1]["tasks"]) == list(range(40))
    assert all(each["tasks"] == sorted(each["tasks"], reverse=True) for each in found)


def test_a_process_that_dies_ends_the_run_in_one_line_and_leaves_no_file(tmp_path):
    hb.data.write(hb.data.synthetic("eurlex-4k", scale=0.05), tmp_path / "points")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--monitor-interval", "3"]  # seconds in which torchrun does not notice, and leaves the other process be
    script = [str(SCRIPT.with_name("dying_process.py")), str(tmp_path / "points"), str(tmp_path / "model.safetensors")]
    done = subprocess.run(
        [*command, *script], env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode != 0
    assert "holobind: another process of this run ended or cannot be reached" in done.stderr
    assert not (tmp_path / "model.safetensors").exists() and not list(tmp_path.glob(".holobind*"))


def test_distributed_top_k_works_in_a_single_process():
    for _, made, X in scored():
        assert torch.equal(*(torch.from_numpy(made.top_k(X, 7, distributed=yes)[1]) for yes in (False, True)))
