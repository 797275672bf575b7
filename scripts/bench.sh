#!/usr/bin/env bash
# Prints ratios; passes or fails nothing. In memory, in instructions, in virtual time against ns-3, and on real packets against Linux.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked --quiet -p evenkeel -p evenkeel-bench
bench=target/release/evenkeel-bench

"$bench" memory
echo
"$bench" flows
echo
"$bench" fib
echo
"$bench" cluster
echo
"$bench" cores
echo
"$bench" instructions
echo
ns3=()
if pkg-config --exists ns3-core 2>/dev/null; then
  # Only the libraries' own names: the file for pkg-config also names development links that the package does not bring.
  modules=(core network internet point-to-point applications traffic-control)
  g++ -O2 -o target/ns3-dumbbell bench/ns3/dumbbell.cc $(pkg-config --cflags ns3-core) "${modules[@]/#/-lns3-}"
  ns3=(target/ns3-dumbbell)
fi
"$bench" sim "${ns3[@]}"
echo
if [ "$(id -u)" -eq 0 ]; then
  # Linux forwards in interrupts, which no program keeps waiting; generator and router get the nearest to it. Where sessions share the CPUs
  # (autogroup), the session needs it too.
  if [ -w /proc/self/autogroup ]; then
    trap 'echo 0 2>/dev/null >/proc/self/autogroup || true' EXIT
    echo -20 2>/dev/null >/proc/self/autogroup || true
  fi
  nice -n -20 "$bench" live target/release/evenkeel
else
  echo "live: skipped: network namespaces need root: run   sudo -E make bench"
fi
