# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
# `make demo CONSTRAINTS=` installs by the library's own ranges and keeps a torch that is already in the environment.
CONSTRAINTS ?= constraints.txt
BIN = $(VENV)/bin
INSTALL = $(BIN)/pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable

# Files of tests side by side, each with one thread: two that share two cores by threads wait for each other.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

.PHONY: demo test test-all lint docs benchmarks clean

demo: $(VENV)/.installed
	$(BIN)/proxyhash demo

test: $(VENV)/.installed-dev lint
	$(PYTEST)

test-all: $(VENV)/.installed-dev lint
	$(PYTEST) -m ''

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs build/site
	@echo "The site is build/site/index.html"

benchmarks: $(VENV)/.installed-dev
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(INSTALL) '.[all]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(INSTALL) '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) demo build dist
