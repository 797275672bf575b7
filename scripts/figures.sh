#!/usr/bin/env bash
# Runs every published figure with its mechanism on (all expectations must hold) and off (each must fail): in the
# simulator at full length, and as root also on real packets. Arguments: scenario files; all by default.
# WORLDS: "sim", "lab" or "sim lab". TIME_SCALE shortens steps and windows of the lab only. What cannot be shortened
# as much has its counter-runs in the simulator alone.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lab_time_scale.sh

evenkeel=${EVENKEEL:-target/debug/evenkeel}
out=${OUT:-out/figures}
worlds=${WORLDS:-sim$([ "$(id -u)" -ne 0 ] || echo " lab")}
[ $# -gt 0 ] || set -- scenarios/lct/*.toml scenarios/wfq-altq/*.toml scenarios/stsdr/*.toml scenarios/cross-protect/*.toml scenarios/cross-protect-lab/*.toml scenarios/fairdrop/[!l]*.toml scenarios/fairdrop/light-load.toml
[ -x "$evenkeel" ] || cargo build --locked --quiet -p evenkeel

in_sim() { "$evenkeel" sim "$1" ${2:+"$2"} --out "$3" --quiet; }

in_lab() {
  local time_scale
  time_scale=$(lab_time_scale "$1")
  # A neighbour on the host can slow the machine down for seconds; an expectation that is really wrong fails twice.
  "$evenkeel" lab "$1" --time-scale "$time_scale" ${2:+"$2"} --out "$3" --quiet ||
    "$evenkeel" lab "$1" --time-scale "$time_scale" ${2:+"$2"} --out "$3" --quiet
}

good=0 bad=0
for scenario in "$@"; do
  name=$(basename "$(dirname "$scenario")")-$(basename "$scenario" .toml)
  for world in $worlds; do
    # Cluster scenarios are simulated only.
    [ "$world" != lab ] || ! grep -q '^\[\[case\]\]' "$scenario" || continue
    # The long ones of the cross-protect router are simulated only: connections that come and go are not made on real packets, and intervals do
    # not scale. In cross-protect-lab/ are short ones for both worlds.
    [[ $world != lab || $scenario != *cross-protect/* ]] || continue
    # A polled core is a model of one: simulated only.
    [ "$world" != lab ] || ! grep -q '^\[core\]' "$scenario" || continue
    for runs in "" "--all-without"; do
      [ "$world$runs" != "lab--all-without" ] || ! counter_runs_are_simulated "$scenario" || continue
      folder=$out/$world/$name${runs:+-without}
      if "in_$world" "$scenario" "$runs" "$folder"; then
        good=$((good + 1))
      else
        bad=$((bad + 1))
        echo "$scenario in $world $runs: FAILED, see $folder"
      fi
    done
  done
done
echo "figures ($worlds): $good passed, $bad failed"
[ "$bad" -eq 0 ]
