#!/usr/bin/env bash
# What takes too long for `make test` and is to be run each week: the tests of crates with unsafe code under AddressSanitizer, what Miri can run of them, and every
# fuzzer for a while with its corpus. Needs the nightly toolchain with the components miri and rust-src.
#
#   scripts/harden.sh [SECONDS_PER_FUZZER] [FUZZER ...]
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
target=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=target/harden
failed=()
step() {
  local name=$1 begin=$SECONDS
  shift
  if "$@"; then
    printf 'harden: %-40s passed in %d s\n' "$name" $((SECONDS - begin))
  else
    printf 'harden: %-40s FAILED\n' "$name"
    failed+=("$name")
  fi
}

# What is not there is got, where that can be; what cannot be had is said, and has not passed.
needs() { # component
  rustup component list --toolchain nightly 2>/dev/null | grep -q "^$1.*(installed)" || rustup component add --toolchain nightly "$1" >/dev/null 2>&1 ||
    { echo "harden: the nightly toolchain has no $1, and rustup cannot get it: rustup component add --toolchain nightly $1"; return 1; }
}
cargo +nightly --version >/dev/null 2>&1 ||
  { echo "harden: needs the nightly toolchain: rustup toolchain install nightly --component miri --component rust-src" >&2; exit 3; }

asan() { RUSTFLAGS=-Zsanitizer=address cargo +nightly test --quiet --target "$target" "$@"; }

# Sockets, BPF and the time stamp counter are beyond Miri; buffers, rings in memory and prefetches are not.
miri() {
  needs rust-src && needs miri || return 1
  MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test --quiet -p evenkeel-core --lib prefetch &&
    MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test --quiet -p evenkeel-ports --lib -- pool:: segment:: memory:: bpf:: pcap::
}

# As cargo-fuzz does it, which need not be there.
build_fuzzers() {
  RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Cdebug-assertions \
    -Ccodegen-units=1" cargo +nightly build --quiet --release --locked --manifest-path fuzz/Cargo.toml --target "$target" --bins
}

# What is found anew stays in target/; what broke is to be kept under a name that says what it was, in fuzz/corpus.
fuzz() {
  local name=$1 found=$CARGO_TARGET_DIR/corpus/$1 kept=fuzz/corpus/$1
  mkdir -p "$found"
  [ -d "$kept" ] || kept=
  "$CARGO_TARGET_DIR/$target/release/$name" "$found" $kept -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=4096 -timeout=25 \
    -artifact_prefix="$CARGO_TARGET_DIR/found-$name-" -print_final_stats=1 2>"$CARGO_TARGET_DIR/$name.log" ||
    { tail -30 "$CARGO_TARGET_DIR/$name.log"; return 1; }
  grep -h 'number_of_executed_units' "$CARGO_TARGET_DIR/$name.log"
}

if [ $# -eq 0 ]; then
  step "ports under AddressSanitizer" asan -p evenkeel-ports
  step "prefetches of the core under ASan" asan -p evenkeel-core --lib prefetch
  step "Miri" miri
  mapfile -t fuzzers < <(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | tail -n +2)
else
  fuzzers=("$@")
fi
step "fuzzers are built" build_fuzzers
for name in "${fuzzers[@]}"; do
  step "fuzzer $name" fuzz "$name"
done
[ ${#failed[@]} -eq 0 ] || { printf 'harden: failed: %s\n' "${failed[*]}"; exit 1; }
