#!/usr/bin/env bash
# Builds the other half of the comparison with ns-3 and runs both; $1: the command.
set -euo pipefail
cd "$(dirname "$0")/.."

# Only the libraries' own names: the file for pkg-config also names development links that the package does not bring.
modules=(core network internet point-to-point applications traffic-control)
# shellcheck disable=SC2046
g++ -O2 -o target/ns3-results bench/ns3/results.cc $(pkg-config --cflags ns3-core) "${modules[@]/#/-lns3-}"
scripts/ns3.py run "$1" target/ns3-results
