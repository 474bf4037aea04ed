# Two commands for newcomers: `make demo` and `make test`. Both need Python 3.11+ and a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench errors performance clean

demo: $(VENV)/installed
	$(BIN)/python examples/tour.py

test: lint
	$(BIN)/python -m pytest -n auto tests

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/installed
	$(BIN)/python benchmarks/compiler.py

# Regenerates docs/errors.md from the catalogue.
errors: $(VENV)/installed
	$(BIN)/python tools/errors_doc.py > docs/errors.md

# Regenerates docs/performance.md from benchmarks/results.
performance: $(VENV)/installed
	$(BIN)/python tools/performance_doc.py > docs/performance.md

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-test: pyproject.toml $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
