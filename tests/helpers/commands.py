"""The command line, called as a user calls it."""

import io
import signal
import sys
from dataclasses import replace
from itertools import count

import pytest

from holobind.cli import main as cli
from holobind.cli import train as train_cli


def run(capsys, *arguments, stdin=b""):
    """(exit code, stdout, stderr) of `holobind ...`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["holobind", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def is_one_line_error(result, *texts):
    """Whether a result of `run` is exit code 2, nothing on stdout and one line on stderr with all `texts`."""
    code, out, err = result
    return code == 2 and out == "" and err.count("\n") == 1 and all(text in err for text in texts)


def interrupt_training(monkeypatch, epoch, step):
    """Send Ctrl-C to this process when training finishes a step."""
    make_callbacks = train_cli.make_callbacks

    def make_interrupting(*arguments, **options):
        callbacks = make_callbacks(*arguments, **options)

        def on_train(state, config):
            callbacks.on_train(state, config)
            if (state.epoch, state.step) == (epoch, step):
                signal.raise_signal(signal.SIGINT)

        return replace(callbacks, on_train=on_train)

    monkeypatch.setattr(train_cli, "make_callbacks", make_interrupting)


def interrupt_solving(monkeypatch, n):
    """Send Ctrl-C to this process with the n-th report of the solver of the closed form."""
    make_callbacks = train_cli.make_callbacks

    def make_interrupting(*arguments, **options):
        callbacks, reports = make_callbacks(*arguments, **options), count(1)

        def on_solve(stage, done):
            callbacks.on_solve(stage, done)
            if next(reports) == n:
                signal.raise_signal(signal.SIGINT)

        return replace(callbacks, on_solve=on_solve)

    monkeypatch.setattr(train_cli, "make_callbacks", make_interrupting)
