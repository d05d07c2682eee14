# Everything runs from a virtual environment in .venv, which every target makes when it is missing or out of date.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
# one more than processors, each with one thread: the run over Flower mostly waits
WORKERS := $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

.PHONY: setup demo test test-slow test-deploy coverage lint bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/fedhk demo

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

# what takes minutes: real processes, attacks, long properties
test-slow: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m slow

# real Flower processes that are killed and lie: about twenty minutes
test-deploy: $(READY)
	$(BIN)/python -m pytest -m deploy tests/deploy

# the tests with a report of what they do not reach, in build/coverage
coverage: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# docs/benchmarks.md in under half an hour, with two to six seeds; tables that take longer are those kept in benchmarks/results
BENCH := build/bench
bench: export FEDHK_BENCHMARK_RESULTS := $(BENCH)
bench: export FEDHK_BENCHMARK_SEEDS := 3
bench: SHELL := /bin/bash -o pipefail
bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	rm -rf $(BENCH) && mkdir -p $(BENCH)
	$(BIN)/python benchmarks/speed.py --quick
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/complexity.py
	$(BIN)/python benchmarks/kills.py 20 | tee $(BENCH)/kills.md
	$(BIN)/python benchmarks/federation.py
	FEDHK_BENCHMARK_SEEDS=6 $(BIN)/python benchmarks/privacy.py
	$(BIN)/python benchmarks/hostile.py
	$(BIN)/python benchmarks/hostile_everywhere.py
	$(BIN)/python benchmarks/personalization.py shared
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/page.py

# every page, the API reference and the gallery, whose examples run, as HTML in build/docs; a warning is an error
.PHONY: docs
docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs build/docs
	@echo build/docs/index.html

clean:
	rm -rf .venv build dist docs/gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis
