# Every target makes its own environment; all it needs is Python 3.11 or newer with venv and pip.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test check fix bench score docs lock clean

demo: .venv/installed            ## two real engines, one real model, three minutes
	$(BIN)/kvroom demo

test: .venv/dev-installed        ## all tests; launches the real embedded engines and vLLM
	$(BIN)/python -m pytest

check: .venv/dev-installed       ## style, types, who may import whom, generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

fix: .venv/dev-installed         ## format, and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/dev-installed        ## make the generated pages again
	$(BIN)/python docs/generate.py

bench: .venv/dev-installed       ## our client and our readers beside others
	$(BIN)/python bench/client.py -o docs/reference/client.md
	$(BIN)/python bench/headers.py -o docs/reference/headers.md
	$(BIN)/python bench/logs.py -o docs/reference/logs.md

CASES ?= ../shared/cases/public

score: .venv/dev-installed       ## how often the labelled cause of CASES/*/case.yaml is found
	$(BIN)/python bench/score.py $(CASES)

lock:                            ## choose the newest versions and write them down
	rm -rf .venv && $(PYTHON) -m venv .venv
	$(PIP) install --editable '.[dev]'
	$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("kvroom needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "making .venv (about 100 MB)"
	$(PIP) install --constraint constraints.txt --editable .
	touch $@

.venv/dev-installed: .venv/installed
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:                           ## forget the environment; runs and the cache stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
