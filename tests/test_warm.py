"""The warm-up: after it, neither training nor prediction compiles anything."""

import subprocess
import sys

SCRIPT = """
import sys
import numpy as np
import holobind as hb
from holobind import warm
from holobind.data import synthetic

found = warm.warm()
assert "ridge_knn.knn_index._search" in {**found.compiled, **found.cached}, found
before = {name: set(kernel.signatures) for name, kernel in warm._kernels()}
data = synthetic("bibtex", scale=0.05)
for config in (hb.ModelConfig(), hb.ModelConfig(dim=4)):
    model = hb.learn(data.train, config)
    model.evaluate(data.test)
    model.explain(data.test.X[[0]])
texts = [f"word{i % 7} word{i % 5} other" for i in range(60)]
model = hb.learn(hb.Split(data.train.X[:60], data.train.Y[:60], texts))
model.rank(texts, 3)
after = {name: set(kernel.signatures) for name, kernel in warm._kernels()}
new = {name: after[name] - before.get(name, set()) for name in after if after[name] - before.get(name, set())}
sys.exit(str(new) if new else 0)
"""


def test_after_the_warm_up_nothing_is_compiled():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
