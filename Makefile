# On a machine with only Rust and a C compiler, `make demo` builds farpool and shows it at work.
# What is missing is installed with apt where that can be done; otherwise the message says what to install.

SHELL := /bin/bash
CARGO ?= cargo
# The whole workspace is selected, also for one program: then all commands share what they build.
# The program stands where cargo puts it: CARGO_TARGET_DIR is honoured.
TARGET := $(or $(CARGO_TARGET_DIR),target)

# The virtual environment of `make python`.
VENV ?= .venv

.PHONY: help demo python wheel test check bench dist needs

help:
	@echo 'make demo    build farpool and run its demonstration'
	@echo 'make python  build the Python package and install it into the virtual environment $(VENV)'
	@echo 'make wheel   build the Python package: $(TARGET)/wheels/farpool-*.whl'
	@echo 'make test    everything CI runs: checks, lints, tests, documentation, quick benchmarks'
	@echo 'make check   the same without benchmarks (cargo xtask check)'
	@echo 'make dist    packages for machines without Rust, in dist/, each tried in an empty root file system'
	@echo 'make bench   the benchmark suites at full size (takes many minutes; "cargo xtask rivals" first)'
	@echo
	@echo 'The program is built as $(TARGET)/release/farpool.'

demo: needs
	$(CARGO) build --release --locked --workspace --bin farpool
	$(TARGET)/release/farpool demo

python: needs
	$(CARGO) xtask python-install $(VENV)

# For all versions of Python from 3.10 on, on this kind of machine.
wheel: needs
	$(CARGO) xtask python-wheel

test: check
	$(CARGO) xtask bench tpch --quick
	$(CARGO) xtask bench ssb --quick
	$(CARGO) xtask bench joins --quick
	$(CARGO) xtask bench farview --quick
	$(CARGO) xtask bench scan --quick
	$(CARGO) xtask bench sketches --quick
	$(CARGO) xtask bench sketch-accuracy --quick
	$(CARGO) xtask bench correlation --quick
	$(CARGO) xtask bench clients --quick
	$(CARGO) xtask bench first-minute --quick
	$(CARGO) xtask bench iopath --quick
	$(CARGO) xtask bench larger --quick
	$(CARGO) xtask bench restart --quick
	$(CARGO) xtask bench caribou --quick
	$(CARGO) xtask bench groups --quick

check: needs
	$(CARGO) xtask check

dist: needs
	$(CARGO) xtask dist

bench: needs
	$(CARGO) xtask bench tpch
	$(CARGO) xtask bench ssb
	$(CARGO) xtask bench joins
	$(CARGO) xtask bench farview
	$(CARGO) xtask bench scan
	$(CARGO) xtask bench sketches
	$(CARGO) xtask bench sketch-accuracy
	$(CARGO) xtask bench clients
	$(CARGO) xtask bench first-minute
	$(CARGO) xtask bench iopath
	$(CARGO) xtask bench larger
	$(CARGO) xtask bench restart
	$(CARGO) xtask bench caribou
	$(CARGO) xtask bench groups
	$(CARGO) xtask bench doors
	$(CARGO) xtask bench ibex

needs:
	@scripts/install-needs
