# `make demo` and `make test` do everything on a fresh clone: environment, pinned packages, run.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
TORCH := $(shell grep -E '^torch(vision)?==' constraints.txt)
# waiting threads sleep: two test workers on two cores would otherwise spin against each other
QUIET := OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: install demo test lint types bench clean

# torch comes first and by its exact version, so that no other package can pull another build of it.
$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, " + sys.version.split()[0] + " was found; set PYTHON=") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt $(TORCH)
	$(PIP) install -c constraints.txt -e '.[models,sklearn]'
	@touch $@

$(VENV)/.all: $(VENV)/.demo
	$(PIP) install -c constraints.txt -e '.[all,dev]'
	@touch $@

install: $(VENV)/.all

demo: $(VENV)/.demo
	$(BIN)/reprogram demo

test: $(VENV)/.all
	$(QUIET) $(BIN)/python -m pytest -q -n 2 --dist loadfile --cov=reprogram --cov-report=term:skip-covered

lint: $(VENV)/.all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.all
	$(BIN)/mypy

bench: $(VENV)/.all
	$(BIN)/python benchmarks/mapping_cost.py
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
