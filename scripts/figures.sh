#!/usr/bin/env bash
# Runs every published figure with its mechanism on (all expectations must hold) and off (each must fail): in the
# simulator at full length, and as root also on real packets. Arguments: scenario files; all by default.
# WORLDS: "sim", "lab" or "sim lab". TIME_SCALE shortens steps and windows of the lab only. Counter-runs of what cannot be
# shortened as much are simulated only; of the others the lab has one for each mechanism by name, the simulator all.
# A lab run that fails four times while the host of this virtual machine takes CPU time away is told apart, as not judged.
# SIM_JOBS, LAB_JOBS: runs at the same time.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lab_time_scale.sh

export evenkeel=${EVENKEEL:-target/debug/evenkeel}
out=${OUT:-out/figures}
worlds=${WORLDS:-sim$([ "$(id -u)" -ne 0 ] || echo " lab")}
cores=$(nproc)
sim_jobs=${SIM_JOBS:-$cores}
# A lab sleeps three quarters of its time: four of them leave each other room on two cores.
lab_jobs=${LAB_JOBS:-$((cores < 2 ? 1 : 4))}
[ $# -gt 0 ] || set -- scenarios/demo/*.toml scenarios/lct/*.toml scenarios/wfq-altq/*.toml scenarios/wfq-other/*.toml scenarios/latency/*.toml scenarios/stsdr/*.toml scenarios/cross-protect/*.toml scenarios/cross-protect-lab/*.toml scenarios/fairdrop/[!l]*.toml scenarios/fairdrop/light-load.toml scenarios/fairdrop/lab-both.toml scenarios/fairdrop/lab-light-load.toml scenarios/fairdrop/lab-paper.toml scenarios/baselines/*.toml scenarios/subscribers/*.toml
[ -x "$evenkeel" ] || cargo build --locked --quiet -p evenkeel

file_name() { # scenario, mechanism
  local name
  name=$(basename "$(dirname "$1")")-$(basename "$1" .toml)${2:+-without-$2}
  echo "${name//[^A-Za-z0-9._-]/-}"
}

# One run: world, scenario, and the mechanism to do without, "*" for each of them in turn, or nothing.
run() {
  local world=$1 scenario=$2 without=$3 options=(--quiet --out "$4")
  case $without in
    "") ;;
    "*") options+=(--all-without) ;;
    *) options+=(--without "$without") ;;
  esac
  [ "$world" != lab ] || options+=(--time-scale "$(lab_time_scale "$scenario")")
  "$evenkeel" "$world" "$scenario" "${options[@]}" && ! not_judged "$world" "$4" && ! warned "$world" "$4"
}
# In virtual time nothing is too slow and nothing gets lost unseen: a warning there is a mistake.
warned() { [ "$1" = sim ] && grep -r --include=summary.json '"warnings": \[$' "$2"; }
# A lab that was too slow says so in its result: such a run is made again. Those of whole clusters look for that themselves.
not_judged() { [ "$1" = lab ] && [[ $2 != */stsdr-* ]] && grep -qs '"verdict": "not_judged"' "$2/summary.json"; }
export -f not_judged warned
export -f run lab_time_scale is_controlled

# The names of a scenario's counter-runs.
mechanisms() { awk -F'"' '/^\[\[without\]\]/ { inside = 1; next } inside && /^name = / { print $2; inside = 0 }' "$1"; }

# A line for each run: world, scenario, mechanism, folder.
plan() { # world, scenarios...
  local world=$1 scenario mechanism
  declare -A shown
  shift
  for scenario in "$@"; do
    # Cycles of a real core, and queueing disciplines of Linux: nothing to simulate.
    [[ $world != sim || $scenario != @(*fairdrop/lab-*|*baselines/*) ]] || continue
    if [ "$world" = lab ]; then
      # Every expectation is for the simulator.
      [[ $scenario != *demo/* && $scenario != *wfq-other/* && $scenario != *latency/* && $scenario != *lct/tcp.toml && $scenario != *subscribers/evening.toml ]] || continue
      # Clusters and polled cores are simulated only.
      ! grep -qE '^(\[\[case\]\]|\[core\])' "$scenario" || continue
      # The long ones of the cross-protect router are simulated only: their intervals do not scale. In cross-protect-lab/ are short ones
      # for both worlds.
      [[ $scenario != *cross-protect/* ]] || continue
    fi
    printf '%s\t%s\t\t%s\n' "$world" "$scenario" "$out/$world/$(file_name "$scenario" "")"
    if [ "$world" = sim ]; then
      [ -z "$(mechanisms "$scenario")" ] ||
        printf '%s\t%s\t*\t%s\n' "$world" "$scenario" "$out/$world/$(file_name "$scenario" all)"
    elif ! counter_runs_are_simulated "$scenario"; then
      while read -r mechanism; do
        [ -z "${shown[$mechanism]:-}" ] || continue
        shown[$mechanism]=yes
        printf '%s\t%s\t%s\t%s\n' "$world" "$scenario" "$mechanism" "$out/$world/$(file_name "$scenario" "$mechanism")"
      done < <(mechanisms "$scenario")
    fi
  done
}

# The time that this machine's CPUs wanted to work, and what of it their host gave to others, since it was started.
# And for how many microseconds somebody waited for one, and now.
cpu_waits() { echo "$(awk -F= '/^some/ { print $NF }' /proc/pressure/cpu 2>/dev/null || echo 0) $(date +%s%6N)"; }
export -f cpu_waits
cpu_time() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 + $9, $9 }' /proc/stat; }
export -f cpu_time

# Runs the lines of its input, so many at a time, and puts those that fail into a file, with a last field: how many percent of the CPU time the host took meanwhile.
batch() { # jobs, file for failures
  : >"$2"
  failures=$2 xargs -d '\n' -r -P "$1" -I{} bash -c '
    # Not IFS alone: an empty field between tabs would be lost.
    mapfile -t -d $'"'\t'"' field < <(printf "%s" "$1")
    before=($(cpu_time)) waits=($(cpu_waits)) taken=0 waited=0
    run "${field[@]:0:4}" && exit
    status=$? after=($(cpu_time))
    work=$((after[0] - before[0]))
    # Only of a run that came to its end, and took a second of work.
    [ $status -ne 1 ] || [ $work -lt 100 ] || taken=$(((after[1] - before[1]) * 100 / work))
    now=($(cpu_waits))
    [ $status -ne 1 ] || waited=$(((now[0] - waits[0]) * 100 / (now[1] - waits[1] + 1)))
    printf "%s\t%s\t%s\t%s\t%s\t%s\n" "${field[@]:0:4}" "$taken" "$waited" >>"$failures"' _ {}
}

# More than that, and packets that were sent late, or found a router late, say nothing about the router.
most_taken=5
# Of the time, percent in which somebody waited for a CPU. More says nothing about shares of a CPU; crates/netns/src/processors.rs has the same two.
most_waited=50

all=0 bad=0 unjudged=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for world in $worlds; do
  plan "$world" "$@" >"$scratch/plan"
  all=$((all + $(wc -l <"$scratch/plan")))
  if [ "$world" = sim ]; then
    batch "$sim_jobs" "$scratch/failed" <"$scratch/plan"
  else
    # Alone run a router that fills a core, and is measured by its cycles, and five that take turns of a millisecond. Two at a time those that depend less on when
    # they run: a cluster or sources that send many packets, and a control that takes a source that falls behind for congestion.
    alone='/fairdrop/|stsdr/live' pairs='stsdr/rates|lct/control|cross-protect-lab/small-packets'
    grep -vE "$alone|$pairs" "$scratch/plan" | batch "$lab_jobs" "$scratch/again"
    grep -E "$pairs" "$scratch/plan" | batch $((cores < 2 ? 1 : 2)) "$scratch/again-pairs"
    grep -E "$alone" "$scratch/plan" | batch 1 "$scratch/again-alone"
    cat "$scratch"/again-* >>"$scratch/again"
    # A neighbour, on the host or beside it, can slow a run down for seconds; what is really wrong fails three more times, alone.
    for _ in 1 2 3; do
      [ ! -s "$scratch/again" ] || echo "repeated alone: $(cut -f 2,3 "$scratch/again" | tr '\t\n' ' ;')"
      batch 1 "$scratch/failed" <"$scratch/again"
      cp "$scratch/failed" "$scratch/again"
    done
  fi
  while IFS= read -r line; do
    name=$(cut -f 1-3 <<<"$line" | tr '\t' ' ') taken=$(cut -f 5 <<<"$line") waited=$(cut -f 6 <<<"$line")
    if [ "$world" = lab ] && [ "$taken" -gt "$most_taken" ]; then
      unjudged=$((unjudged + 1))
      echo "not judged: $name: the host of this virtual machine took $taken % of the CPU time meanwhile (at most $most_taken % may be missing); run it again: scripts/figures.sh $(cut -f 2 <<<"$line")"
      continue
    fi
    if [ "$world" = lab ] && [ "$waited" -gt "$most_waited" ] && [[ $name == */fairdrop/* ]]; then
      unjudged=$((unjudged + 1))
      echo "not judged: $name: somebody waited for a CPU $waited % of the time (at most $most_waited % for shares of a CPU); run it again: scripts/figures.sh $(cut -f 2 <<<"$line")"
      continue
    fi
    if not_judged "$world" "$(cut -f 4 <<<"$line")"; then
      unjudged=$((unjudged + 1))
      echo "not judged: $name: four times this machine was too slow, see $(cut -f 4 <<<"$line"); run it again: scripts/figures.sh $(cut -f 2 <<<"$line")"
      continue
    fi
    bad=$((bad + 1))
    echo "FAILED: $name, see $(cut -f 4 <<<"$line")"
  done <"$scratch/failed"
done
echo "figures ($worlds): $((all - bad - unjudged)) passed, $bad failed, $unjudged not judged"
[ "$bad" -eq 0 ]
