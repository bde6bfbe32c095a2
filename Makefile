# The two commands a newcomer needs: `make run` and `make test`. `make help` lists the rest.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
CORES := $(shell nproc 2>/dev/null || echo 2)
# What is compiled where a C compiler is present: these run a second time from source.
HOT_TESTS := tests/unit/protocol tests/unit/native_protocol tests/unit/client tests/unit/wire tests/unit/messages tests/unit/broker tests/unit/dispatch tests/unit/log tests/scenarios

.DEFAULT_GOAL := help
.PHONY: help setup compile pure run check format protobuf reference test test-spark test-others spark-processes conformance fault fault-storage fuzz soak store-peers bench bench-spark compare example-iot clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) compile  ## make .venv, install everything, compile the hot cores where a C compiler is present

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

compile: $(STAMP)
	@$(BIN)/python tools/compile.py

pure: $(STAMP)  ## remove the compiled cores: everything runs from source
	@$(BIN)/python tools/compile.py --clean

run: setup  ## start a standalone broker on 127.0.0.1:6650 with its data in ./danube-data
	$(BIN)/danube broker --mode standalone --data-dir ./danube-data

check: $(STAMP)  ## formatting, lint, types, import rules, spelling, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests docs bench tools proto examples README.md CHANGELOG.md CONTRIBUTING.md Makefile
	$(BIN)/python tools/generate_protobuf.py --check
	$(BIN)/python tools/generate_reference.py --check

format: $(STAMP)  ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

protobuf: $(STAMP)  ## regenerate the protobuf messages from proto/
	$(BIN)/python tools/generate_protobuf.py

reference: $(STAMP)  ## regenerate docs/reference from the code
	$(BIN)/python tools/generate_reference.py

test: setup check  ## everything a submission must pass
	@$(BIN)/python tools/side_by_side.py 'test-spark=$(MAKE) --no-print-directory test-spark' 'test-others=$(MAKE) --no-print-directory test-others'

test-spark: setup  ## the part of `make test` that needs Spark, in one session
	$(BIN)/pytest tests/spark --ignore tests/spark/processes

test-others: setup  ## the part of `make test` that needs none
	$(BIN)/pytest -n $(CORES) tests --ignore tests/conformance --ignore tests/spark
	PYDANUBE_PURE=1 $(BIN)/pytest -n $(CORES) $(HOT_TESTS)
	DANUBE_CONFORMANCE_CLIENTS=python $(BIN)/pytest -n 4 tests/conformance/clients

spark-processes: setup  ## what starts a Spark of its own for each test: the example, declarative pipelines, object stores
	$(BIN)/pytest tests/spark/processes

conformance: setup  ## the published clients and h2spec, with every toolchain that is present
	$(BIN)/pytest -n 3 tests/conformance

fault: setup  ## kill -9 rounds: make fault SECONDS=600 SEED=7
	$(BIN)/python -m tests.fault --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED))

fault-storage: setup  ## kill -9 at every step of storing history: make fault-storage SEEDS=20 SEED=7
	$(BIN)/python -m tests.fault.storage --seeds $(or $(SEEDS),5) $(if $(SEED),--seed $(SEED))

fuzz: setup  ## every fuzz target for FUZZ_SECONDS each: make fuzz FUZZ_SECONDS=600
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),120) $(BIN)/pytest tests/fuzz --timeout 0

soak: setup  ## full load with a consumer that is away half of the time, memory watched: make soak SECONDS=600
	$(BIN)/python -m tests.soak --seconds $(or $(SECONDS),600)

bench: setup  ## speed, as ratios within one run
	$(BIN)/python -m bench

bench-spark: setup  ## topics in Spark next to Spark alone: make bench-spark ARGS='--megabytes 128 --rounds 3'
	$(BIN)/python -m bench.spark $(ARGS)

example-iot: setup  ## devices, a topic, an Iceberg table, SQL and a plot, with a broker of its own
	$(BIN)/python examples/iot_lakehouse/run.py $(ARGS)

store-peers: setup  ## durable stores against Azurite (npm) and AWS credentials (boto3)
	npm install --silent --prefix .tools azurite
	$(BIN)/pip install --quiet boto3
	PATH="$(CURDIR)/.tools/node_modules/.bin:$$PATH" DANUBE_STORE_PEERS=azurite,aws $(BIN)/pytest tests/contract/stores

compare: setup  ## ours next to NATS, Redis, Kafka and RabbitMQ: make compare ARGS=--quick
	$(BIN)/python -m bench.compare $(ARGS)

clean:  ## remove environments, builds and caches (not ./danube-data)
	rm -rf .venv .tools build *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src -name '*.so' -delete
