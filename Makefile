# make month   set up, write the till's September, load it, check it
# make shopflow the same for the web shop: a Postgres server of its own, its sample, January 2024
# make test    set up and pass the tests
# The first Python that is new enough (DuckDB 2 and others need 3.11); name another with make PYTHON=...
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export DAGSTER_HOME ?= $(CURDIR)/dagster_home
NAME ?=
PORT ?= 3000

MINUTES ?= 10
SEED ?= 1

.PHONY: setup month shopflow dev test test-fast test-postgres test-browser pictures lint docs bench soak

setup: $(READY)

# Everything the project needs, jars included, in .venv; nothing to do when the pins have not changed.
$(READY): pyproject.toml setup.py constraints.txt
	@test -n "$(PYTHON)" || { echo "setup: Python 3.11 or newer is needed and none is on the PATH; install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -n "$$JAVA_HOME" || command -v java >/dev/null || { echo "setup: Spark needs Java 17 or newer and there is none; install a JDK, or point JAVA_HOME at one" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "setup: $(PYTHON) cannot make a virtual environment; install its venv package" >&2; exit 2; }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m shop_pipeline.core.spark
	$(BIN)/python -m shop_pipeline.core.cold_start
	@touch $@

month: setup
	@$(BIN)/shop sample
	@$(BIN)/shop backfill 2026-09-02 2026-10-01

# The web shop: two years of orders in a local Postgres (or the one in SHOP_POSTGRES_URL), January 2024 loaded and counted.
shopflow: setup
	@$(BIN)/shop sample shopflow
	@$(BIN)/shop backfill 2024-01-01 2024-01-31 --source shopflow
	@$(BIN)/shop sql "SELECT order_date, orders, delivered FROM shopflow.orders_per_day ORDER BY orders DESC, order_date LIMIT 3"

# The web UI on http://127.0.0.1:3000 (or PORT=...).
dev: setup
	@$(BIN)/shop prepare
	$(BIN)/dagster dev -w workspace.yaml -h 127.0.0.1 -p $(PORT)

test: setup lint
	$(BIN)/python -m shop_pipeline_tests.lanes

# The web shop's tests on Debian's Postgres (apt-get install postgresql) instead of the packaged one; those about the server.
test-postgres: setup
	@test -d /usr/lib/postgresql || { echo "test-postgres: there is no /usr/lib/postgresql; install Debian's postgresql" >&2; exit 2; }
	TEST_POSTGRES_BINARIES=$$(ls -d /usr/lib/postgresql/*/bin | tail -1) $(BIN)/python -m pytest \
		shop_pipeline_tests/integration/test_shopflow.py -k "counted_and_checked or half_open or judged or read_in_parts or times"

# What people see and click in the web UI, in Debian's Chromium (apt-get install chromium fonts-dejavu-core).
test-browser: setup
	@test -x /usr/bin/chromium || { echo "test-browser: there is no /usr/bin/chromium; install Debian's chromium and fonts-dejavu-core" >&2; exit 2; }
	$(BIN)/python -m pytest --durations=10 shop_pipeline_tests/browser $(PICTURES)

# The same, and the pictures of docs/ui.md are taken anew: look at each before you commit it.
pictures: PICTURES := --pictures docs/pictures
pictures: test-browser

# The tests that need no Spark, in seconds.
test-fast: setup
	$(BIN)/python -m pytest -m 'not spark and not slow'

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The page that is made from the contract.
docs: setup
	$(BIN)/python -m shop_pipeline.core.contract_page > docs/contract.md

bench: setup
	$(BIN)/python -m bench $(NAME)

# Loads killed at random for so many minutes (at most 120); says what it did, and fails if a row was lost or doubled.
soak: setup
	$(BIN)/python -m shop_pipeline_tests.soak $(MINUTES) $(SEED)
