"""The command line, called as a user calls it."""

import io
import signal
import sys
from dataclasses import replace

import pytest

from holobind.cli import main as cli
from holobind.cli import models as model_cli


def run(capsys, *arguments, stdin=b""):
    """(exit code, stdout, stderr) of `holobind ...`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["holobind", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def interrupted_at(monkeypatch, epoch, step):
    """Training gets a Ctrl-C after one of its steps."""
    watch = model_cli._watch

    def watched(*arguments, **options):
        found = watch(*arguments, **options)

        def training(at, plan):
            found.training(at, plan)
            if (at.epoch, at.step) == (epoch, step):
                signal.raise_signal(signal.SIGINT)

        return replace(found, training=training)

    monkeypatch.setattr(model_cli, "_watch", watched)
