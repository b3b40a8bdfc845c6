# Everything a newcomer needs: `make demo` and `make test` do their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FAST := not kafka and not chaos and not browser and not soak and not simulation
LOW := nice -n 10 $(BIN)/python -m pytest -q
KAFKA := kafka and not browser and not chaos and not soak
# With a broker, but run in the lane without one, so that both take as long.
MOVED := tests/cluster tests/views

.PHONY: install demo test fast check chaos failover soak simulate bench clean

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing perdure and its pinned dependencies into $(VENV)"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $(STAMP)

install: $(STAMP)

demo: install
	$(BIN)/perdure demo

fast: install
	$(BIN)/python -m pytest -q -m "$(FAST)"

# What has a broker waits most of the time: what has none runs beside it, then the browser's tests and a
# part of those with a broker, and is printed after it.
# What kills comes last, alone.
test: install check
	@sh -c '$(LOW) -m "$(FAST)" && $(LOW) -m "simulation and not soak" && $(LOW) -m "browser and not soak" && $(BIN)/python -m pytest -q -m "$(KAFKA)" $(MOVED)' > .fast-tests.log 2>&1 & beside=$$!; \
	$(BIN)/python -m pytest -q -m "$(KAFKA)" $(addprefix --ignore=,$(MOVED)); with=$$?; \
	wait $$beside; without=$$?; cat .fast-tests.log; test $$with -eq 0 && test $$without -eq 0
	$(BIN)/python -m pytest -q -m "chaos and not soak"

# All that kills and stops, the long parts too (about half an hour), then the failover figures.
chaos: install
	$(BIN)/python -m pytest -q -m chaos
	$(BIN)/python -m tests.chaos.failover

# How long the partitions of a killed process stand still: 20 kills, p50 and the largest.
failover: install
	$(BIN)/python -m tests.chaos.failover

# The long forms of load tests, with their figures.
soak: install
	$(BIN)/python -m pytest -q -s -m "soak and not chaos"

# mypy does not know setuptools' package map: a folder of links shows it the tree as it is imported.
check: install
	@mkdir -p .mypy/perdure && cd .mypy/perdure && ln -sfn ../../streams ../../schemas ../../connectors ../../perdure/* .
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p perdure.schemas -p perdure.streams.core -p perdure.streams.runtime -p perdure.streams.views -p perdure.connectors

# Many seeds of the simulated world: what takes the night.
simulate: install
	$(BIN)/perdure simulate --seeds 10000

bench: install
	$(BIN)/perdure bench --runs 600 --steps 10 --concurrency 50 --json

clean:
	rm -rf $(VENV) .mypy build *.egg-info
