#!/usr/bin/env bash
# Runs a test binary for cargo, or what of it is of the part of all tests that EVENKEEL_TESTS names; without that, all of it.
#   virtual  long ones that ask no clock. They take what the tests beside them leave of the CPUs: half of them, whenever nobody else wants these
#   after    more of them, which would take longer beside the real ones than these: on all CPUs, when those are done
#   real     all others. Those that mostly wait, for kernels, clocks and clients that are late, share a core
#   alone    on real packets, how a core is shared, or that one is there for each test: nothing runs beside them
#   cargo test --config 'target."cfg(unix)".runner = "scripts/run-tests.sh"' ...
set -euo pipefail
cores=$(nproc)
run() { # part, words before, "--", arguments
  [ "${EVENKEEL_TESTS:-$1}" = "$1" ] || return 0
  local before=()
  shift
  while [ "$1" != -- ]; do before+=("$1") && shift; done
  # Others of the binary are run all the same, and what has failed is told at its end.
  ${before[@]+"${before[@]}"} "${binary[@]}" "${@:2}" || failed=$?
}
case ${EVENKEEL_TESTS:-real} in
  virtual | after | real | alone) ;;
  *) echo "EVENKEEL_TESTS=$EVENKEEL_TESTS: there are virtual, after, real and alone" >&2 && exit 2 ;;
esac
binary=("$@") failed=0
case $CARGO_PKG_NAME/$(basename "$1") in
  evenkeel-bench/instructions-* | evenkeel-cluster/it-* | evenkeel-core/it-*)
    run virtual chrt --idle 0 -- --test-threads $(((cores + 1) / 2))
    ;;
  evenkeel-sim/it-*) run after -- ;;
  evenkeel/alone-*) run alone -- ;;
  evenkeel-router/kernel-*)
    # Most wait for the kernel; FairDrop's fill both cores, one of them at a time.
    run alone -- --skip fairdrop:: --test-threads $((3 * cores))
    run alone -- fairdrop::
    ;;
  evenkeel/live-*)
    run real -- --skip outage:: --skip kill:: --test-threads $(((3 * cores + 1) / 2))
    run alone -- outage:: kill::
    ;;
  evenkeel-ports/it-* | evenkeel-serve/it-*) run real -- --test-threads $((3 * cores)) ;;
  *) run real -- ;;
esac
exit $failed
