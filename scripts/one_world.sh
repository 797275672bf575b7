#!/usr/bin/env bash
# The router does not know which world it is in: simulator and lab run the same code. Three looks at the crates a packet passes
# through: no dependency on what drives worlds, no `cfg` but those of tests, of Miri, of the processor and of the C library, and
# outside of comments no word, and no part of an identifier, that names a world. `ports::memory` is the simulator's port and may say so.
# --self-test plants a violation of each kind in a copy and demands that it is found.
set -euo pipefail
cd "$(dirname "$0")/.."

crates="core net ports router"
worlds='sim|sims|simulat[a-z]*|lab|labs|scenario[s]?|world[s]?'

# Lines of Rust code under a folder, without comments, tests and `ports::memory`: file:line:text. Unit tests stand at the end of a file,
# or in a file named tests.rs.
code() { # folder
  local folders
  folders=$(for crate in $crates; do echo "$1/$crate/src"; done)
  # shellcheck disable=SC2086 # names of folders of ours
  find $folders -name '*.rs' ! -name 'tests.rs' ! -path '*/ports/src/memory.rs' ! -path '*/ports/src/memory/*' -print0 | sort -z |
    xargs -0 awk '
      FNR == 1 { tests = 0 }
      /^#\[cfg\(test\)\]$/ { pending = 1; next }
      pending { if ($0 ~ /^(pub\(.*\) )?mod [a-z_]+ \{/) tests = 1; pending = 0 }
      tests { next }
      { text = $0; sub(/^[ \t]*\/\/.*/, "", text); sub(/[ \t]\/\/.*/, "", text); if (text != "") print FILENAME ":" FNR ":" text }'
}

look() { # folder with the crates; prints what it finds
  local manifest
  for crate in $crates; do
    manifest=$1/$crate/Cargo.toml
    # Tests may compare with whatever they like.
    awk '/^\[/ { dev = /dev-dependencies/ } !dev' "$manifest" |
      grep -nE "^evenkeel-(sim|lab|scenario|world|report|sweep)\b" | sed "s|^|$manifest: depends on a world: |" || true
  done
  code "$1" | grep -E 'cfg(_attr)?!?\(' |
    grep -vE 'cfg(_attr)?!?\((not\()?(test|target_arch|target_env|target_endian|target_pointer_width|debug_assertions|miri|loom)\b' |
    sed 's|^|a cfg: |' || true
  # Identifiers are taken apart at capitals and underscores, so that LabPort and is_sim are found and label is not. Texts in quotes
  # are looked at too: a router that asks for a name in its environment knows its world.
  code "$1" | awk -v worlds="^($worlds)$" '
    { text = $0; sub(/^[^:]*:[0-9]*:/, "", text)
      gsub(/[A-Z]+/, " &", text); gsub(/[^A-Za-z]+/, " ", text)
      n = split(tolower(text), words, " ")
      for (i = 1; i <= n; i++) if (words[i] ~ worlds) { print "names a world: " $0; next } }' || true
}

self_test() {
  local copy
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' RETURN
  planted() { # what, file, line to append
    local before
    rm -rf "$copy/crates"
    mkdir "$copy/crates"
    for crate in $crates; do
      mkdir "$copy/crates/$crate"
      cp -r "crates/$crate/src" "crates/$crate/Cargo.toml" "$copy/crates/$crate/"
    done
    before=$(look "$copy/crates")
    # In front of the code: what follows a module of tests is not looked at.
    { printf '%s\n' "$3"; cat "$copy/crates/$2"; } >"$copy/new"
    mv "$copy/new" "$copy/crates/$2"
    [ "$(look "$copy/crates")" != "$before" ] || { echo "one world: $1 in $2 is not found" >&2; return 1; }
  }
  planted "a branch" router/src/worker.rs 'fn late() -> bool { is_sim() }' &&
    planted "a type" core/src/link/mod.rs 'struct LabLink;' &&
    planted "a cfg" net/src/fib.rs '#[cfg(feature = "virtual-time")]' &&
    planted "a question to the environment" ports/src/port.rs 'const WHERE: &str = "EVENKEEL_SCENARIO";' &&
    planted "a dependency" router/Cargo.toml "$(printf '[dependencies]\nevenkeel-world.workspace = true')"
}

case "${1:-}" in
  "") ;;
  --self-test) self_test || exit 1 ;;
  *) echo "usage: scripts/one_world.sh [--self-test]" >&2; exit 2 ;;
esac
found=$(look crates)
[ -z "$found" ] || { echo "$found" >&2; echo "one world: the router must not know which world it is in" >&2; exit 1; }
echo "one world: nothing in $crates names a world"
