#!/usr/bin/env bash
# Prints ratios; passes or fails nothing. In memory, in instructions, in virtual time against ns-3, and on real packets against Linux and DPDK.
#
#     [RECORD=1] scripts/bench.sh [PART ...]        parts: memory flows tree blocked fib rte_sched cluster cores instructions sim routes idle tcp live;
#                                    all of them by default
#
# All parts together take some ten minutes, `live` the half of it.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(memory flows tree blocked fib rte_sched cluster cores instructions sim routes idle tcp live)
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
for part in "${parts[@]}"; do
  if [[ " ${all[*]} " != *" $part "* ]]; then
    echo "no such part: $part; there are: ${all[*]}" >&2
    exit 2
  fi
done

cargo build --release --locked --quiet -p evenkeel -p evenkeel-bench
bench=target/release/evenkeel-bench

ns3=()
rte_sched() {
  if ! pkg-config --exists libdpdk 2>/dev/null; then
    echo "rte_sched: skipped: no libdpdk (scripts/setup.sh bench)"
    return
  fi
  # shellcheck disable=SC2046
  gcc -O2 -DALLOW_EXPERIMENTAL_API -o target/rte_sched bench/rte_sched/rte_sched.c $(pkg-config --cflags --libs libdpdk)
  "$bench" rte_sched target/rte_sched
}

sim() {
  if pkg-config --exists ns3-core 2>/dev/null; then
    # Only the libraries' own names: the file for pkg-config also names development links that the package does not bring.
    local modules=(core network internet point-to-point applications traffic-control)
    # shellcheck disable=SC2046
    g++ -O2 -o target/ns3-dumbbell bench/ns3/dumbbell.cc $(pkg-config --cflags ns3-core) "${modules[@]/#/-lns3-}"
    ns3=(target/ns3-dumbbell)
  fi
  "$bench" sim "${ns3[@]}"
}

# On real packets: `live` or `idle`.
on_packets() {
  if [ "$(id -u)" -ne 0 ]; then
    echo "$1: skipped: network namespaces need root: run   sudo -E make bench"
    return
  fi
  # Linux forwards in interrupts, which no program keeps waiting; generator and router get the nearest to it.
  session_first
  nice -n -20 "$bench" "$1" target/release/evenkeel
}

# Where sessions share the CPUs (autogroup), what one of them measures is what the others leave it.
session_first() {
  if [ -w /proc/self/autogroup ]; then
    trap 'echo 0 2>/dev/null >/proc/self/autogroup || true' EXIT
    echo -20 2>/dev/null >/proc/self/autogroup || true
  fi
}

routes() {
  session_first
  "$bench" routes
}

# TCP between hosts with default offloads.
tcp() {
  if [ "$(id -u)" -ne 0 ]; then
    echo "tcp: skipped: network namespaces need root: run   sudo -E make bench"
    return
  fi
  session_first
  python3 scripts/tcp.py target/release/evenkeel "$bench"
}

# What a part prints, kept: with RECORD=1 in docs/bench, where the tables of README.md and docs/bench.md are made from it.
kept=out/bench
[ "${RECORD:-}" != 1 ] || kept=docs/bench
mkdir -p "$kept"

for part in "${parts[@]}"; do
  begin=$SECONDS
  case $part in
    rte_sched | sim | routes | tcp) "$part" ;;
    idle | live) on_packets "$part" ;;
    *) "$bench" "$part" ;;
  esac | tee "$kept/$part.txt"
  printf '(%s: %d s)\n\n' "$part" $((SECONDS - begin))
done
[ "${RECORD:-}" != 1 ] || scripts/reproduced.py write
