#!/usr/bin/env bash
# Tests on real packets have times in them, which a neighbour of this machine can spoil. Up to three of them that failed in a log of `cargo test --quiet` are run
# again, alone, twice at most: what is wrong fails each time. Each is named with how often it failed. Tests in virtual time are never asked again.
#   scripts/repeat.sh LOG [ARGUMENT OF CARGO ...]     ends well if all that failed in LOG holds now
#   scripts/repeat.sh --self-test
set -uo pipefail
cd "$(dirname "$0")/.."
most=3

# Package, target and name of each test that failed; a target that did not get to its list has a line without a name.
failed() { # log
  # A target may have been run in parts, each with its list; what is said of its tests before each list is none.
  awk '/^failures:$/ { listed = 1; n = before; next }
    /^test result:/ { listed = 0; before = n }
    listed && /^    [^ ]+$/ { names[n++] = $1 }
    /^error: test failed, to rerun pass/ {
      match($0, /`.*`/)
      split(substr($0, RSTART + 1, RLENGTH - 2), word, " ")
      if (n == 0) print word[2] "\t" word[4] "\t"
      for (i = 0; i < n; i++) print word[2] "\t" word[4] "\t" names[i]
      n = before = 0
    }
    # It did not end as tests do, whatever its lists say.
    /^  process didn.t exit successfully: / { print "-\t-\t" }' "$1"
}

on_real_packets() { # package, target
  case "$2" in
    kernel | live | alone | lab) return 0 ;;
    *) [ "$1 $2" = "evenkeel-ports it" ] ;;
  esac
}

repeat() { # log, arguments of cargo...
  local log=$1 package target name tries
  shift
  # With its arguments a build of these is the one that is there.
  local run=("${CARGO:-cargo}" test --workspace --locked --quiet "$@")
  mapfile -t broken < <(failed "$log")
  [ ${#broken[@]} -ge 1 ] || return 1
  [ ${#broken[@]} -le $most ] || { echo "${#broken[@]} tests failed: too many for a neighbour's doing"; return 1; }
  for line in "${broken[@]}"; do
    IFS=$'\t' read -r package target name <<<"$line"
    [ -n "$name" ] && on_real_packets "$package" "$target" || return 1
  done
  for line in "${broken[@]}"; do
    IFS=$'\t' read -r package target name <<<"$line"
    for tries in 1 2 3; do
      [ $tries -le 2 ] || { echo "repeated: $package $target $name: failed three times of three"; return 1; }
      echo "=== again, alone: $package $target $name"
      ! "${run[@]}" --test "$target" -- --exact "$name" --test-threads 1 || break
    done
    echo "repeated: $package $target $name: failed $tries of $((tries + 1)) times"
  done
}

self_test() {
  local scratch
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' RETURN
  log() { # package, target, names...
    local package=$1 target=$2 name
    shift 2
    printf '\nfailures:\n\n---- %s stdout ----\nsaid\n    not_a_name of a test\n\n\nfailures:\n' "$1"
    for name in "$@"; do printf '    %s\n' "$name"; done
    printf '\ntest result: FAILED. 85 passed; %d failed\n\nerror: test failed, to rerun pass `-p %s --test %s`\n' $# "$package" "$target"
  }
  # A cargo whose tests fail as often as the file says.
  printf '#!/bin/sh\necho "$@" >>%s/asked\nleft=$(cat %s/bad)\n[ $left -gt 0 ] || exit 0\necho $((left - 1)) >%s/bad\nexit 1\n' \
    "$scratch" "$scratch" "$scratch" >"$scratch/cargo"
  chmod +x "$scratch/cargo"
  try() { # how often it fails, log
    echo "$1" >"$scratch/bad"
    : >"$scratch/asked"
    CARGO=$scratch/cargo repeat "$2" --features of-this >/dev/null
  }
  { log evenkeel-router kernel a::b; log evenkeel live c; } >"$scratch/two"
  try 1 "$scratch/two" || { echo "a test that held the second time is not taken"; return 1; }
  [ "$(grep -c 'features of-this --test kernel -- --exact a::b' "$scratch/asked")" = 2 ] &&
    [ "$(grep -c -- '--test live -- --exact c' "$scratch/asked")" = 1 ] || { echo "asked:"; cat "$scratch/asked"; return 1; }
  ! try 2 "$scratch/two" || { echo "a test that failed three times is taken"; return 1; }
  log evenkeel-core it d >"$scratch/virtual"
  { log evenkeel live c; cat "$scratch/virtual"; } >"$scratch/mixed"
  log evenkeel live a b c d >"$scratch/many"
  # A target in two parts, in each of which a test failed, and one that ended before its second list.
  { log evenkeel-router kernel a::b | grep -v '^error'; log evenkeel-router kernel c; } >"$scratch/parts"
  try 0 "$scratch/parts" || { echo "two tests that held the second time are not taken"; return 1; }
  [ "$(grep -c -- '--test kernel -- --exact [a:bc]* ' "$scratch/asked")" = 2 ] || { echo "asked:"; cat "$scratch/asked"; return 1; }
  { cat "$scratch/two"; printf '\nCaused by:\n  process didn'"'"'t exit successfully: `kernel` (signal: 6)\n'; } >"$scratch/ended"
  printf 'error: test failed, to rerun pass `-p evenkeel --test live`\n' >"$scratch/nameless"
  printf 'error: could not compile\n' >"$scratch/nothing"
  local kind
  for kind in virtual mixed many nameless nothing ended; do
    ! try 0 "$scratch/$kind" || { echo "$kind: asked again"; return 1; }
    [ ! -s "$scratch/asked" ] || { echo "$kind: run again"; return 1; }
  done
}

case "${1:-}" in
  --self-test) self_test ;;
  "" | -*) sed -n '2,5p' "$0" && exit 2 ;;
  *) repeat "$@" ;;
esac
