# One virtual environment, made in stages from the pinned versions; every target installs the stage it needs.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# the question of the demo: scaling, train or sde
QUESTION ?= scaling

.PHONY: help demo install test test-integrations test-slow mutants format bench docs clean

help:  ## list these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

demo: $(VENV)/base-installed  ## a first experiment on embedded data, with its page (minutes); QUESTION=train or sde for others
	$(BIN)/svag demo --question $(QUESTION)

install: $(VENV)/dev-installed  ## make .venv with everything that developers need, in the tested versions

# A stamp says that its stage is installed. The constraints are given to each of them: without, a later stage could move
# the versions of an earlier one, torch among them. The version of the package, which records and pages name, is installed too.
$(VENV)/base-installed: pyproject.toml constraints.txt src/svag/__init__.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[lab]'
	touch $@

$(VENV)/dev-installed: $(VENV)/base-installed
	$(PIP) -e '.[lab,dev,docs,ray]'
	touch $@

$(VENV)/integrations-installed: $(VENV)/dev-installed
	$(PIP) -e '.[lab,lightning,huggingface,tensorboard,wandb,mlflow,notebook]'
	touch $@

# BackPACK asks for torchvision, which nothing here needs: it is installed without its dependencies.
$(VENV)/bench-installed: $(VENV)/dev-installed
	$(PIP) -e '.[lab,bench]'
	$(PIP) --no-deps backpack-for-pytorch
	touch $@

test: $(VENV)/dev-installed  ## check format, lint and types, run tests and doctests (minutes)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers $(WORKERS)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-integrations: $(VENV)/integrations-installed  ## tests with Lightning, Hugging Face, Accelerate and the loggers (minutes)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m integrations

test-slow: $(VENV)/dev-installed  ## the slow tests: kills, interrupts, full disks, wheels (up to half an hour)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m slow

mutants: $(VENV)/dev-installed  ## multiply every formula of theory/ by 1.1, one at a time, and list those that no test notices
	$(BIN)/python tools/mutants.py

format: $(VENV)/dev-installed  ## format and fix the code with ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/bench-installed  ## run the benchmarks: costs as ratios within one run, with Opacus and BackPACK for comparison
	@for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

docs: $(VENV)/dev-installed  ## build the documentation site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html, or with search: $(BIN)/mkdocs serve"

clean:  ## remove the environment and the caches
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache
