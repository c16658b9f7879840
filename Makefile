# Everything starts here, and every target runs its own setup. The setup checks first, and installs
# or fetches only what is missing.

BIOPSY := target/x86_64-unknown-linux-gnu/release/biopsy
# Runs a command as root.
ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

PREFIX ?= /usr/local

.PHONY: help demo demo-vm build manual install uninstall dist quick test test-all lint vmtest fuzz bench bench-instructions bench-verdicts clean

help:
	@echo "make demo     measure this machine's disk, end in a verdict and report.html"
	@echo "make demo-vm  the same inside a virtual machine with an emulated NVMe drive"
	@echo "make build    $(BIOPSY), one static file"
	@echo "make manual    man pages and shell completions, in target/share"
	@echo "make install   what both have made, to PREFIX=/usr/local below DESTDIR; make uninstall removes it"
	@echo "make dist      a tarball, .deb, .rpm and an OCI image, in target/dist"
	@echo "make quick    lint and unit tests, for the work in between"
	@echo "make test     all tests; make lint and make vmtest are parts of it"
	@echo "make test-all the same, with every case in VMs on every kernel"
	@echo "make fuzz     the readers of recordings, each for FUZZ_SECONDS=600"
	@echo "make bench    what the probes cost, and the pictures"
	@echo "make bench-instructions  what a view adds to an I/O in instructions, on every kernel"
	@echo "make bench-verdicts  how often the diagnosis names a cause made on purpose"
	@echo "make clean    remove what was built (fetched kernels stay in the cache)"

build:
	@setup/rust
	@setup/packages build
	@BIOPSY_COMMIT=$$(git describe --always --dirty --exclude='*' --abbrev=12 2>/dev/null) cargo build --release --locked

manual:
	@setup/rust
	@rm -rf target/share
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) cargo run --quiet --locked --example manual -- target/share

install:
	@packaging/stage "$(DESTDIR)$(PREFIX)"

uninstall:
	@packaging/remove "$(DESTDIR)$(PREFIX)"

dist: build manual
	@setup/packages dist
	@packaging/dist

# Status 3: refused, nothing was measured. Status 4: measured, but some figures must not be trusted;
# the verdict and the report say so. biopsy has printed the reason.
demo: build
	@$(ROOT) $(BIOPSY) diagnose -o report.html || { status=$$?; \
		[ $$status -ne 4 ] || exit 0; \
		[ $$status -ne 3 ] || echo "Try 'make demo-vm': the same in a virtual machine with an emulated NVMe drive." >&2; \
		exit $$status; }

demo-vm: build
	@setup/packages vm
	@setup/qemu
	@setup/kernels 6.12
	@vmtest/demo 6.12

quick:
	@tests/run lint unit

test:
	@tests/run

test-all:
	@tests/run --all

lint:
	@tests/run lint

vmtest:
	@tests/run vm

fuzz:
	@setup/rust
	@setup/packages build
	@fuzz/run

bench: build
	@setup/packages bench
	@cargo bench --locked --bench overhead
	@cargo bench --locked --bench loss
	@cargo bench --locked --bench ring
	@cargo bench --locked --bench flame

bench-instructions: build
	@setup/packages vm
	@setup/qemu
	@setup/kernels
	@vmtest/run '' instructions

bench-verdicts: build
	@setup/packages bench
	@$(ROOT) benches/verdicts --write docs/verdicts.md

clean:
	@cargo clean
	@rm -f report.html
