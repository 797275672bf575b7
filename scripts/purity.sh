#!/usr/bin/env bash
# The core reads no clock and does no I/O. Three looks: it depends on nothing, it says no_std and forbids unsafe code,
# and its compiled code asks for no symbol outside of Rust's core and alloc libraries.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "purity: $*" >&2; exit 1; }

dependencies=$(cargo tree --locked -p evenkeel-core -e normal --prefix none | tail -n +2)
[ -z "$dependencies" ] || fail "evenkeel-core depends on: $dependencies"

grep -q 'no_std' crates/core/src/lib.rs || fail "crates/core/src/lib.rs is not no_std"
grep -q '^#!\[forbid(unsafe_code)\]' crates/core/src/lib.rs || fail "crates/core/src/lib.rs does not forbid unsafe code"
if grep -rnE 'extern crate std|std::(time|net|fs|io|thread|env)' crates/core/src; then
  fail "the core names the standard library"
fi

cargo build --locked --quiet -p evenkeel-core
library=$(find target/debug -maxdepth 1 -name 'libevenkeel_core.rlib')
# Everything generic is compiled by its users; what is left must ask for memory operations, core and alloc at most.
foreign=$(nm --undefined-only --demangle=rust "$library" 2>/dev/null | awk '$1 == "U" { $1 = ""; print substr($0, 2) }' | sort -u |
  grep -vE '^(core::|alloc::|<.* as (core|alloc)::|<.*(core|alloc)::|evenkeel_core::|<.*evenkeel_core|mem(cpy|move|set|cmp)$|bcmp$|__rust_|__rustc|_?DW\.ref|rust_eh_personality|_Unwind_Resume)' || true)
[ -z "$foreign" ] || fail "the core asks the system for: $foreign"

# Unsafe code lives in one crate.
for crate in crates/*/; do
  case "$crate" in crates/ports/) continue ;; esac
  root="$crate/src/lib.rs"; [ -e "$root" ] || root="$crate/src/main.rs"
  grep -q '^#!\[forbid(unsafe_code)\]' "$root" || fail "$root does not forbid unsafe code"
done
echo "purity: the core depends on nothing, forbids unsafe code and asks the system for nothing"
