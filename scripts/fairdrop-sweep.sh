#!/usr/bin/env bash
# Runs FairDrop in all cells of its sweep, one cost after the other, and puts what came out into docs/fairdrop.md. Fails if a cell broke its promise.
#
#   scripts/fairdrop-sweep.sh [COMMAND ...]   the test binary with its arguments; else cargo builds and runs it
#   EVENKEEL_EACH=7 scripts/fairdrop-sweep.sh one cell of so many; the page says so
set -uo pipefail
cd "$(dirname "$0")/.."
page=docs/fairdrop.md
costs=(260 780 2600 7800 26000 130000 416000 2600000)
[ $# -gt 0 ] || set -- cargo test --profile lab --locked --quiet -p evenkeel-sim --test it --
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bad=0 begin=$SECONDS
for cost in "${costs[@]}"; do
  EVENKEEL_COSTS=$cost "$@" the_whole_sweep --ignored --nocapture >"$out/$cost" 2>&1 || bad=1
  grep -E '^(BAD|worst)' "$out/$cost"
  grep -q '^worst share' "$out/$cost" || { tail -20 "$out/$cost"; exit 1; }
  echo "cost $cost: after $((SECONDS - begin)) s"
done
{
  echo
  [ "${EVENKEEL_EACH:-1}" -eq 1 ] || printf 'One cell in %s of them, taken evenly; the whole was not run since the last change:\n\n' "$EVENKEEL_EACH"
  grep -hE '^\| (dearest|[0-9])|^\|---' "$out/${costs[0]}"
  for cost in "${costs[@]:1}"; do grep -hE '^\| [0-9]' "$out/$cost"; done
  echo
  for what in share 'small flow' wait; do
    cat "$out"/* | grep "^worst $what " | sort -t: -k1,1 | awk -v n="$(wc -w <<<"$what")" '{ if ($(n + 2) > most) { most = $(n + 2); line = $0 } } END { print line }' |
      sed -E "s/^worst $what [0-9.]+ of [0-9]+ cells: (.*)/- The worst $what: \1./"
  done
  cat "$out"/* | grep '^BAD ' | sed -E 's/^BAD (.*)/- **Not kept:** \1./'
  echo
} >"$out/block"
awk -v block="$out/block" '
  /^<!-- the sweep:/ { print; while ((getline line <block) > 0) print line; skip = 1; next }
  /^<!-- end of the sweep/ { skip = 0 }
  !skip { print }' "$page" >"$out/page" && cat "$out/page" >"$page"
exit "$bad"
