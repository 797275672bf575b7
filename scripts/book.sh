#!/usr/bin/env bash
# Rebuilds every published figure: each scenario in the simulator at full length with several seeds, in the lab with scaled times if this is
# root, the maps and charts, and one index over all of them. SEEDS, TIME_SCALE (of the lab), JOBS and OUT can be set.
# What was made from the same binary, scenario and options is there before, and is not made again.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lab_time_scale.sh

evenkeel=${EVENKEEL:-target/release/evenkeel}
seeds=${SEEDS:-5}
jobs=${JOBS:-$(nproc)}
out=${OUT:-out/book}
bad=0

scenarios=(scenarios/lct/*.toml scenarios/wfq-altq/*.toml scenarios/wfq-other/*.toml scenarios/latency/*.toml scenarios/cross-protect/*.toml scenarios/cross-protect-lab/*.toml scenarios/fairdrop/[!l]*.toml scenarios/fairdrop/light-load.toml scenarios/subscribers/*.toml)
# What all runs are made from: the program, and what scenarios name.
program=$(sha256sum <"$evenkeel")
named=$(find scenarios -type f ! -name '*.toml' -print0 | sort -z | xargs -0 -r cat | sha256sum)
export program named
# A run, unless it is there: world, scenario, folder, options. Says how it went.
make_once() {
  local world=$1 scenario=$2 folder=$3 begin=$SECONDS made
  shift 3
  made=$(printf '%s\n' "$program" "$named" "$world" "$*" "$(cat "$scenario")" | sha256sum)
  if [ "$(cat "$folder/made-from" 2>/dev/null)" = "$made" ]; then
    printf '  %-40s there before\n' "$scenario"
    return
  fi
  if "$evenkeel" "$world" "$scenario" "$@" --out "$folder" --quiet; then
    printf '%s\n' "$made" >"$folder/made-from"
    printf '  %-40s done (%d s)\n' "$scenario" $((SECONDS - begin))
  else
    return 1
  fi
}
export -f make_once
not_as_expected() { printf '  %-40s NOT AS EXPECTED\n' "$1"; }
export -f not_as_expected
name() { echo "$(basename "$(dirname "$1")")-$(basename "$1" .toml)"; }
export -f name
export evenkeel seeds out

echo "In the simulator, $seeds seeds each, $jobs at a time:"
printf '%s\n' "${scenarios[@]}" | xargs -P "$jobs" -I{} bash -c '
  make_once sim "{}" "$out/data/$(name "{}")/sim" --seeds "$seeds" || { not_as_expected "{}"; exit 1; }' || bad=1

if [ "$(id -u)" -eq 0 ]; then
  echo "On real packets, times scaled by ${TIME_SCALE:-0.06}:"
  for scenario in "${scenarios[@]}"; do
    # Simulated only; their short forms for real packets are in cross-protect-lab/.
    [[ $scenario != *cross-protect/* && $scenario != *wfq-other/* && $scenario != *latency/* && $scenario != *lct/tcp.toml ]] || continue
    # A polled core is a model of one: simulated only.
    ! grep -q '^\[core\]' "$scenario" || continue
    # A neighbour on the host can slow the machine down for seconds; what is really wrong fails twice.
    run=(make_once lab "$scenario" "$out/data/$(name "$scenario")/lab" --time-scale "$(lab_time_scale "$scenario")")
    "${run[@]}" || "${run[@]}" || { not_as_expected "$scenario" && bad=1; }
  done
else
  echo "Not on real packets: that needs root (sudo make figures)."
fi

echo "Maps and charts:"
for sweep in scenarios/maps/*.toml scenarios/sweeps/*.toml; do
  "$evenkeel" sweep "$sweep" --jobs "$jobs" --out "$out/data/$(name "$sweep")" | sed -n '1s/^/  /p'
  [ "${PIPESTATUS[0]}" -eq 0 ] || bad=1
done
# docs/latency-under-load.md, likewise.
gigabit="$out/data/latency-gigabit"
scripts/latency.py gigabit "$gigabit.toml"
"$evenkeel" sweep "$gigabit.toml" --jobs "$jobs" --out "$gigabit" | sed -n '1s/^/  /p'
[ "${PIPESTATUS[0]}" -eq 0 ] || bad=1
scripts/latency.py collect "$out/data/sweeps-latency-under-load" "$gigabit" || bad=1
"$evenkeel" report "$out/data" --out "$out" || bad=1
# docs/reproduced.md and the table of the README: git diff shows what changed.
scripts/reproduced.py collect "$out/data" || bad=1
exit "$bad"
