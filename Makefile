# `make demo` and `make test` create the environment and install everything.
PYTHON ?= python3
VENV ?= .venv
# `make demo CONSTRAINTS=` uses the version ranges of pyproject.toml, and keeps an installed torch.
CONSTRAINTS ?= constraints.txt
BIN = $(VENV)/bin
INSTALL = $(BIN)/pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable

# Test files run in parallel with one thread each, because OpenMP threads of several processes block each other.
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
	for script in $(filter-out benchmarks/soak.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script || exit 1; done

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
