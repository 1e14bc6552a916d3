# Everything a newcomer needs: `make demo` shows a real diagnosis, `make test` runs every test.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test setup bench docs clean

setup: $(VENV)/.ready

# torch goes in first and alone: a plain `torch`, pulled in by another package, would fetch
# gigabytes of CUDA packages.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt -e '.[test]'
	touch $@

demo: setup
	$(BIN)/torchsleuth demo

test: setup
	$(BIN)/python -m pytest -n 2 tests

# One page per rule in docs/rules/, from the rules' docstrings.
docs: setup
	$(BIN)/python docs/generate.py

bench: setup
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV)
