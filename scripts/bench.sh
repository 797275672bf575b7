#!/usr/bin/env bash
# Prints ratios; passes or fails nothing. In memory, in instructions, and on real packets against Linux.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked --quiet -p evenkeel -p evenkeel-bench
bench=target/release/evenkeel-bench

"$bench" memory
echo
"$bench" instructions
echo
if [ "$(id -u)" -eq 0 ]; then
  # Linux forwards in interrupts, which no program keeps waiting; generator and router get the nearest to it.
  nice -n -20 "$bench" live target/release/evenkeel
else
  echo "live: skipped: network namespaces need root: run   sudo -E make bench"
fi
