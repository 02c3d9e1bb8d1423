# `make demo` and `make test` do everything on a fresh machine with Python 3.11 or newer; `make help` lists the rest.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --disable-pip-version-check --progress-bar off --quiet --constraint constraints.txt
INPUTS := pyproject.toml constraints.txt

# One stamp per set of packages: the environment is brought up to date only when one of INPUTS changes.
USER_STAMP := $(VENV)/installed-all-examples
WORK_STAMP := $(VENV)/installed-test-check

.PHONY: help demo test slow check bench clean

help:  ## list these commands
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

demo: $(USER_STAMP)  ## record a real trained model, write a report to demo/ and say how to open the dashboard
	$(PY) -m gatescope demo --out demo

test: $(WORK_STAMP)  ## run the whole test suite but the long statistical tests
	$(PY) -m pytest -m "not slow"

# pytest ends with 5 where no test is marked slow
slow: $(WORK_STAMP)  ## run the long statistical tests
	$(PY) -m pytest -m slow || [ $$? -eq 5 ]

# Only an installed copy has the folders as one package. It comes from a wheel made from the source archive, so that
# both are known to be complete.
CHECKED := build/check
check: $(WORK_STAMP)  ## style, types, import rules, doctests and the built package
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	rm -rf build; mkdir build
	$(PY) -m build --no-isolation --outdir build/dist . > build/log 2>&1 || { cat build/log; exit 1; }
	$(PY) .ci/check_wheel.py build/dist
	$(PY) -m pip install --disable-pip-version-check --quiet --no-deps --target $(CHECKED) build/dist/*.whl
	cd $(CHECKED) && $(CURDIR)/$(PY) -m mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache
	cd $(CHECKED) && $(CURDIR)/$(VENV)/bin/lint-imports --no-logo --cache-dir $(CURDIR)/.import_linter_cache $(CURDIR)/pyproject.toml
	cd $(CHECKED) && $(CURDIR)/$(PY) -m pytest -c $(CURDIR)/pyproject.toml --rootdir . -p no:cacheprovider \
	  --doctest-modules --ignore gatescope/dashboards/app.py --ignore gatescope/dashboards/views gatescope

bench: $(WORK_STAMP)  ## run the benchmarks; tables on the screen, numbers in build/bench/
	@mkdir -p build/bench; shopt -s nullglob; for script in benchmarks/[a-z]*.py; do \
	  echo "== $$script"; $(PY) $$script --json build/bench/$$(basename $$script .py).json; done

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(f"gatescope needs Python 3.11 or newer; {sys.version.split()[0]} came. Name another with make PYTHON=python3.11." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(USER_STAMP): $(INPUTS) | $(PY)
	@echo "Installing gatescope with everything it can use into $(VENV) (about 2.5 GB, a few minutes)"
	$(INSTALL) --editable '.[all,examples]'
	@touch $@

$(WORK_STAMP): $(USER_STAMP)
	@echo "Installing what the tests and checks use"
	$(INSTALL) --editable '.[all,examples,test,check]'
	@touch $@
