"""The package: what its import loads, and its public names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holobind as hb


def test_the_import_loads_no_heavy_package():
    heavy = "{'torch', 'numpy', 'scipy', 'matplotlib', 'numba', 'sklearn', 'tokenizers'}"
    script = f"import sys, holobind; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, f"imported at start: {loaded.stderr}"


@pytest.mark.parametrize("name", hb.__all__)
def test_every_public_name_exists_and_is_documented(name):
    assert getattr(hb, name).__doc__
    assert name in dir(hb)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'blind'"):
        _ = hb.blind


def test_type_checkers_see_the_same_names_as_the_interpreter():
    imports = re.findall(r"^    from [\w.]+ import (\w+) as \1$", Path(hb.__file__).read_text(), flags=re.MULTILINE)
    assert sorted(imports) == sorted(hb.__all__)
