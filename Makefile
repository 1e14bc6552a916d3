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
	$(PIP) install -c constraints.txt torch numpy
	$(PIP) install -c constraints.txt -e '.[test]'
	$(BIN)/python -m compileall -q src  # once: where PYTHONDONTWRITEBYTECODE is set, every start would compile what it imports
	touch $@

demo: setup
	$(BIN)/torchsleuth demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests

bench: setup
	$(BIN)/python -m bench

docs: setup
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/picture.py

clean:
	rm -rf $(VENV)
