# `make train` and `make test` work from a fresh clone: they make .venv and install what is needed.
# Those for which the versions in constraints.txt hold. One that can be found may not run: pyenv has a command for each.
PYTHONS := python3.11 python3.12 python3.13
PYTHON ?= $(firstword $(foreach python,$(PYTHONS),$(shell $(python) -c 'print("$(python)")' 2>/dev/null)) python3.11)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEV_INSTALLED := $(VENV)/.dev-installed
LONG_INSTALLED := $(VENV)/.long-installed
DOCS_INSTALLED := $(VENV)/.docs-installed
OLDEST := .venv-oldest
OLDEST_INSTALLED := $(OLDEST)/.installed
ARGS ?=

.PHONY: train test quick test-long test-oldest gpu check format bench docs dist clean

train: $(INSTALLED)  ## open the dashboard and train Mario; options: make train ARGS="--stage 1-2"
	@$(BIN)/mario-tui --game mario $(ARGS)

test: $(DEV_INSTALLED)  ## the tests
	@$(BIN)/python -m pytest $(ARGS)

quick: $(DEV_INSTALLED)  ## those of the tests that start no process
	@$(BIN)/python -m pytest -m "not process and not long and not gpu" $(ARGS)

test-long: $(LONG_INSTALLED) test-oldest  ## the tests that take minutes
	@$(BIN)/python -m pytest -m long --timeout=1800 $(ARGS)

test-oldest: $(OLDEST_INSTALLED)  ## learning, with the oldest packages that pyproject.toml accepts (downloads some 3 GB)
	@$(OLDEST)/bin/python -m pytest -p no:cacheprovider tests/engine/agents tests/engine/buffers tests/engine/runners \
		tests/engine/host tests/engine/games/mario/test_lanes.py tests/engine/games/mario/test_reference.py $(ARGS)

gpu: $(DEV_INSTALLED)  ## on a machine with a CUDA GPU: its tests, then its tables; results in gpu-results/
	@status=0; $(BIN)/python -m pytest -m gpu -n 0 $(ARGS) || status=$$?; \
		$(BIN)/python -m bench.gpu || status=$$?; exit $$status

check: $(DEV_INSTALLED)  ## format, lint, types, import contracts, documentation
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest -q -n 0 tests/test_docs.py tests/test_tables.py tests/test_budget.py

format: $(DEV_INSTALLED)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(DEV_INSTALLED)  ## the tables of docs/benchmarks.md
	@$(BIN)/python -m bench.emulation
	@$(BIN)/python -m bench.games
	@$(BIN)/python -m bench.training
	@$(BIN)/python -m bench.field
	@$(BIN)/python -m bench.environments CartPole-v1 --reach 475 --threads 1
	@$(BIN)/python -m bench.gym_lanes
	@$(BIN)/python -m bench.runners
	@$(BIN)/python -m bench.scaling
	@$(BIN)/python -m bench.cluster
	@$(BIN)/python -m bench.speed
	@$(BIN)/python -m bench.overhead
	@$(BIN)/python -m bench.dashboard
	@$(BIN)/python -m bench.replay
	@$(BIN)/python -m bench.updates

docs: $(DOCS_INSTALLED)  ## build the documentation into site/
	@$(BIN)/mkdocs build --strict --quiet

dist: $(DEV_INSTALLED)  ## build wheels and source distributions of the program and of its further policies into dist/
	@$(BIN)/python -m build --outdir dist
	@$(BIN)/python -m build --outdir dist checkpoints/more-policies

# pip comes last into the folder: without it, an earlier try has failed or was ended.
$(BIN)/pip:
	@$(PYTHON) -c '' 2>/dev/null || \
		{ echo "make: Python 3.11 to 3.13 is needed: $(PYTHON) can't be run (make PYTHON=...)" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; it = sys.version_info[:2]; sys.exit(None if (3, 11) <= it <= (3, 13) else \
		"make: PYTHON must be Python 3.11 to 3.13, for which constraints.txt holds; $(PYTHON) is %d.%d" % it)' || exit 2
	@command -v g++ >/dev/null || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 13))' || \
		{ echo "make: a C++ compiler is needed: g++ not found (apt install g++), or Python 3.13 (make PYTHON=python3.13)" >&2; exit 2; }
	@echo "making $(VENV); this takes a few minutes the first time"
	@$(PYTHON) -m venv --clear $(VENV)

$(INSTALLED): $(BIN)/pip pyproject.toml constraints.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(DEV_INSTALLED): $(INSTALLED)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(LONG_INSTALLED): $(DEV_INSTALLED)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[browser,mlflow,onnx,optuna,parquet,peers,pictures,trackio,wandb]'
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

$(OLDEST_INSTALLED): pyproject.toml
	@$(PYTHON) -m venv --clear $(OLDEST)
	@$(OLDEST)/bin/pip install --quiet --disable-pip-version-check uv
	@$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) site dist .mypy_cache .ruff_cache .pytest_cache
