#!/usr/bin/env bash
# Runs every published figure on real packets, with its mechanism on (all expectations must hold) and off (each must
# fail). Arguments: scenario files; all by default. TIME_SCALE shortens steps and windows only.
set -uo pipefail
cd "$(dirname "$0")/.."

evenkeel=${EVENKEEL:-target/debug/evenkeel}
time_scale=${TIME_SCALE:-0.06}
out=${OUT:-out/figures}
[ $# -gt 0 ] || set -- scenarios/lct/*.toml scenarios/wfq-altq/*.toml
[ -x "$evenkeel" ] || cargo build --locked --quiet -p evenkeel

good=0 bad=0
for scenario in "$@"; do
  name=$(basename "$(dirname "$scenario")")-$(basename "$scenario" .toml)
  for runs in "" "--all-without"; do
    # A neighbour on the host can slow the machine down for seconds; an expectation that is really wrong fails twice.
    # shellcheck disable=SC2086
    if "$evenkeel" lab "$scenario" --time-scale "$time_scale" $runs --out "$out/$name${runs:+-without}" --quiet ||
      "$evenkeel" lab "$scenario" --time-scale "$time_scale" $runs --out "$out/$name${runs:+-without}" --quiet; then
      good=$((good + 1))
    else
      bad=$((bad + 1))
      echo "$scenario $runs: FAILED, see $out/$name${runs:+-without}"
    fi
  done
done
echo "figures: $good passed, $bad failed"
[ "$bad" -eq 0 ]
