#!/usr/bin/env bash
# What is proved by machine: docs/proofs.md.
#
#     scripts/prove.sh [bounds]    all, which takes some ten minutes on two cores; or the bounds alone, which take seconds
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/rust.sh
# Debian's Python, for which python3-z3 is installed.
python=/usr/bin/python3
if ! "$python" -c 'import z3' 2>/dev/null; then
  echo "z3 is missing: install the Debian package python3-z3 (scripts/setup.sh prove)." >&2
  exit 3
fi
"$python" scripts/prove.py
# The models of workers are built otherwise than all else: in a folder of their own.
RUSTFLAGS="--cfg loom" cargo check --release --locked --quiet --target-dir target/loom -p evenkeel-core --lib --tests
[ "${1:-}" != bounds ] || exit 0

echo "--- every short sequence of operations, on the disciplines themselves"
cargo test --profile lab --locked --quiet -p evenkeel-core --test it small_scopes -- --include-ignored --nocapture --test-threads 1 2>&1 |
  # What a planted fault says when it is found is of no interest.
  grep -E '^[a-z-]+(, [a-z]+)?: [0-9]+ sequences|^[0-9]+ sequences|^test result|FAILED|was not found'
test "${PIPESTATUS[0]}" = 0

echo "--- workers that share a link, in every order and as the memory model allows"
RUSTFLAGS="--cfg loom" cargo test --release --locked --quiet --target-dir target/loom -p evenkeel-core --lib share::interleaved -- --test-threads 1

echo "--- the cycle of a cluster, with all that can happen to its frames and nodes"
cargo run --release --locked --quiet --manifest-path prove/Cargo.toml --target-dir target/prove --bin cluster
