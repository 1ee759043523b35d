# Every chore of this repository; `make help` lists them.

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# What rustup or scripts/bootstrap.sh may have installed outside PATH, last: what the user has chosen comes first.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(TARGET)/tools

# Nothing is built there a second time, nor debugged: what cargo keeps for that would take as much disk as all else together, and time
# to write. A panic names its line without it.
ifneq ($(CI),)
export CARGO_INCREMENTAL := 0
export CARGO_PROFILE_DEV_DEBUG := 0
endif

# Flags for `tiermem store serve`, for example: make run ARGS="--tier dram=1GiB --listen 127.0.0.1:7000"
ARGS ?=
# Flags for pytest, for example: make e2e PYTEST_ARGS="-k page"
PYTEST_ARGS ?=
# How many processes run the tests that drive the program. Their servers mostly wait, so two keep two cores busy.
E2E_WORKERS ?= 2
E2E_FLAGS := -n $(E2E_WORKERS) --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGS)
# The trace of `make bench`: four systems hold its items at once, so it is smaller than those in docs/RESULTS.md.
BENCH_TRACE ?= zipf:alpha=0.99,objects=1M,requests=6M,size=300
BENCH_ARGS ?= --preload
# The Python module has no tests in Rust (`make python` has them), and what it asks of chrono, arrow and serde would make crates that the
# programs of `make e2e` could not share.
UNIT_CRATES := --workspace --exclude tiermem-py
# How long `make fuzz-smoke` fuzzes each target.
FUZZ_SECONDS ?= $(if $(CI),20,60)
# How many worlds `make hunt` makes for each property, with how many seeds it runs each engine in virtual time, and how often it kills.
WORLDS ?= 2000
SEEDS ?= 10000
KILL_ROUNDS ?= 100
# The lists that `make mutations` tries; all of them take hours.
MUTATIONS ?= $(wildcard scripts/mutations/*.toml)
# What is driven once more against a store of two shards.
SHARDED_TESTS := test_acl.py test_clients.py test_config.py test_dialogues.py test_flash.py test_hashes.py test_info.py test_limits.py \
  test_redis_benchmark.py test_redis_cli.py test_redis_py.py test_tenants.py

.DEFAULT_GOAL := help
.PHONY: help run build test lint unit e2e python hunt mutations bench docs fuzz-smoke
.NOTPARALLEL:

help: ## this list
	@echo "tiermem: a Redis-compatible store whose memory is larger than DRAM"
	@echo
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1|/p' Makefile | awk -F'|' '{ printf "%-19s %s\n", $$1, $$2 }'

run: ## install what is missing, build, and start the store (flags: ARGS="...")
	@scripts/bootstrap.sh run
	@cargo build --release --locked -p tiermem-cli
	@exec $(TARGET)/release/tiermem store serve $(ARGS)

build: ## the release binary alone
	@scripts/bootstrap.sh run
	cargo build --release --locked -p tiermem-cli

test: ## everything that must hold before a change is merged
	@scripts/bootstrap.sh test
	@$(MAKE) --no-print-directory lint unit e2e python
	@if [ -n "$$CI" ]; then $(MAKE) --no-print-directory fuzz-smoke; fi

lint: ## formatting, clippy, licences and advisories (cargo-deny)
	@scripts/lint.sh

unit: ## the tests written in Rust
	cargo test --locked $(UNIT_CRATES) --no-run
	cargo test --locked $(UNIT_CRATES) --quiet

e2e: ## the tests that drive the built program with real clients (flags: PYTEST_ARGS="...")
	@scripts/bootstrap.sh test
	cargo build --locked -p tiermem-cli -p tiermem-workloads
	TIERMEM=$(TARGET)/debug/tiermem $(TARGET)/e2e-python/bin/python -m pytest tests/e2e $(E2E_FLAGS)
	cd tests/e2e && TIERMEM_SHARDS=2 TIERMEM=$(TARGET)/debug/tiermem $(TARGET)/e2e-python/bin/python -m pytest \
	  $(SHARDED_TESTS) $(E2E_FLAGS)

python: ## the Python package: built, linted, type-checked, tested (flags: PYTEST_ARGS="...")
	@scripts/bootstrap.sh test
	@scripts/test_python.sh $(PYTEST_ARGS)

hunt: ## what `make test` is too short to meet: both engines in thousands of worlds, and killed often (WORLDS, SEEDS, KILL_ROUNDS)
	@scripts/bootstrap.sh test
	TIERMEM_SEEDS=$(SEEDS) cargo test --locked -p tiermem-store --test virtual_time
	TIERMEM_WORLDS=$(WORLDS) TIERMEM_SEEDS=$(SEEDS) cargo test --locked -p tiermem-block --test engine
	cargo build --locked -p tiermem-cli -p tiermem-workloads
	TIERMEM=$(TARGET)/debug/tiermem TIERMEM_KILL_ROUNDS=$(KILL_ROUNDS) $(TARGET)/e2e-python/bin/python -m pytest tests/e2e \
	  -k test_block_kill $(PYTEST_ARGS)

mutations: ## changes one decision after the other and says which change no test notices (MUTATIONS="LIST.toml ...")
	@bad=0; for list in $(MUTATIONS); do echo "$$list"; scripts/mutations.py $$list || bad=1; done; exit $$bad

bench: ## tiermem beside all-DRAM, naive promotion and all-CXL, in process (BENCH_TRACE, BENCH_ARGS)
	@scripts/bootstrap.sh run
	cargo build --release --locked -p tiermem-cli
	$(TARGET)/release/tiermem store bench $(BENCH_TRACE) $(BENCH_ARGS)

docs: ## the documents that are written from the code
	cargo run --locked --quiet -p tiermem-store --example redis_compatibility >docs/redis-compatibility.md.new
	mv docs/redis-compatibility.md.new docs/redis-compatibility.md

fuzz-smoke: ## every fuzz target built, and run for a minute (FUZZ_SECONDS; FUZZ_SANITIZER=address)
	@scripts/bootstrap.sh test
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz_smoke.sh
