PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test kernels check docs docs-check notebooks bench bench-quality bench-fidelity fuzz clean-kernels clean

demo: $(INSTALLED)
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh build/demo

# Tests that wait for other processes leave cores idle, so two cores have three workers.
WORKERS ?= 3

test: kernels
	$(BIN)/python -m pytest --nbmake -n $(WORKERS) --dist loadfile --no-loadscope-reorder examples tests

# Kernels are compiled once, and not by two tests side by side.
kernels: $(INSTALLED)
	$(BIN)/python -c "from pesto_cli import api; api.warm_up()"

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Every shell block of README and docs, slow ones too; --update pastes what they print.
docs-check: $(INSTALLED)
	$(BIN)/python tests/shell_blocks.py

# Runs the notebooks of examples/ and keeps their outputs.
notebooks: $(INSTALLED)
	$(BIN)/python tests/notebook_outputs.py

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

bench-quality: $(INSTALLED)
	$(BIN)/python -m benchmarks.quality

# On an idle machine: everything else that runs is measured with it.
bench-fidelity: $(INSTALLED)
	mkdir -p build
	$(BIN)/pesto comm --machine local-workers:2 -o build/local-workers.comm.json
	$(BIN)/python -m benchmarks.fidelity --comm build/local-workers.comm.json

# Inputs changed by chance, commands ended at random moments, and ten times the random problems.
fuzz: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m fuzz --count 2000 --ends 100
	PYTHONPATH=tests $(BIN)/python -m fuzz --count 2000 --file plan.json
	PESTO_EXAMPLES=10 $(BIN)/python -m pytest tests/test_pipeline_properties.py tests/test_execution_model.py \
		tests/test_split_models.py tests/test_split_graphs.py tests/test_sharding_rules.py \
		tests/test_live_split.py

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
