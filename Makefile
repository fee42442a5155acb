.PHONY: demo test test-web bench pictures soak coverage setup format

PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed

demo: $(SETUP)
	$(BIN)/mcp-state demo

test: $(SETUP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/pytest -q -n auto

test-web: $(SETUP)
	$(BIN)/pytest -q tests/web

bench: $(SETUP)
	PYTHONPATH=tests $(BIN)/python -m bench $(if $(ROWS),--rows $(ROWS)) $(BENCH)

pictures: $(SETUP)
	$(BIN)/python tests/web/pictures.py docs/pictures

soak: $(SETUP)
	MCP_STATE_SOAK=1 $(BIN)/pytest -q tests -k soak

coverage: $(SETUP)
	$(BIN)/pytest -q -n auto --cov --cov-report=term-missing:skip-covered

format: $(SETUP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(SETUP)

$(SETUP): pyproject.toml constraints.txt
	@echo "setting up .venv (a minute or two, once)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@
