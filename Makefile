# All work is done by scripts/ and by `cargo xtask`; these are their short names.
.PHONY: all deb demo test test-long test-vm lint bench fuzz docs setup

all:
	cargo build --release

# Debian packages in target/debian: varve, varve-dbgsym, varve-doc.
deb:
	@scripts/deb

# The tour: disks, snapshots of a file system in use, a disaster, a rollback.
demo:
	@scripts/demo

# Everything that must hold.
test: setup
	@scripts/test

# Histories and other tests that compute in four times as many simulated worlds, mutated disks, each parser for a minute, and every kernel in
# virtual machines; takes an hour or two.
test-long: setup
	@scripts/test long

# What runs in virtual machines, with every kernel.
test-vm: setup
	@scripts/test vm

# Every rule that can be checked without running the program.
lint:
	@scripts/lint

# The tables of docs/benchmarks.md, measured on this machine.
bench: setup
	cargo build --release --package varve-cli --package varve-bench
	cargo run --release --package varve-bench -- all

# Each parser for half a minute; `cargo xtask fuzz --seconds 600 label` for more.
fuzz:
	@cargo xtask fuzz

# Documents that are rendered from code.
docs:
	@cargo xtask render

# Installs what is missing, when it may.
setup:
	@scripts/setup
