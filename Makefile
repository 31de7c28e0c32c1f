# A fresh machine with Python >= 3.11 and make needs nothing else: every target makes the environment it runs in.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install -c constraints.txt
LINTERS := mypy ruff
SWEEP  ?= sweeps/megatron_1t_4096_a100.toml
TESTS  ?= tests
TABLES ?= tests/published/*.csv
KERNELS ?= ../shared/reference/kernels/aic_*.csv.gz ../shared/reference/kernels/vidur_network.csv.gz
ENERGY ?= ../shared/reference/measured/energy.csv
NOTEBOOKS ?= notebooks/*.py
JOBS   ?= 2
FUZZ   ?= 2000
DRAWS  ?= 100
NEWEST_PYTHON ?=

# Where it is set, every process that tests start would compile all it imports anew, seconds each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run environment test test-unit test-slow test-browser docs site calibrate intervals forecasts notebooks check-lowest fuzz profiles jax-trace bench bench-check search-bench test-search test-faults diagnosis-bench dist-bench growth gpu lowering showdown lint dist dist-try release fuzz-programs clean help
.DELETE_ON_ERROR:

run: $(VENV)/.installed  ## run the standard sweep (SWEEP=…)
	$(BIN)/dse run $(SWEEP)

test: $(VENV)/.installed-test  ## run every test but the slow ones, and print the twenty slowest (TESTS=…, JOBS=…)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=20 $(TESTS)

test-unit: $(VENV)/.installed-test  ## run the tests of single rooms but the heavy files, what a change runs first (JOBS=…)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=20 -m "not slow and not browser and not heavy" tests/unit

test-slow: $(VENV)/.installed-test  ## run the slow tests alone (TESTS=…, JOBS=…)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=20 -m slow $(TESTS)

test-browser: $(VENV)/.installed-test  ## run every test of pages in a Chromium without a screen (DSE_CHROMIUM=…)
	$(BIN)/python -m pytest --durations=20 -m "browser or not browser" tests/unit/lab/page

docs: $(VENV)/.installed-test  ## regenerate docs/reference.md, docs/options.md, docs/architecture.md, docs/accuracy.md, docs/technology.md, docs/cost.md, docs/systems.md, docs/studies.md, docs/answers.md, docs/read.md, docs/simulate.md, docs/benchmarks.md and the table of README.md (TABLES=…)
	$(BIN)/python -m docs.make.reference docs/reference.md
	$(BIN)/python -m docs.make.options docs/options.md
	$(BIN)/python -m docs.make.architecture docs/architecture.md
	$(BIN)/python -m docs.make.accuracy docs/accuracy.md $(TABLES)
	$(BIN)/python -m docs.make.technology docs/technology.md
	$(BIN)/python -m docs.make.cost docs/cost.md
	$(BIN)/python -m docs.make.systems docs/systems.md
	$(BIN)/python -m docs.make.studies docs/studies.md
	$(BIN)/python -m docs.make.answers docs/answers.md
	$(BIN)/python -m docs.make.read docs/read.md
	$(BIN)/python -m docs.make.simulate docs/simulate.md
	$(BIN)/python -m docs.make.benchmarks docs/benchmarks.md
	$(BIN)/python -m docs.make.readme README.md

site: $(VENV)/.installed-docs  ## build the pages of the repository into site/, warnings as errors (open site/index.html)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet --jobs auto -c docs/site . site

calibrate: $(VENV)/.installed  ## refit kernels, links, clocks and engines of the catalogue to measured ones (KERNELS=…, ENERGY=…, SERVED=…)
	mkdir -p results
	$(BIN)/python -m docs.make.kernels docs/kernels.md $(KERNELS) --folds 3 --catalog hw_catalog -o results/kernels.toml
	$(BIN)/python -m docs.make.energy docs/energy.md $(ENERGY) --catalog hw_catalog -o results/energy.toml
	$(if $(SERVED),$(BIN)/python -m docs.make.serving docs/serving.md $(SERVED) $(ENERGY) --catalog hw_catalog -o results/engines.toml)

intervals: $(VENV)/.installed  ## learn the widths of intervals from rows left out of the fits (TABLES=…, SERVED=…, ENERGY=…)
	$(BIN)/python -m docs.make.intervals docs/intervals.md $(TABLES) $(SERVED) $(ENERGY) --catalog hw_catalog
	$(BIN)/python -m docs.make.measure docs/measure.md $(TABLES)

forecasts: $(VENV)/.installed-test  ## score forecasts that rows have answered, append those of docs/record/forecasts.toml that are new
	$(BIN)/python -m docs.make.forecasts docs/forecasts.md --add docs/record/forecasts.toml --edition

notebooks: $(VENV)/.installed-test  ## execute each notebook from its .py and keep it with its outputs (NOTEBOOKS=…)
	$(BIN)/python -m docs.make.notebooks $(NOTEBOOKS)
	$(BIN)/python -m pytest tests/repo/test_notebooks.py

jax-trace: $(VENV)/.installed-test  ## profile six steps with JAX on this machine, for the tests of its reader
	$(BIN)/python -m tests.unit.measured.jax_trace tests/unit/measured/data/jax.trace.json.gz

profiles:  ## profile a tiny transformer on two processes of this CPU with PyTorch, into tests/profiles/cpu (minutes alone on the machine)
	$(PYTHON) -m venv build/torch
	build/torch/bin/python -m pip --disable-pip-version-check --quiet install torch==2.13.0 numpy
	build/torch/bin/python -m benchmarks.cpu_cluster tests/profiles/cpu

bench: $(VENV)/.installed  ## measure the rates
	$(BIN)/dse bench

bench-check: $(VENV)/.installed  ## fail when a rate fell 20 % behind docs/benchmarks.json, in multiples of a plain loop
	$(BIN)/python -m benchmarks.rates --check docs/benchmarks.json

check-lowest: $(VENV)/.installed-test  ## the built package with the lowest and the newest versions of what it needs (a few tests; NEWEST_PYTHON=…)
	$(PIP) uv
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tests.lowest lowest-direct
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m tests.lowest highest $(NEWEST_PYTHON)

fuzz: $(VENV)/.installed-test  ## try FUZZ mutants of sweeps, searches, catalogue files and tables, a tenth of results files (FUZZ=20000)
	$(BIN)/python -m tests.contract.fuzz $(FUZZ)

fuzz-programs: $(VENV)/.installed-test  ## try FUZZ mutants of requests as a client of MCP that dse mcp answers (FUZZ=10000)
	$(BIN)/python -m tests.contract.fuzz.programs $(FUZZ)

test-search: $(VENV)/.installed-test  ## run the tests of search that take long
	$(BIN)/python -m pytest tests/unit/optimizers tests/repo/benchmarks -m "slow or not slow"

search-bench: $(VENV)/.installed-test  ## enumerate the suite of search, run every method on it, write docs/search.md
	$(BIN)/python -m benchmarks.search docs/search.json
	$(BIN)/python -m docs.make.search docs/search.md

test-faults: $(VENV)/.installed-test  ## run the tests of faults: real runs that are killed, starved and damaged
	$(BIN)/python -m pytest tests/contract/test_faults.py tests/contract/sweep/test_cluster.py tests/contract/sweep/test_damage.py -m "slow or not slow"

diagnosis-bench: $(VENV)/.installed-test  ## put faults into traces of known steps, and print how many dse diagnose names (DRAWS=…)
	$(BIN)/python -m benchmarks.diagnosis $(DRAWS)

dist-bench: $(VENV)/.installed-test  ## measure workers against shards, write docs/many_machines.md
	$(BIN)/python -m docs.make.many_machines docs/many_machines.md

gpu: $(VENV)/.installed-test  ## the standard lines on JAX's device, checked against NumPy, for docs/benchmarks.md (five minutes)
	$(BIN)/python -m benchmarks.gpu --write

lowering: $(VENV)/.installed-test  ## lower all programs for CUDA without a card, for docs/benchmarks.md
	$(BIN)/python -m docs.make.lowering docs/tables/benchmarks_lowering.csv

growth: $(VENV)/.installed-test  ## measure how time and memory grow, for docs/benchmarks.md
	$(BIN)/python -m docs.make.growth docs/tables/benchmarks_growth.csv

showdown: $(VENV)/.installed-test  ## other tools, each in its own environment, on the published rows: checked against what is kept, or kept anew (SHOWN=…)
	$(BIN)/python -m benchmarks.showdown $(SHOWN)
	$(BIN)/python -m docs.make.showdown docs/showdown.md

lint: $(VENV)/.installed-lint  ## check layout, style and types: ruff and mypy
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check hatch_build.py dse benchmarks calibration docs tests notebooks
	$(BIN)/mypy

dist: $(VENV)/.installed-test  ## build wheel and source distribution into dist/, check what the package index would refuse, list what they hold
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(PIP) 'readme-renderer[md]' twine
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tests.release listed

dist-try: $(VENV)/.installed-test  ## install the wheel of dist/ into a new environment and do what the README says in an empty folder
	$(BIN)/python -m tests.release tried

release: $(VENV)/.installed-test  ## tell what a release lacks and the next step by hand, docs/release.md; uploads nothing
	$(BIN)/python -m tests.release

clean:  ## remove the environment, builds and caches; results stay
	rm -rf $(VENV) build dist site *.egg-info .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST)

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 found: set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt dse/__init__.py | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) -e '.[test]'
	@touch $@

environment: | $(VENV)/bin/python  ## install what tests, pages, style and types need, at once; modules are compiled when they are imported
	$(PIP) --no-compile -e '.[test,docs]' $(LINTERS)
	@touch $(VENV)/.installed $(VENV)/.installed-test $(VENV)/.installed-docs $(VENV)/.installed-lint

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.installed-lint: $(VENV)/.installed
	$(PIP) $(LINTERS)
	@touch $@
