#!/usr/bin/env bash
# The core reads no clock and does no I/O. Three looks: it depends on nothing, it says no_std and has no unsafe code but the one instruction
# of its module `prefetch`, and its compiled code asks for no symbol outside of Rust's core and alloc libraries.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "purity: $*" >&2; exit 1; }

dependencies=$(cargo tree --locked -p evenkeel-core -e normal --prefix none | tail -n +2)
[ -z "$dependencies" ] || fail "evenkeel-core depends on: $dependencies"

grep -q 'no_std' crates/core/src/lib.rs || fail "crates/core/src/lib.rs is not no_std"
grep -q '^#!\[deny(unsafe_code)\]' crates/core/src/lib.rs || fail "crates/core/src/lib.rs does not deny unsafe code"
prefetch=crates/core/src/prefetch.rs
if grep -rnE '\bunsafe(_code)?\b' crates/core/src | grep -vE "^($prefetch|crates/core/src/lib\.rs:[0-9]+:#!\[deny\(unsafe_code\)\]$)"; then
  fail "unsafe code is allowed in $prefetch alone"
fi
[ "$(grep -vE '^ *//' "$prefetch" | grep -oE '\bunsafe\b' | wc -l)" = 1 ] || fail "$prefetch has more than one unsafe block"
grep -q 'unsafe { _mm_prefetch::<_MM_HINT_T0>(' "$prefetch" || fail "$prefetch does something else than to prefetch"
if grep -rnE 'extern crate std|std::(time|net|fs|io|thread|env)' crates/core/src; then
  fail "the core names the standard library"
fi

cargo build --locked --quiet -p evenkeel-core
library=$(find target/debug -maxdepth 1 -name 'libevenkeel_core.rlib')
# Everything generic is compiled by its users. What the rest asks for and does not define itself must be Rust's core or alloc,
# operations on memory, or arithmetic that the compiler brings along.
symbols() { nm "$1" "$library" 2>/dev/null | awk 'NF >= 2 && $NF !~ /:$/ { print $NF }' | sort -u; }
foreign=$(comm -23 <(symbols --undefined-only) <(symbols --defined-only) |
  grep -vE '^(_ZN|_RN?v|_R)[A-Za-z]*[0-9]*.*(4core|5alloc)|^(mem(cpy|move|set|cmp)|bcmp|rust_eh_personality|_Unwind_Resume)$|^__(rust|u?div|u?mod|mul|ash|lsh)[a-z_0-9]*$|__rust' || true)
foreign+=$(symbols --undefined-only | grep -E '3std[0-9]' || true)
[ -z "$foreign" ] || fail "the core asks the system for: $foreign"

# All other unsafe code lives in one crate.
for crate in crates/*/; do
  case "$crate" in crates/ports/ | crates/core/) continue ;; esac
  root="$crate/src/lib.rs"; [ -e "$root" ] || root="$crate/src/main.rs"
  grep -q '^#!\[forbid(unsafe_code)\]' "$root" || fail "$root does not forbid unsafe code"
done
echo "purity: the core depends on nothing, has no unsafe code but one hint and asks the system for nothing"
