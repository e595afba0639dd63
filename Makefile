# Needs Python 3.11 or newer and make, nothing else. PYTHON=python3.13 chooses another interpreter for a new .venv.

PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Small matrices are slower on several threads, and the sums of one thread are the same every time.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run demo test slow again browser proofs faults lint bench hashes clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' Makefile

setup: .venv/.dev ## Make .venv with everything the other targets need

run: .venv/.server ## Serve on 127.0.0.1:8000, or on CBWK_HOST and CBWK_PORT
	@exec $(BIN)/cbwk serve

demo: .venv/.plots ## Watch a simulated ad server spend two budgets; ends with a picture
	@$(BIN)/cbwk demo

test: setup ## Run the tests
	@# Three workers on two cores: much of the time a test waits for a server.
	@$(BIN)/python -m pytest -n 3 --dist worksteal --ignore=tests/browser -m "not slow"

slow: setup ## Run the tests that take long; .ci/run does so, too
	@$(BIN)/python -m pytest -n 3 --dist worksteal --ignore=tests/browser -m slow

again: setup ## Run the tests that failed last, alone
	@$(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none

browser: setup ## Try the dashboard in Chromium, where there is one
	@$(BIN)/python -m pytest -n 0 -rs tests/browser

PROOFS := simultaneous durability library_equality ad_server startup schemathesis

proofs: setup ## Run the long versions of the tests, on a machine with nothing else to do
	@CBWK_TEST_REPETITIONS=20 CBWK_TEST_DECISIONS=20000 CBWK_TEST_LOG_DECISIONS=200000 CBWK_TEST_EXAMPLES=100 \
		$(BIN)/python -m pytest -n 0 --durations=0 --durations-min=5 $(PROOFS:%=tests/service/test_%.py)

faults: setup ## Inject every fault by the hundred (40 minutes; PART=… for one part), tables in out/faults
	@$(BIN)/python -m tests.faults $(PART)

lint: setup ## Check style, types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: .venv/.bench ## Measure the library's speed and the service's
	@$(BIN)/python -m tests.benchmarks.bench_core
	@$(BIN)/cbwk bench

hashes: setup ## Write requirements-image.txt again, after a change of constraints.txt
	@$(BIN)/python .ci/requirements_image.py

clean: ## Remove .venv, caches and build products; data/ stays
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find cbwk_client cbwk_core service tests migrations -type d -name __pycache__ -prune -exec rm -rf {} +

# One stamp for each set of packages. A larger set writes the stamps of those it includes.
.venv/.server: pyproject.toml setup.py constraints.txt
	$(call install,server,the service,.server)

.venv/.plots: pyproject.toml setup.py constraints.txt
	$(call install,server$(COMMA)plots,the service and plots,.server .plots)

.venv/.dev: pyproject.toml setup.py constraints.txt
	$(call install,dev,everything for development,.server .plots .dev)

.venv/.bench: .venv/.dev
	$(call install,bench,what the benchmarks compare with,.bench)

COMMA := ,
# Bytecode is left to the first import: compiling all of it takes longer and a quarter more space.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -c 'import sys; print(sys.version.split()[0])' 2>/dev/null || echo missing). Try: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 \
		|| { echo "Creating .venv with $(PYTHON)" >&2; $(PYTHON) -m venv --clear .venv; }
	@echo "Installing $(2) into .venv, which takes a minute or more the first time" >&2
	@$(PIP_INSTALL) --no-compile -e '.[$(1)]'
	@touch $(3:%=.venv/%)
endef
