# The two commands: `make run` and `make test`. Each sets up what is missing first.
SHELL := /bin/bash
CARGO ?= cargo
# A Rust that is installed and not on PATH is found all the same.
found = $(shell . scripts/rust.sh; echo "$$$(1)")
export HOME := $(call found,HOME)
export CARGO_HOME := $(call found,CARGO_HOME)
export RUSTUP_HOME := $(call found,RUSTUP_HOME)
export PATH := $(call found,PATH)
# Seconds of chaos in `make soak`, for each kind of port.
CHAOS ?= 1200

.PHONY: help setup build run test soak python wheel page book fuzz harden prove sbom deb static static-test package-test fairdrop-sweep bench ns3 linux-tcp figures fmt clean

help:
	@echo "make run    set up what is missing, build quickly, and show the main job on real packets"
	@echo "make build  the command with all optimisations, target/release/evenkeel: takes some minutes"
	@echo "make test   everything CI runs"
	@echo "make soak   tests that run long: a million cycles of a cluster, five times what can happen to one, ten minutes of changes under load, ten minutes of kills, an hour of chaos; CHAOS=60: less"
	@echo "make python the Python package, its types, tests and notebooks; make wheel: to install, in out/ (docs/python.md)"
	@echo "make page   the live page in a Chromium, over a router under load, and what three of them cost a router with 10,000 subscribers; screenshots go to out/page and out/watched (needs root)"
	@echo "make fuzz   a minute of each fuzzer of what has changed since a commit (nightly toolchain); SINCE=main: since that one"
	@echo "make harden AddressSanitizer, Miri and every fuzzer for a minute (nightly toolchain); SECONDS_EACH=10: for so long"
	@echo "make prove  bounds by z3, every short sequence on the disciplines, workers by loom, a cluster by stateright: ten minutes (docs/proofs.md)"
	@echo "make sbom   the software bill of materials, out/evenkeel.cdx.json"
	@echo "make deb    the Debian package for this machine's architecture, in out/"
	@echo "make static one file that needs no library, for amd64 and arm64, in out/"
	@echo "make static-test  the tests of core, net, config and cluster as arm64 has them, under qemu-user"
	@echo "make book   the guide as a book with a gallery of all figures, out/guide/index.html (installs mdBook the first time)"
	@echo "make package-test  installs it in a fresh Debian, uses it, removes it and looks for leftovers (root, some minutes)"
	@echo "make fairdrop-sweep  FairDrop in 10,000 cells against exact max-min shares: half an hour (docs/fairdrop.md)"
	@echo "make bench  ratios against peers, measured in the same run; PARTS='memory live': only these"
	@echo "make ns3    the simulator's results beside those of ns-3: three minutes (docs/ns3.md)"
	@echo "make linux-tcp  the simulator's TCP beside that of this machine's kernel: twelve minutes, as root (docs/tcp.md)"
	@echo "make figures  every published figure, simulated (and in the lab as root), and one index page"
	@echo "make setup  install the Debian packages that the tests need and that are missing"

setup:
	@scripts/setup.sh

build:
	@$(CARGO) build --release --locked --quiet -p evenkeel

# With the profile `quick` and the few packages that the demo needs, so that it is there soon on a fresh machine.
run:
	@scripts/setup.sh demo
	@echo "Building for the demo, less optimised than \`make build\` does (the first time takes two to five minutes) ..."
	@$(CARGO) build --profile quick --locked --quiet -p evenkeel
	@target/quick/evenkeel demo --out out/demo

test: setup
	@scripts/test.sh

soak: setup prove
	@scripts/trial.sh --each-line
	@$(CARGO) test --profile lab --locked --quiet -p evenkeel-cluster -- --ignored
	@$(CARGO) test --profile lab --locked --quiet -p evenkeel-core --test it audit:: -- --ignored
	@EVENKEEL_SOAK=600 $(CARGO) test --profile lab --locked --quiet -p evenkeel-router --test kernel soak:: -- --nocapture
	@scripts/cluster-repeat.sh 5
	@$(CARGO) test --profile lab --locked --quiet -p evenkeel --test live two_routers_keep -- --ignored --nocapture
	@$(CARGO) test --profile lab --locked --quiet -p evenkeel --test live plans_hold -- --ignored --nocapture
	@$(CARGO) test --profile lab --locked --quiet -p evenkeel --test live it_goes_on -- --ignored --nocapture
	@EVENKEEL_KILLS=600 EVENKEEL_MEASURED=$(CURDIR)/docs $(CARGO) test --profile lab --locked --quiet -p evenkeel --test live f10_a_router_killed -- --nocapture --test-threads 1
	@EVENKEEL_LOADED=20 EVENKEEL_MEASURED=$(CURDIR)/docs $(CARGO) test --profile lab --locked --quiet -p evenkeel --test live shape::a_full_line -- --nocapture --test-threads 1
	@EVENKEEL_LOADED=20 EVENKEEL_MEASURED=$(CURDIR)/docs $(CARGO) test --profile lab --locked --quiet -p evenkeel --test live short_queues -- --nocapture --test-threads 1
	@EVENKEEL_KILLED=100 EVENKEEL_MEASURED=$(CURDIR)/docs $(CARGO) test --profile lab --locked --quiet -p evenkeel --test live killed_ -- --nocapture --test-threads 1
	@EVENKEEL_CHAOS=$(CHAOS) EVENKEEL_MEASURED=$(CURDIR)/docs $(CARGO) test --profile lab --locked --quiet -p evenkeel --test live chaos -- --nocapture --test-threads 1
	@$(CARGO) test --profile lab --locked --quiet -p evenkeel-core --test it of_any_tree -- --ignored

python:
	@scripts/setup.sh test
	@$(CARGO) build --locked --quiet -p evenkeel
	@scripts/python.sh test

wheel:
	@scripts/python.sh wheel

page:
	@scripts/setup.sh page
	@$(CARGO) build --profile quick --locked --quiet -p evenkeel
	@scripts/page.py
	@scripts/watched.py

fuzz:
	@scripts/fuzz-changed.sh $(SINCE)

harden:
	@scripts/harden.sh $(or $(SECONDS_EACH),60)

prove:
	@scripts/setup.sh prove
	@scripts/prove.sh

sbom:
	@mkdir -p out
	@scripts/sbom.py out/evenkeel.cdx.json

deb:
	@scripts/deb.sh

book:
	@command -v mdbook >/dev/null || $(CARGO) install --quiet --locked --debug mdbook
	@scripts/guide.py out/guide-source
	@[ -d out/figures/sim ] || WORLDS=sim scripts/figures.sh
	@scripts/gallery.py out/figures/sim out/guide-source
	@mdbook build --dest-dir "$(CURDIR)/out/guide" out/guide-source
	@echo "open out/guide/index.html"

static:
	@scripts/static.sh

static-test:
	@scripts/setup.sh static
	@scripts/static.sh test arm64

package-test: setup
	@scripts/package-test.sh

# Apart from `make soak`, because it takes half an hour on two idle cores. It fails as long as a cell does not keep its promise; docs/fairdrop.md lists those.
fairdrop-sweep:
	@scripts/fairdrop-sweep.sh

figures: setup build
	@scripts/book.sh

ns3:
	@scripts/setup.sh bench
	@$(CARGO) build --profile quick --locked --quiet -p evenkeel
	@scripts/ns3.sh target/quick/evenkeel

linux-tcp: setup
	@$(CARGO) build --profile quick --locked --quiet -p evenkeel
	@scripts/linux_tcp.py run target/quick/evenkeel

bench:
	@scripts/setup.sh bench
	@scripts/bench.sh $(PARTS)

fmt:
	@$(CARGO) fmt --all

clean:
	@$(CARGO) clean
	@rm -rf out
