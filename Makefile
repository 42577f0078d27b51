# `make demo` and `make test` do all the set-up they need; Python 3.11 and make are enough.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Two processes, a file of tests each at a time. Threads that wait do not spin: the other process needs the core.
WORKERS := -n 2 --dist loadfile

.PHONY: setup demo serve test test-browser screenshot paper bench-deps boundscheck campaign options-table constraints audit clean

setup: $(READY)

# torch goes in first and pinned: a looser request, or another package's, would fetch a build with gigabytes of CUDA.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "holobind needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $@

# Which calls does a function make, by its name, arguments and docstring? A model, three questions, then five models
# side by side; a minute and a half on 2 cores.
demo: setup
	rm -rf demo
	$(BIN)/holobind data make python-calls --to jsonl --out demo/python-calls
	$(BIN)/holobind train demo/python-calls --out demo/model.safetensors
	printf '%s\n' 'read json file path' 'join lines with separator' 'connect socket host port timeout' > demo/functions.txt
	$(BIN)/holobind predict demo/model.safetensors demo/functions.txt -k 3
	$(BIN)/holobind compare demo/python-calls --epochs 10 --out demo

test: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_WAIT_POLICY=passive $(BIN)/pytest $(WORKERS)

# The pages of `holobind serve` in Chromium, which must be installed; axe, which tests accessibility, comes from npm.
# ONLY='not demo' leaves out the test that trains a model, as pytest's -k does.
AXE := .venv/axe/node_modules/axe-core/axe.min.js
test-browser: setup
	test -f $(AXE) || npm install --silent --no-save --prefix .venv/axe axe-core@4.14.0 || echo 'test-browser: axe is not tested, as npm has not installed it'
	if test -f $(AXE); then export HOLOBIND_AXE=$(AXE); fi; HOLOBIND_BROWSER=1 $(BIN)/pytest tests/serve/test_browser.py $(if $(ONLY),-k '$(ONLY)')

# The picture of the page in the README, made by its test.
screenshot: setup
	HOLOBIND_BROWSER=1 HOLOBIND_SCREENSHOT=docs/figures/serve.png $(BIN)/pytest tests/serve/test_browser.py -k demo

# A model of python-calls behind a page at http://127.0.0.1:8000
serve: setup
	$(BIN)/holobind serve --demo

# The tests with every index of compiled code checked; that code is compiled anew, into a cache of its own.
boundscheck: setup
	cache=$$(mktemp -d) && OMP_WAIT_POLICY=passive NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$$cache $(BIN)/pytest $(WORKERS); status=$$?; rm -rf $$cache; exit $$status

# Every figure and table of the paper, and docs/reproduction.md from them, in less than 10 hours on 2 cores: `holobind
# paper plan --out experiments/results` lists what is left. Finished results are not computed again: stop it and
# continue later, or delete a file (of a trained table, a line) in experiments/results to compute it again. `make paper
# DATA=DIR` names the folder of datasets; by default it is the one that HOLOBIND_DATA names.
paper: setup
	$(BIN)/holobind paper all --out experiments/results $(if $(DATA),--data $(DATA))
	mkdir -p docs/figures
	find experiments/results -maxdepth 1 -name '*.png' -exec mv {} docs/figures/ \;
	$(BIN)/holobind paper report --results experiments/results --page docs/reproduction.md --figures docs/figures

# Attacks for 15 minutes: killed runs, mutated files, full disks, expressions, command lines (docs/reliability.md).
campaign: setup
	$(BIN)/python benchmarks/campaign.py --minutes 15

# The libraries that the benchmarks compare with. Each benchmark is a script: .venv/bin/python benchmarks/bench_NAME.py
bench-deps: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group bench

# The table of options in docs/training.md, after a change of training/config.py.
options-table: setup
	$(BIN)/python tests/helpers/options_table.py

# constraints.txt anew: the versions that a fresh environment gets today.
constraints:
	$(PYTHON) -m venv .venv-constraints
	.venv-constraints/bin/python -m pip install --quiet --upgrade pip
	.venv-constraints/bin/python -m pip install --quiet torch==2.13.0
	.venv-constraints/bin/python -m pip install --quiet --editable ".[ray]" --group dev
	echo '# What the tests run with. torch 2.13.0 installs the CPU build where one is at hand.' > constraints.new
	.venv-constraints/bin/python -m pip freeze --all --exclude-editable | sed 's/+cpu$$//' >> constraints.new
	mv constraints.new constraints.txt
	rm -rf .venv-constraints

# Known vulnerabilities of the packages in constraints.txt, from the database on the net. pip-audit ends with 1 also where
# it cannot ask the database, so that is asked first.
audit:
	@$(PYTHON) -c 'import urllib.request as r; r.urlopen("https://pypi.org/pypi/numpy/2.0.0/json", timeout=30).read(1)' 2> /dev/null \
		|| { echo 'audit: not run, the vulnerabilities of releases (https://pypi.org/pypi/NAME/VERSION/json) cannot be looked up from here'; exit 1; }
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip-audit
	.venv-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

clean:
	rm -rf .venv .venv-audit .venv-constraints demo
