# The commands of the project; README.md explains them. Paths are relative, so a space in the path is fine.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
VENV_SGLANG := .venv-sglang
PYTHON_SGLANG ?= $(VENV_SGLANG)/bin/python

.DEFAULT_GOAL := help
.PHONY: help install install-sglang serve test test-sglang check lint types contracts format
.PHONY: bench-core bench-turns bench-gateway bench-console bench-telemetry evaluate clean

help: ## Show the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "pdmuxd needs Python 3.11 to 3.13; name one with make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is incomplete; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@echo "Installing pdmuxd into $(VENV) (about a minute the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

# mypy and import-linter read packages from disk; links give them the import names (pdmuxd.engine, ...).
.build/src/pdmuxd:
	@mkdir -p .build/src/pdmuxd
	@for p in engine controlplane daemon tui migrations; do ln -sfn ../../../$$p .build/src/pdmuxd/$$p; done

# SGLang has an environment of its own: it pins what it needs, and the daemon does without all of it.
$(VENV_SGLANG)/.ready: pyproject.toml constraints-sglang.txt
	@echo "Installing SGLang into $(VENV_SGLANG) (several minutes and 11 GB the first time)"
	@$(PYTHON) -m venv $(VENV_SGLANG)
	@$(VENV_SGLANG)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints-sglang.txt 'sglang==0.5.23'
	@$(VENV_SGLANG)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

install: $(READY) ## Create the environment and install
install-sglang: $(VENV_SGLANG)/.ready ## Create SGLang's environment beside it
serve: $(READY) ## Migrate, create a first tenant, start the daemon on the emulated GPU
	@$(PY) -m pdmuxd.daemon.cli.main --set state_dir=.pdmuxd serve --first-run

test: $(READY) ## All tests that need neither a GPU nor SGLang
	@$(PY) -m pytest -q -m 'not sglang'

# Another environment that has SGLang and pdmuxd: make test-sglang PYTHON_SGLANG=/path/to/python
test-sglang: $(READY) $(if $(filter file,$(origin PYTHON_SGLANG)),$(VENV_SGLANG)/.ready) ## Tests on a real SGLang, on the CPU
	@PYTHON_SGLANG="$(PYTHON_SGLANG)" $(PY) -m pytest -q -m sglang tests/sglang

lint: $(READY)
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .
	@$(PY) tests/support/retired_names.py

types: $(READY) .build/src/pdmuxd
	@$(PY) -m mypy

contracts: $(READY) .build/src/pdmuxd
	@PYTHONPATH=.build/src:tests/support $(VENV)/bin/lint-imports

check: lint types contracts test ## Lint, format, types, import contracts, tests

format: $(READY) ## Format and fix what can be fixed
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

bench-core: $(READY) ## Time of one decision, per policy
	@$(PY) tests/bench/bench_core.py

bench-turns: $(READY) ## What a turn of SGLang's loop costs the host, without a GPU
	@$(PY) tests/bench/bench_turns.py

bench-gateway: $(READY) ## The gateway's cost against the engine directly
	@$(PY) tests/bench/bench_gateway.py

bench-telemetry: $(READY) ## What it costs to keep and tell what the engine does
	@$(PY) tests/bench/bench_telemetry.py

bench-console: $(READY) ## The console's first paint and its share of a core (needs tmux)
	@$(PY) tests/bench/bench_console.py

evaluate: $(READY) ## Fill docs/evaluation.md: make evaluate TRACES=FOLDER [OPTIONS=--quick]
	@test -n "$(TRACES)" || { echo "name the folder of the recorded traces: make evaluate TRACES=FOLDER" >&2; exit 2; }
	@$(PY) tests/bench/evaluate.py --traces "$(TRACES)" $(OPTIONS)

clean: ## Remove everything that was built
	@rm -rf $(VENV) $(VENV_SGLANG) .build build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
