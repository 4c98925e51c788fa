# One virtual environment, made from the pinned versions; every target uses it.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin

# the question of the demo: make demo QUESTION=sde
QUESTION ?= scaling

.PHONY: help demo install test test-slow mutants format bench docs clean

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: install  ## the main job on embedded data: predict, check, write the page (minutes)
	$(BIN)/svag demo --question $(QUESTION)

install: $(VENV)/installed  ## make .venv with the tested versions

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,ray]'
	touch $@

test: install  ## format, lint, types, tests and doctests (minutes)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n $(WORKERS)

test-slow: install  ## the longer campaigns (up to half an hour)
	$(BIN)/pytest -n $(WORKERS) -m slow

mutants: install  ## multiply every formula of theory/ by 1.1, one at a time, and list those nobody notices
	$(BIN)/python tools/mutants.py

format: install  ## let ruff rewrite the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# BackPACK asks for torchvision, which nothing here needs: it is installed without its dependencies.
$(VENV)/bench-installed: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps backpack-for-pytorch
	touch $@

bench: $(VENV)/bench-installed  ## the budgets, as ratios measured in one run, beside Opacus and BackPACK
	@for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

docs: install  ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html, or with search: $(BIN)/mkdocs serve"

clean:  ## remove the environment and the caches
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache
