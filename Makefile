# The commands of the project; README.md explains them. Paths are relative, so a space in the path is fine.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
VENV_SGLANG := .venv-sglang
VENV_LOWEST := .venv-lowest
PYTHON_SGLANG ?= $(VENV_SGLANG)/bin/python
# As many tests at once as the machine has cores; PYTEST_WORKERS=0 runs them all in one process.
PYTEST_WORKERS ?= logical
PYTEST = $(PY) -m pytest -q --numprocesses $(PYTEST_WORKERS) --maxprocesses 8 --dist worksteal

# A daemon that compiles all it imports takes twice as long to start, and the tests start many.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install install-sglang wheel lock serve test test-slow test-all test-postgresql test-lowest test-sglang test-sglang-versions check client docs lint types contracts format mutants
.PHONY: bench-admission bench-control-plane bench-core bench-turns bench-gateway bench-front-end bench-console bench-telemetry bench-history evaluate clean

help: ## Show the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt .ci/environment.py
	@$(PYTHON) .ci/environment.py install $(VENV)
	@touch $(READY)

# mypy and import-linter read packages from disk; links give them the import names (pdmuxd.engine, ...).
.build/src/pdmuxd:
	@mkdir -p .build/src/pdmuxd
	@for p in engine controlplane daemon tui migrations systemd; do ln -sfn ../../../$$p .build/src/pdmuxd/$$p; done

# SGLang has an environment of its own: it pins what it needs, and the daemon does without all of it.
$(VENV_SGLANG)/.ready: pyproject.toml constraints.txt $(READY)
	@$(PY) -m pdmuxd.daemon.cli.main install-sglang --folder $(VENV_SGLANG)
	@touch $@

$(VENV_LOWEST)/.ready: $(READY) pyproject.toml .ci/environment.py
	@$(PY) .ci/environment.py lowest $(VENV_LOWEST)
	@touch $@

install: $(READY) ## Create the environment and install
install-sglang: $(VENV_SGLANG)/.ready ## Create SGLang's environment beside it
wheel: $(READY) ## Build a wheel and an sdist into dist/
	@rm -rf build dist && $(VENV)/bin/uv build --quiet --no-build-isolation --python $(PY) && ls -l dist
lock: $(READY) ## Write constraints.txt anew from pyproject.toml
	@$(PY) .ci/environment.py lock
serve: $(READY) ## Migrate, create a first tenant, start the daemon on the emulated GPU
	@$(PY) -m pdmuxd.daemon.cli.main --set state_dir=.pdmuxd serve --first-run

test: $(READY) ## The tests to run before a commit: no GPU, no SGLang, 4 minutes on 2 quiet cores
	@$(PYTEST) -m 'not sglang and not slow'

test-slow: $(READY) ## The other tests without SGLang: whole daemons, whole measuring campaigns
	@$(PYTEST) -m 'not sglang and slow'

test-all: test test-slow ## Both

test-postgresql: $(READY) ## The control plane's tests on PostgreSQL instead of SQLite (needs Debian's package)
	@PDMUXD_TEST_DATABASE=postgresql $(PYTEST) -m 'not slow' tests/controlplane --ignore tests/controlplane/database/test_opening.py

test-lowest: $(VENV_LOWEST)/.ready ## Listeners, REST's document, metrics, console on the lowest versions allowed
	@$(VENV_LOWEST)/bin/python -m pytest -q --numprocesses $(PYTEST_WORKERS) --maxprocesses 8 --dist worksteal tests/daemon/httpd tests/daemon/metrics tests/daemon/settings tests/daemon/cli/test_yaml_documents.py tests/controlplane/api/test_openapi.py tests/tui/test_screens.py -k 'not of_any_size'

# An engine computes on one thread and waits for one half of the time; files share a daemon, so they stay whole.
SGLANG_WORKERS ?= 2
# Another environment that has SGLang and pdmuxd: make test-sglang PYTHON_SGLANG=/path/to/python
test-sglang: $(READY) $(if $(filter file,$(origin PYTHON_SGLANG)),$(VENV_SGLANG)/.ready) ## Tests on a real SGLang, on the CPU
	@PYTHON_SGLANG="$(PYTHON_SGLANG)" $(PY) -m pytest -q -m sglang --numprocesses $(SGLANG_WORKERS) --dist loadfile tests/sglang

test-sglang-versions: $(READY) ## Names and tokens with each supported SGLang and the newest: VERSIONS="0.5.22 newest"
	@$(PY) .ci/sglang_versions.py $(VERSIONS)

lint: $(READY)
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .
	@$(PY) tests/support/retired_names.py
	@$(PY) tests/support/docstring_starts.py

types: $(READY) .build/src/pdmuxd
	@$(PY) -m mypy

contracts: $(READY) .build/src/pdmuxd
	@PYTHONPATH=.build/src:tests/support $(VENV)/bin/lint-imports

client: $(READY) ## Write the client's methods and types anew from the OpenAPI document
	@$(PY) tests/support/generate_client.py

docs: $(READY) ## The documentation as a site in .build/site; fails on a broken link
	@$(VENV)/bin/mkdocs build --quiet --strict

check: lint types contracts docs test ## Lint, format, types, import contracts, documentation, tests

format: $(READY) ## Format and fix what can be fixed
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

mutants: $(READY) ## Does a test fail if a line of the core is wrong? (tests/mutation/README.md)
	@$(PY) tests/mutation/mutants.py $(OPTIONS)

bench-core: $(READY) ## Time of one decision, per policy
	@$(PY) tests/lab bench-core

bench-turns: $(READY) ## What a turn of SGLang's loop costs the host, without a GPU
	@$(PY) tests/lab bench-turns

bench-gateway: $(READY) ## The gateway's cost against the engine directly, and how many streams it carries
	@$(PY) tests/lab bench-gateway
	@$(PY) tests/lab bench-stream-rate

bench-front-end: $(READY) ## What a token costs behind the scheduler, per process; needs SGLang's environment, no GPU
	@$(PY) tests/lab bench-front-end --python $(PYTHON_SGLANG)

bench-admission: $(READY) ## What it costs the gateway to let one request in, and what refusing late ones saves
	@$(PY) tests/lab bench-admission
	@$(PY) tests/lab bench-shedding

bench-telemetry: $(READY) ## What it costs to keep and tell what the engine does
	@$(PY) tests/lab bench-telemetry

bench-control-plane: $(READY) ## Key look-ups, pages and edits with 10,000 tenants and 100,000 keys
	@$(PY) tests/lab bench-control-plane

bench-history: $(READY) ## What a month of history costs: its size, its writes, what is asked of it
	@$(PY) tests/lab bench-history

bench-console: $(READY) ## The console's first paint and its share of a core (needs tmux)
	@$(PY) tests/lab bench-console

evaluate: $(READY) ## Fill docs/evaluation.md and ladder.md: make evaluate TRACES=FOLDER [OPTIONS=--quick]
	@$(PY) tests/lab evaluate $(if $(TRACES),--traces "$(TRACES)") $(OPTIONS)

clean: ## Remove everything that was built
	@rm -rf $(VENV) $(VENV_SGLANG) $(VENV_LOWEST) .build build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
