"""The process: its options, its signals, and a model that is replaced while requests run."""

import importlib
import json
import shutil
import signal
import socket
import threading
import urllib.error
import urllib.request

import pytest
from helpers.commands import is_one_line_error, run
from helpers.models import HEADS, build
from helpers.served import TOKEN, served, wait_until

command = importlib.import_module("holobind.cli.serve")
PREDICT, ROW = "/v1/models/rows/predict", {"features": {"1": 1.0}}


def post(address, path, body, **headers):
    sent = urllib.request.Request(
        f"{address}{path}",
        b"" if body is None else json.dumps(body).encode(),  # a body that nobody reads may reset the connection
        {"Content-Type": "application/json", **headers},
    )
    with urllib.request.urlopen(sent, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give model files, or --demo"),
        (["nix.safetensors"], "nix.safetensors"),
        (["a.safetensors", "--demo"], "leave out MODEL"),
        (["a.safetensors", "--host", "0.0.0.0"], "--open"),
        (["a.safetensors", "--token", "short"], "at least 16"),
        (["a.safetensors", "--port", "0"], "--port"),
    ],
)
def test_a_mistake_is_one_line(capsys, arguments, said, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert is_one_line_error(run(capsys, "serve", *arguments), said)


def test_two_files_of_one_name_are_refused(capsys, model_files, tmp_path):
    again = tmp_path / "fruit.safetensors"
    shutil.copy(model_files[0], again)
    assert is_one_line_error(run(capsys, "serve", model_files[0], again), "rename one of the files")


def test_models_are_replaced_while_requests_run_and_sigterm_answers_what_runs(model_files, tmp_path):
    path = tmp_path / "rows.safetensors"
    shutil.copy(model_files[1], path)
    versions, failures, go_on = set(), [], [True]
    token = {"Authorization": f"Bearer {TOKEN}"}

    def ask(address):
        while go_on[0]:
            try:
                versions.add(post(address, PREDICT, ROW, **token)["version"])
            except Exception as error:
                failures.append(error)

    with served(path, HOLOBIND_TOKEN=TOKEN) as (address, process):
        threads = [threading.Thread(target=ask, args=(address,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n_before, (model, ask_again) in enumerate(
            [
                (build("linear_skip"), lambda: post(address, "/v1/models/rows/reload", None, **token)),
                (build(options=HEADS[2]), lambda: process.send_signal(signal.SIGHUP)),
            ],
            start=1,
        ):
            wait_until(lambda n=n_before: len(versions) == n)
            model.save(tmp_path / "next.safetensors")
            (tmp_path / "next.safetensors").rename(path)
            ask_again()
            wait_until(lambda n=n_before: len(versions) == n + 1)
        path.write_bytes(b"no model")
        with pytest.raises(urllib.error.HTTPError, match="409"):
            post(address, "/v1/models/rows/reload", None, **token)
        assert post(address, PREDICT, ROW, **token)["version"] in versions
        go_on[0] = False
        for thread in threads:
            thread.join()
        assert not failures
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_port_in_use_is_one_line(capsys, model_files):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run(capsys, "serve", model_files[1], "--port", taken.getsockname()[1])
    assert is_one_line_error(result, "in use", "choose another host or port")


@pytest.mark.parametrize(("variables", "opened"), [({"DISPLAY": ":0"}, 1), ({"WAYLAND_DISPLAY": "w"}, 1), ({}, 0)])
def test_a_page_is_opened_where_there_is_a_display(monkeypatch, variables, opened):
    addresses = []
    monkeypatch.setattr(command.sys, "platform", "linux")
    monkeypatch.setattr(command.webbrowser, "open", lambda address: addresses.append(address) or True)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert command.open_page("http://127.0.0.1:8000/") is bool(opened)
    assert len(addresses) == opened
