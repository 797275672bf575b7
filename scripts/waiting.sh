#!/usr/bin/env bash
# Runs a test binary for cargo. Tests that mostly wait, for kernels, clocks and clients that are late, have more than a core each.
#   cargo test --config 'target."cfg(unix)".runner = "scripts/waiting.sh"' ...
case $CARGO_PKG_NAME/$(basename "$1") in
  evenkeel-ports/it-* | evenkeel-serve/it-*) exec "$@" --test-threads $((3 * $(nproc))) ;;
  *) exec "$@" ;;
esac
