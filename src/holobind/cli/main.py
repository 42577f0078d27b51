"""The process of the command line: its streams, its signals and its exit codes. The verbs are in `holobind.cli.app`.

    0     done
    2     a mistake of the user (a `HolobindError`, a wrong option), or the system refused (disk full, no memory):
          one line on stderr
    130   Ctrl-C
    141   nobody reads the output any more (a broken pipe): no message

Any other exception is a bug and keeps its traceback (exit code 1). Results go to stdout, progress to stderr.
"""

import atexit
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from holobind._checks import printable
from holobind.errors import HolobindError

MISTAKE, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
MAX_PATH_CHARACTERS = 200  # in a message
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
IMPORT_POLL_SECONDS = 0.02  # how often a delayed Ctrl-C looks whether an import has ended

# What the operating system refuses for reasons that are the user's to mend. Any other OSError is a bug.
SYSTEM_ERRORS = frozenset(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "EBADF"),  # writing: disk full, quota, limits, closed streams
        *("EACCES", "EPERM", "ENAMETOOLONG", "ELOOP", "ENOTDIR", "EISDIR"),  # paths
        *("ENOMEM", "EMFILE", "ENFILE", "EAGAIN"),  # memory, open files, processes
    )
    if hasattr(errno, name)
)


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        with _interrupts():
            _prepare_streams()
            code = _run()
            sys.stdout.flush()  # here a full disk gets its message; Python's own flush at exit comes too late
    except KeyboardInterrupt:
        _stop("stopped", INTERRUPTED)
    except BrokenPipeError:
        _discard_output()
        sys.exit(BROKEN_PIPE)
    except HolobindError as error:
        _stop(str(error))
    except OSError as error:
        if error.errno not in SYSTEM_ERRORS:
            raise
        _discard_output()
        _stop(f"{error.strerror}: {printable(str(error.filename or 'a standard stream'), MAX_PATH_CHARACTERS)}")
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _stop(f"there is not enough memory ({error or 'no details'}); take smaller sizes or less data")
    sys.exit(code)


def _run() -> int:
    """Run a verb. `app()` itself is not called: it would change the exit codes of Ctrl-C and broken pipes."""
    import typer

    from holobind.cli.app import app

    usage_error: type[Exception] = typer.BadParameter.__mro__[
        1
    ]  # of click, which releases of typer keep in different places
    command = typer.main.get_command(app)
    try:
        with command.make_context("holobind", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich ends the process itself
            raise ended.__context__ from None
        raise
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a command group without a verb shows its help
            error.show()  # type: ignore[attr-defined]
            return MISTAKE
        path = getattr(getattr(error, "ctx", None), "command_path", "holobind")
        raise HolobindError(f"{error.format_message().rstrip('.')}; see {path} --help") from None  # type: ignore[attr-defined]
    return 0


def _prepare_streams() -> None:
    """Closed streams become empty ones, and no character is unprintable.

    A closed stdout is refused: the next file that is opened would get its number, and all output with it.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stdout is None:
        raise HolobindError("standard output is closed; send it to a file, or to /dev/null")
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def _interrupts() -> Iterator[None]:
    """Raise a KeyboardInterrupt on Ctrl-C, but not inside an import.

    Compiled modules print an exception that is raised while they are imported, or replace it by an ImportError. So an
    interrupt waits for the end of the outermost import, a second at most.
    """

    waiting: list[threading.Timer] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == IMPORT_SYSTEM:
                waiting[:] = [threading.Timer(IMPORT_POLL_SECONDS, signal.raise_signal, [number])]
                waiting[0].daemon = True
                waiting[0].start()
                return
            frame = frame.f_back
        waiting.clear()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and callable(before)  # SIG_IGN: a job of nohup
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
        if waiting:  # the command has ended meanwhile
            raise KeyboardInterrupt
    finally:
        for timer in waiting:
            timer.cancel()
        if ours:
            signal.signal(signal.SIGINT, before)
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # no traceback while Python shuts down


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(
        text in str(error)
        for text in ("DefaultCPUAllocator", "bad_alloc")  # of torch
    )


def _discard_output() -> None:
    """Send what is still in the buffers to nowhere, so that Python does not fail again when it flushes them at exit."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
            continue
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _stop(message: str, code: int = MISTAKE) -> NoReturn:
    """Print an error as one line and exit."""
    try:
        sys.stderr.write(f"holobind: {printable(message)}\n")
        sys.stderr.flush()
    except (OSError, AttributeError):  # stderr is full or closed: the exit code remains
        _discard_output()
    sys.exit(code)
