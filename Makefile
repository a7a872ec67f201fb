# Every target is at most three lines. `make run` and `make test` do everything on a fresh machine.
VENV := .venv
BIN := $(VENV)/bin
export OPENBLAS_NUM_THREADS := 1

.PHONY: run test check chaos test-long test-hardware test-systemd bench-packrat install lint types layers fmt clean

run: $(VENV)/.installed
	$(BIN)/jouletune run

test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory check

check: lint types layers
	$(BIN)/python -m pytest

# kill -9 at every kill point; prints how many there are.
chaos: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q tests/chaos

# Whole studies over the fake NVML, through the actuator: minutes.
test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m long

# Reads a real GPU and tunes a batch size on it; sets clocks only with JOULETUNE_HARDWARE_WRITE=1.
test-hardware: $(VENV)/.installed-dev
	JOULETUNE_HARDWARE=1 $(BIN)/python -m pytest -q tests/hardware

# The units in a Debian booted by systemd-nspawn; as root.
test-systemd: $(VENV)/.installed-dev
	JOULETUNE_TEST_SYSTEMD=1 $(BIN)/python -m pytest -v tests/systemd

# Packrat against one fat instance, four models on this machine: about 15 minutes on two quiet cores.
bench-packrat: $(VENV)/.installed
	$(BIN)/jouletune packrat measure

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

fmt: $(VENV)/.installed-dev
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

$(VENV)/.installed: pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tuner,reference,postgres]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tuner,reference,postgres,dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
