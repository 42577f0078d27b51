"""Python code in a process of its own, which may crash or take all memory without harm to the tests."""

import os
import resource
import subprocess
import sys
import textwrap

MAX_BYTES = 6 << 30  # of address space; importing torch takes a good part of it


def run_child(code, *, max_bytes=MAX_BYTES, timeout=120, setup=None, cwd=None, **environment):
    """Run code with a limit of memory and time; a variable of the environment that is None is removed."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
        if setup:
            setup()

    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        preexec_fn=limit,
        env={name: value for name, value in variables.items() if value is not None},
    )
