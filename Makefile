# Vshmem: build, test, install. `make help` says what there is.

PREFIX  ?= /usr/local
DESTDIR ?=
BINDIR  ?= $(PREFIX)/bin
LIBDIR  ?= $(PREFIX)/lib
INCDIR  ?= $(PREFIX)/include
MANDIR  ?= $(PREFIX)/share/man
DATADIR ?= $(PREFIX)/share
UNITDIR ?= $(PREFIX)/lib/systemd/user
SYSTEMUNITDIR ?= $(PREFIX)/lib/systemd/system
# udev and systemd-sysusers look there if PREFIX is /usr or /usr/local.
UDEVDIR ?= $(PREFIX)/lib/udev/rules.d
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
DOCDIR  ?= $(DATADIR)/doc/vshmem
LABDIR  ?= $(DATADIR)/vshmem-lab
ZSHDIR  ?= $(DATADIR)/zsh/site-functions
# Whether to install the profile: where the kernel asks for it (docs/sandbox.md).
APPARMOR ?= $(shell [ -e /etc/apparmor.d/abi/4.0 ] && [ -w '$(DESTDIR)/etc/apparmor.d' ] && echo yes)

SHELL   := /bin/sh
TARGET  := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
SONAME  := libvshmem.so.1
UCX_SONAME := libvshmem-ucx.so.1
LAB_FILES := $(wildcard lab/vshmem_lab/*.py lab/vshmem_lab/*/*.py lab/src/*.[ch] lab/src/*/*.* lab/src/channels/*/Cargo.* \
	lab/src/channels/*/src/* lab/demo/*) \
	lab/Makefile lab/requirements.txt lab/reframe_checks.py kmod/vshmem_ioctl.h
INSTALL_DOCS := MANDIR='$(DESTDIR)$(MANDIR)' DATADIR='$(DESTDIR)$(DATADIR)' DOCDIR='$(DESTDIR)$(DOCDIR)' ZSHDIR='$(DESTDIR)$(ZSHDIR)' scripts/install-docs.sh

.DEFAULT_GOAL := help
# What they did is said in a few lines.
.SILENT: install uninstall
.PHONY: help prepare build demo lab test test-all test-debian13 test-devices test-kvm test-xen soak fuzz sanitize lint site bench bench-xen install uninstall deb clean

help: ## this list
	@echo 'Vshmem $(VERSION): System V IPC across processes, containers and virtual machines'
	@echo
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22
	@echo
	@echo 'Settings: PREFIX=/usr/local, DESTDIR=, QUICK=1 (bench), TARGETS="pool" (fuzz),'
	@echo '          SUITES="unit capi" (test), CHECKS="rust c" (lint)'
	@echo 'Packages: scripts/prepare.sh --check all; scripts/prepare.sh --install build'

prepare: ## install what building needs (apt, as root or by sudo)
	@scripts/prepare.sh --install build

build: ## the library and the command, release build
	@scripts/prepare.sh --check build >/dev/null 2>&1 || scripts/prepare.sh --install build
	@scripts/build.sh

demo: ## two machines, unmodified programs, a table and a plot
	@scripts/prepare.sh --install build demo
	@scripts/build.sh demo
	@lab/vshmem-lab demo

test: ## what every change needs (ten minutes)
	@scripts/prepare.sh --install build
	@scripts/prepare.sh --install $(or $(SUITES),$(shell scripts/test.sh --list-quick)) || echo 'Suites are skipped for what is missing.'
	@$(MAKE) --no-print-directory build
	@scripts/test.sh $(or $(SUITES),$(LANE))

test-all: ## lint and every test suite (three quarters of an hour)
	@scripts/prepare.sh --install build test lint || echo 'Suites are skipped for what is missing.'
	@$(MAKE) --no-print-directory build
	@scripts/build.sh tests
	@scripts/test.sh --all

test-debian13: ## demo and test on a Debian 13 with nothing installed
	@scripts/prepare.sh --install debian13
	@tests/debian13/run.sh $(SUITES) || [ $$? -eq 77 ]

soak: build ## kills, lies and a fuzzer for hours: scripts/soak.sh
	@scripts/soak.sh

fuzz: ## hostile input to pools and sockets: scripts/fuzz.sh
	@scripts/fuzz.sh $(TARGETS)

sanitize: build ## AddressSanitizer, ThreadSanitizer and valgrind
	@SANITIZE='$(or $(SANITIZE),unit library valgrind thread)' scripts/sanitize.sh

test-kvm: ## all tests of machines on KVM, nested if need be (slow)
	@scripts/prepare.sh --install build kvm
	@$(MAKE) --no-print-directory build
	@tests/kvm/run.sh $(CASES) || [ $$? -eq 77 ]

test-devices: ## machines with devices of their own, nested (slow)
	@scripts/prepare.sh --install build kvm
	@$(MAKE) --no-print-directory build
	@tests/devices/run.sh $(CASES) || [ $$? -eq 77 ]

test-xen: ## all of the port to Xen, inside QEMU
	@tests/xen/run.sh && lab/check-xen.sh || [ $$? -eq 77 ]

lint: ## layout, lint and licences of everything
	@scripts/lint.sh $(CHECKS)

site: ## the documentation as a web site, in target/site
	@scripts/site.sh

lab: build ## what the lab needs; then `vshmem lab` runs from here
	@scripts/prepare.sh --install lab || lab/vshmem-lab setup
	@lab/vshmem-lab list
	@echo 'For a command of it: PATH=$$PWD/lab:$$PATH vshmem lab --help, or lab/vshmem-lab --help'

bench: build ## the lab's suites sharing and rivals; QUICK=1: seconds
	@scripts/prepare.sh --install lab
	@lab/vshmem-lab run sharing rivals $(if $(QUICK),--miniature --environment native) $(BENCH)

bench-xen: build ## the papers' benchmarks between Xen domains, in QEMU
	@scripts/prepare.sh --install lab
	@lab/vshmem-lab run xen --repetitions 5 --seconds 1 $(BENCH)

deb: ## Debian packages of it and of the drivers: target/deb
	@scripts/prepare.sh --check build deb >/dev/null 2>&1 || scripts/prepare.sh --install build deb
	@scripts/deb.sh

install: ## into DESTDIR PREFIX: commands, library, man pages, ...
	@# Not a dependency on build: root, who installs, may have no cargo.
	@[ -x $(RELEASE)/vshmem ] && [ -x $(RELEASE)/vshmem-place ] && [ -x $(RELEASE)/vshmem-balance ] && [ -e $(RELEASE)/libvshmem.so ] && [ -e $(RELEASE)/libvshmem_ucx.so ] || $(MAKE) --no-print-directory build
	install -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(INCDIR)'
	install -m 755 $(RELEASE)/vshmem $(RELEASE)/vshmem-place $(RELEASE)/vshmem-balance '$(DESTDIR)$(BINDIR)'
	install -m 755 $(RELEASE)/libvshmem.so '$(DESTDIR)$(LIBDIR)/libvshmem.so.$(VERSION)'
	ln -sf libvshmem.so.$(VERSION) '$(DESTDIR)$(LIBDIR)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(LIBDIR)/libvshmem.so'
	install -m 755 $(RELEASE)/libvshmem_ucx.so '$(DESTDIR)$(LIBDIR)/libvshmem-ucx.so.$(VERSION)'
	ln -sf libvshmem-ucx.so.$(VERSION) '$(DESTDIR)$(LIBDIR)/$(UCX_SONAME)'
	install -m 644 include/vshmem.h '$(DESTDIR)$(INCDIR)/vshmem.h'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCDIR@|$(INCDIR)|' -e 's|@VERSION@|$(VERSION)|' \
		packaging/vshmem.pc.in >'$(DESTDIR)$(LIBDIR)/pkgconfig/vshmem.pc'
	install -d '$(DESTDIR)$(UNITDIR)' '$(DESTDIR)$(SYSTEMUNITDIR)'
	sed -e 's|@BINDIR@|$(BINDIR)|' packaging/vshmem-agent.service.in >'$(DESTDIR)$(UNITDIR)/vshmem-agent.service'
	sed -e 's|@BINDIR@|$(BINDIR)|' packaging/vshmem-balance.service.in >'$(DESTDIR)$(UNITDIR)/vshmem-balance.service'
	sed -e 's|@BINDIR@|$(BINDIR)|' packaging/vshmem-agent-guest.service.in >'$(DESTDIR)$(SYSTEMUNITDIR)/vshmem-agent-guest.service'
	install -D -m 644 packaging/60-vshmem.rules '$(DESTDIR)$(UDEVDIR)/60-vshmem.rules'
	install -D -m 644 packaging/vshmem.sysusers '$(DESTDIR)$(SYSUSERSDIR)/vshmem.conf'
	if [ '$(APPARMOR)' = yes ]; then install -d '$(DESTDIR)/etc/apparmor.d'; \
		sed -e 's|@BINDIR@|$(BINDIR)|' packaging/vshmem.apparmor.in >'$(DESTDIR)/etc/apparmor.d/vshmem'; fi
	for file in $(LAB_FILES); do mode=644; [ ! -x $$file ] || mode=755; \
		install -D -m $$mode $$file '$(DESTDIR)$(LABDIR)'/$$file || exit; done
	sed -e 's|@LAB@|$(LABDIR)/lab|' lab/vshmem-lab >'$(DESTDIR)$(BINDIR)/vshmem-lab'
	chmod 755 '$(DESTDIR)$(BINDIR)/vshmem-lab'
	$(INSTALL_DOCS) install $(RELEASE)/vshmem
	@# What a package manager does afterwards.
	[ -n '$(DESTDIR)' ] || scripts/after-install.sh '$(SYSUSERSDIR)/vshmem.conf'
	@echo 'Installed: $(DESTDIR)$(BINDIR)/vshmem, and vshmem-lab, vshmem-place, vshmem-balance'
	@echo '           $(DESTDIR)$(LIBDIR)/$(SONAME), its header vshmem.h and vshmem.pc'
	@echo '           man pages (man vshmem), completions, units of systemd'
	@echo 'Next:      vshmem up; vshmem run -- PROGRAM; vshmem down'
	@echo '           machines wake each other by the driver: make -C kmod dkms-install'
	@echo 'Removed:   by make uninstall, with the same PREFIX'

uninstall: ## remove what install put there
	rm -f '$(DESTDIR)$(BINDIR)/vshmem' '$(DESTDIR)$(BINDIR)/vshmem-place' '$(DESTDIR)$(BINDIR)/vshmem-balance' '$(DESTDIR)$(INCDIR)/vshmem.h' '$(DESTDIR)$(LIBDIR)/pkgconfig/vshmem.pc'
	rm -f '$(DESTDIR)$(LIBDIR)/libvshmem.so.$(VERSION)' '$(DESTDIR)$(LIBDIR)/$(SONAME)' '$(DESTDIR)$(LIBDIR)/libvshmem.so'
	rm -f '$(DESTDIR)$(LIBDIR)/libvshmem-ucx.so.$(VERSION)' '$(DESTDIR)$(LIBDIR)/$(UCX_SONAME)'
	rm -f '$(DESTDIR)$(BINDIR)/vshmem-lab'
	rm -rf '$(DESTDIR)$(LABDIR)'
	rm -f '$(DESTDIR)$(UNITDIR)/vshmem-agent.service' '$(DESTDIR)$(UNITDIR)/vshmem-balance.service' '$(DESTDIR)$(SYSTEMUNITDIR)/vshmem-agent-guest.service'
	rm -f '$(DESTDIR)$(UDEVDIR)/60-vshmem.rules' '$(DESTDIR)$(SYSUSERSDIR)/vshmem.conf' '$(DESTDIR)/etc/apparmor.d/vshmem'
	$(INSTALL_DOCS) uninstall

clean: ## remove what build, test, bench and demo made
	rm -rf target
