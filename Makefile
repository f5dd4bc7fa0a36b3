PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test check bench bench-quality bench-fidelity clean-kernels clean

demo: $(INSTALLED)
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh build/demo

test: $(INSTALLED)
	$(BIN)/python -m pytest

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

bench-quality: $(INSTALLED)
	$(BIN)/python -m benchmarks.quality

# On an idle machine: everything else that runs is measured with it.
bench-fidelity: $(INSTALLED)
	mkdir -p build
	$(BIN)/pesto comm --machine local-workers:2 -o build/local-workers.comm.json
	$(BIN)/python -m benchmarks.fidelity --comm build/local-workers.comm.json

# numba's cache of a kernel does not notice changes in kernels of other files that it calls.
clean-kernels:
	find pesto_cli -name '*.nb[ci]' -delete

clean: clean-kernels
	rm -rf $(VENV) build

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable ".[dev,docs,highs,notebooks]"
	touch $@
