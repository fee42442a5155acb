.PHONY: demo test test-postgres test-web bench pictures soak coverage setup format

PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed
# Python's own checks, but for those of memory, which are for extensions in C, and slow.
PYTEST := PYTHONDEVMODE=1 PYTHONMALLOC=default $(BIN)/pytest -q

demo: $(SETUP)
	$(BIN)/mcp-state demo

test: $(SETUP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --threads 2
	$(PYTEST) -n auto --dist worksteal

test-postgres: $(SETUP)
	MCP_STATE_TEST_EVERY_ENGINE=1 $(PYTEST) -n auto --dist worksteal -k postgres

test-web: $(SETUP)
	$(PYTEST) tests/web

bench: $(SETUP)
	PYTHONPATH=tests $(BIN)/python -m bench $(if $(ROWS),--rows $(ROWS)) $(BENCH)

pictures: $(SETUP)
	$(BIN)/python tests/web/pictures.py docs/pictures

soak: $(SETUP)
	MCP_STATE_SOAK=1 $(PYTEST) tests -k soak
	MCP_STATE_SOAK=1 $(PYTEST) tests -m hypothesis

coverage: $(SETUP)
	$(PYTEST) -n auto --cov --cov-report=term-missing:skip-covered

format: $(SETUP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(SETUP)

$(SETUP): pyproject.toml constraints.txt
	@echo "setting up .venv (a minute or two, once)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@
