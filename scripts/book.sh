#!/usr/bin/env bash
# Rebuilds every published figure: each scenario in the simulator at full length with several seeds, in the lab with scaled times if this is
# root, the maps and charts, and one index over all of them. SEEDS, TIME_SCALE (of the lab), JOBS and OUT can be set.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lab_time_scale.sh

evenkeel=${EVENKEEL:-target/release/evenkeel}
seeds=${SEEDS:-5}
jobs=${JOBS:-$(nproc)}
out=${OUT:-out/book}
bad=0

scenarios=(scenarios/lct/*.toml scenarios/wfq-altq/*.toml scenarios/wfq-other/*.toml scenarios/latency/*.toml scenarios/cross-protect/*.toml scenarios/cross-protect-lab/*.toml scenarios/fairdrop/[!l]*.toml scenarios/fairdrop/light-load.toml scenarios/subscribers/*.toml)
name() { echo "$(basename "$(dirname "$1")")-$(basename "$1" .toml)"; }
export -f name
export evenkeel seeds out

echo "In the simulator, $seeds seeds each, $jobs at a time:"
printf '%s\n' "${scenarios[@]}" | xargs -P "$jobs" -I{} bash -c '
  begin=$SECONDS
  if "$evenkeel" sim "{}" --seeds "$seeds" --out "$out/data/$(name "{}")/sim" --quiet; then result=done; else result="NOT AS EXPECTED"; fi
  printf "  %-32s %s (%d s)\n" "{}" "$result" $((SECONDS - begin))
  [ "$result" = done ]' || bad=1

if [ "$(id -u)" -eq 0 ]; then
  echo "On real packets, times scaled by ${TIME_SCALE:-0.06}:"
  for scenario in "${scenarios[@]}"; do
    # Simulated only; their short forms for real packets are in cross-protect-lab/.
    [[ $scenario != *cross-protect/* && $scenario != *wfq-other/* && $scenario != *latency/* && $scenario != *lct/tcp.toml ]] || continue
    # A polled core is a model of one: simulated only.
    ! grep -q '^\[core\]' "$scenario" || continue
    # A neighbour on the host can slow the machine down for seconds; what is really wrong fails twice.
    folder=$out/data/$(name "$scenario")/lab
    time_scale=$(lab_time_scale "$scenario")
    if "$evenkeel" lab "$scenario" --time-scale "$time_scale" --out "$folder" --quiet ||
      "$evenkeel" lab "$scenario" --time-scale "$time_scale" --out "$folder" --quiet; then
      printf '  %-32s done\n' "$scenario"
    else
      printf '  %-32s NOT AS EXPECTED\n' "$scenario"
      bad=1
    fi
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
scripts/latency.py collect "$out/data/sweeps-latency-under-load" || bad=1
"$evenkeel" report "$out/data" --out "$out" || bad=1
# docs/reproduced.md and the table of the README: git diff shows what changed.
scripts/reproduced.py collect "$out/data" || bad=1
exit "$bad"
