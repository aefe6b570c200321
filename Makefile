# Every target does all it needs on a machine with /dev/fuse and what requirements/system.sh names (root has it installed):
# the tools and libraries it installs itself go into .venv, the rest of what it makes into target, build and .demo.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
export PYO3_PYTHON := $(BIN)/python
export CARGO_TERM_PROGRESS_WHEN := never
# What the mount, MPI and the tests start is found in the environment of this checkout.
export PATH := $(BIN):$(PATH)

# A build of its own: in it what threads meet at is that of a scheduler.
SCHEDULES := -p stripewise-interleavings --features shuttle
RUST_SOURCES := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

# The kernel's switch, and the tests of the mount that are run with it on. The others make no mount, or one by the device: what
# they trace, or the few descriptors that they leave it, is of that.
RING := /sys/module/fuse/parameters/enable_uring
BY_RING := torn_down posix programs faults every_fault pool_faults rights_faults two_mounts writeback sharing users access endings names \
	sparse space scrub gate observer suites ltp

.PHONY: help system setup demo test test-all by-ring schedules suites lint site bench accuracy clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

# Before anything is built: what is missing is installed or said.
system:
	@PYTHON='$(PYTHON)' requirements/system.sh $(if $(filter test test-all,$(MAKECMDGOALS)),test,run)

$(VENV)/.tools: requirements/dev.txt | system
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which: make PYTHON=python3.12")'
	# What a try that failed has left may be of another Python.
	test -e $@ || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	touch $@

# An editable install: Python as it stands in the checkout, Rust as it was when this last ran.
$(VENV)/.installed: $(VENV)/.tools pyproject.toml setup.py $(RUST_SOURCES)
	@echo 'building stripewise (a first build takes some minutes)'
	@mkdir -p build
	$(BIN)/pip install --disable-pip-version-check --no-build-isolation --no-deps --editable . > build/install.log 2>&1 \
		|| { tail -n 60 build/install.log; exit 1; }
	touch $@

setup: $(VENV)/.installed ## Make .venv with the tools, build everything, install stripewise into it

demo: $(VENV)/.installed ## Emulated pool, real MPI program: trace, plan, place, measure again
	@exec $(BIN)/python -m stripewise.demo $(CURDIR)/.demo

# Suites of others that the tests run: from the registry, in the versions named here.
target/suites/.pjdfstest-0.2.2-fsx-0.3.2: | system
	@echo 'getting pjdfstest and fsx'
	@mkdir -p target/suites build
	cargo install --quiet --locked --debug --root target/suites --target-dir target/suites/build pjdfstest@0.2.2 fsx@0.3.2 \
		> build/suites.log 2>&1 || { tail -n 60 build/suites.log; exit 1; }
	rm -rf target/suites/build
	touch $@

suites: target/suites/.pjdfstest-0.2.2-fsx-0.3.2 ## pjdfstest and fsx, which the tests of the mount and of the preload run

test: ## The tests, but those of tests/long.txt; the runners' closing lines come last
test-all: ## All tests, as continuous integration runs them
test-all: export STRIPEWISE_LONG_TESTS := 1
test test-all: $(VENV)/.installed target/suites/.pjdfstest-0.2.2-fsx-0.3.2
	@mkdir -p build
	# Example logs that tests read: those that the package darshan ships.
	ask='import importlib.util as u; print(u.find_spec("darshan").submodule_search_locations[0])'
	export STRIPEWISE_DARSHAN_LOGS=$$($(BIN)/python -c "$$ask")
	host=$$(rustc -vV | sed -n 's/^host: //p')
	host=$${host//-/_}
	export "CARGO_TARGET_$${host^^}_RUNNER=$(CURDIR)/tests/bounded.sh"
	some=()
	[ -n "$${STRIPEWISE_LONG_TESTS:-}" ] || some=($$(sed -n 's/^tests.*::/--deselect=&/p; t; s/^tests/--ignore=&/p' tests/long.txt))
	status=0
	cargo test --workspace --no-run
	cargo test $(SCHEDULES) --no-run
	# Side by side, and Python's in as many processes as there are processors: most of both is waiting.
	$(BIN)/python -m pytest --numprocesses auto --timeout 600 --durations 10 "$${some[@]}" > build/pytest.log 2>&1 & python=$$!
	# Not through a pipe: a program that a test has left would keep its end open.
	: > build/cargo-test.log
	# The schedules compute all the time; the other tests wait most of it.
	cargo test $(SCHEDULES) > build/schedules.log 2>&1 & schedules=$$!
	cargo test --workspace --no-fail-fast >> build/cargo-test.log 2>&1 & rust=$$!
	tail --pid=$$rust --follow --lines=+1 build/cargo-test.log
	wait $$rust || status=1
	wait $$schedules || status=1
	tee --append build/cargo-test.log < build/schedules.log
	# A test binary that was ended at its bound has no line to count.
	bad=$$status
	wait $$python || status=1
	cat build/pytest.log
	echo
	echo 'slowest test binaries, which belong into tests/long.txt where they take a minute:'
	awk '/^ *Running / { name = $$NF } /^test result:.* finished in / { print $$NF, name }' build/cargo-test.log | sort -rn | sed -n 1,10p
	echo
	awk -v bad=$$bad '/^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
		END { printf "test result: %s. %d passed; %d failed; %d ignored\n", failed || bad ? "FAILED" : "ok", passed, failed, ignored }' \
		build/cargo-test.log
	tail -n 1 build/pytest.log
	exit $$status

by-ring: $(VENV)/.installed target/suites/.pjdfstest-0.2.2-fsx-0.3.2 ## The suites of mount, preload and all ways in with requests by io_uring, where the kernel offers it
	@if [ "$$(cat $(RING) 2> /dev/null)" != Y ]; then
		echo 'NOT RUN: the kernel offers no FUSE over io_uring; Linux 6.14 does after `echo Y > $(RING)` as root'
		exit 0
	fi
	host=$$(rustc -vV | sed -n 's/^host: //p')
	host=$${host//-/_}
	export "CARGO_TARGET_$${host^^}_RUNNER=$(CURDIR)/tests/bounded.sh"
	# A mount that would take the device fails.
	export STRIPEWISE_FUSE_DEVICE=0 STRIPEWISE_LONG_TESTS=1
	cargo test -p stripewise-fuse --no-fail-fast
	cargo test -p stripewise-mount --no-fail-fast $(addprefix --test ,$(BY_RING))
	cargo test -p stripewise-preload -p stripewise-conformance --no-fail-fast

schedules: | system ## The concurrent parts, under schedules that a scheduler chooses; part of test-all
	@cargo test $(SCHEDULES)

lint: $(VENV)/.tools site ## rustfmt, clippy, ruff, mypy, and the links of docs/
	@cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy $(SCHEDULES) --all-targets -- -D warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

site: $(VENV)/.tools ## docs/ as HTML in build/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(VENV)/.installed ## The figures of docs/benchmarks.md, each by the command that prints it
	@exec $(BIN)/python -m benches

accuracy: $(VENV)/.installed ## docs/accuracy.md anew: predictions against measurements, on cells drawn at random
	@exec $(BIN)/python -m benches.accuracy -o docs/accuracy.md

clean: ## Remove what the other targets made, except cargo's target directory
	rm -rf $(VENV) build .demo dist python/*.egg-info python/stripewise/_bin python/stripewise/_lib python/stripewise/*.so
