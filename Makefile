# `make demo` and `make test` do everything on a fresh clone: environment, pinned packages with checked hashes, run.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# HASHES=no installs the same versions without checking the files: for platforms and Pythons that locked/ has no wheels for.
HASHES ?= yes
TORCH := $(shell grep -E '^torch==' constraints.txt)
TORCHVISION := $(shell grep -E '^torchvision==' constraints.txt)
# waiting threads sleep: two test workers on two cores would otherwise spin against each other
QUIET := OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
CHECKED := $(PIP) install --require-hashes --no-deps --only-binary :all:
REFUSED := { echo 'pip refused a package: if it found none for this machine, `make install HASHES=no` installs the same versions \
without checking their files; if it says that a hash does not match, the file is another one than the tested one: do not install it.' >&2; exit 1; }

.PHONY: install demo test test-minimums lint types bench fuzz soak lock licences sbom compiler browser clean

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, " + sys.version.split()[0] + " was found; set PYTHON=") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	@touch $@

ifeq ($(HASHES),no)
# torch comes first and by its exact version, so that no other package can pull another build of it.
$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt $(TORCH) $(TORCHVISION)
	$(PIP) install -c constraints.txt hatchling editables
	$(PIP) install -c constraints.txt --no-build-isolation -e '.[models,sklearn]'
	@touch $@

$(VENV)/.all: $(VENV)/.demo
	$(PIP) install -c constraints.txt --no-build-isolation -e '.[all,dev]'
	@touch $@
else
# torch has no hash (locked/demo.txt says why): it comes by its exact version, and with whatever its build brings of its own.
$(VENV)/.demo: $(VENV)/.made pyproject.toml constraints.txt locked/demo.txt
	$(CHECKED) -r locked/demo.txt || $(REFUSED)
	$(PIP) install -c constraints.txt $(TORCH)
	$(PIP) install --no-build-isolation --no-deps -e .
	$(PIP) check
	@touch $@

$(VENV)/.all: $(VENV)/.demo locked/all.txt
	$(CHECKED) -r locked/all.txt || $(REFUSED)
	$(PIP) check
	@touch $@
endif

install: $(VENV)/.all

demo: $(VENV)/.demo
	$(BIN)/reprogram demo

# A C compiler builds the library that lets the tests kill a command at a chosen system call.
compiler:
	@command -v cc > /dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev; \
	else \
		echo 'the tests need a C compiler named cc: install gcc and the headers of the C library (Debian and Ubuntu: apt-get install gcc libc6-dev)' >&2; exit 1; \
	fi

# The page of a report and that of the service are tried in a real browser. Without one exactly these tests do not run, and say so.
browser:
	@command -v chromium > /dev/null || command -v google-chrome > /dev/null || command -v chromium-browser > /dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core || \
		echo 'Chromium could not be installed: the tests of the pages of report and service will not run' >&2; \
	else \
		echo 'the tests of the pages of report and service will not run: install Chromium (Debian and Ubuntu: apt-get install chromium)' >&2; \
	fi

test: $(VENV)/.all compiler browser
	$(QUIET) $(BIN)/python -m pytest -q -n 2 --dist loadfile --cov=reprogram --cov-report=term:skip-covered

# The lowest versions that pyproject.toml allows, in an environment of their own. The build of torch that came first is kept.
test-minimums: $(VENV)-minimums/.all compiler browser
	$(QUIET) $(VENV)-minimums/bin/python -m pytest -q -n 2 --dist loadfile

$(VENV)-minimums/.all: pyproject.toml tools/minimums.py
	$(PYTHON) -m venv --clear $(VENV)-minimums
	$(PYTHON) tools/minimums.py > $(VENV)-minimums/minimums.txt
	$(VENV)-minimums/bin/python -m pip --disable-pip-version-check -q install -c $(VENV)-minimums/minimums.txt $(TORCH)
	$(VENV)-minimums/bin/python -m pip list --format=freeze | grep '^torch==' > $(VENV)-minimums/torch.txt
	grep -v '^torch==' $(VENV)-minimums/minimums.txt >> $(VENV)-minimums/torch.txt
	$(VENV)-minimums/bin/python -m pip --disable-pip-version-check -q install -c $(VENV)-minimums/torch.txt -e '.[all,dev]'
	@touch $@

lint: $(VENV)/.all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.all
	$(BIN)/mypy
	$(BIN)/mypy tools

bench: $(VENV)/.all
	$(BIN)/python benchmarks/mapping_cost.py
	$(BIN)/python benchmarks/speed.py

fuzz: $(VENV)/.all
	$(QUIET) $(BIN)/python -m soak.fuzz --seconds 600 --processes 2

soak: $(VENV)/.all compiler
	$(QUIET) $(BIN)/python -m soak --minutes 30

# After a change of constraints.txt: `make install HASHES=no lock licences`.
lock: $(VENV)/.all
	$(BIN)/python tools/lock.py

licences: $(VENV)/.all
	$(BIN)/python tools/licences.py

sbom: $(VENV)/.all
	$(BIN)/python tools/sbom.py build/sbom.cdx.json

clean:
	rm -rf $(VENV) $(VENV)-minimums .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
