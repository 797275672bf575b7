#!/usr/bin/env bash
# Executes the commands of README.md: every line of a ```sh block that follows a <!-- run --> comment, each in a bash of its own
# from the root of the project, with the debug build first on the path.
set -uo pipefail
cd "$(dirname "$0")/.."

export PATH="$PWD/target/debug:$PATH"
bad=0 count=0
while IFS= read -r command; do
  [ -n "$command" ] || continue
  case "$command" in \#*) continue ;; esac
  count=$((count + 1))
  if [ "$(id -u)" -ne 0 ] && [[ $command == *"evenkeel lab"* || $command == *"evenkeel demo"* || $command == *"evenkeel run"* ]]; then
    echo "skipped (needs root): $command"
    continue
  fi
  # As with the figures (scripts/figures.sh): a neighbour of this machine can hold a lab up; what is really wrong fails three times.
  tries=1
  [[ $command != *"evenkeel lab"* ]] || tries=3
  for ((try = 1; try <= tries; try++)); do
    output=$(timeout 120 bash -c "$command" 2>&1 </dev/null) && status=0 || status=$?
    [ "$status" -ne 0 ] || break
    echo "$([ "$try" -lt "$tries" ] && echo "fails, run again" || echo FAILED) ($status): $command"
    echo "$output" | tail -20
  done
  if [ "$status" -eq 0 ]; then echo "ok: $command"; else bad=$((bad + 1)); fi
done < <(awk '/<!-- run -->/ { armed = 1 } /^```/ { if (inside) { inside = 0; next } if (armed && /^```sh/) { inside = 1; armed = 0; next } } inside' README.md)
[ "$count" -gt 0 ] || { echo "README.md names no command to run"; exit 1; }
[ "$bad" -eq 0 ]
