#!/usr/bin/env bash
# Runs what can happen to a cluster on real packets so many times, and tells of each run whether it held, failed, or was not judged because others had the processors. Needs root.
#
#   scripts/cluster-repeat.sh [TIMES] [COMMAND ...]   the test binary `alone` with its arguments; else cargo builds and runs it
set -uo pipefail
cd "$(dirname "$0")/.."
times=${1:-5}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- cargo test --locked --quiet -p evenkeel --test alone --
log=$(mktemp)
trap 'rm -f "$log"' EXIT
bad=0 unjudged=0
for run in $(seq "$times"); do
  if ! "$@" cluster:: --nocapture >"$log" 2>&1; then
    bad=$((bad + 1))
    tail -n 30 "$log"
    echo "run $run of $times: FAILED"
  elif grep -q 'not judged' "$log"; then
    unjudged=$((unjudged + 1))
    echo "run $run of $times: held, but for $(grep -c 'not judged' "$log") windows that were not judged: $(grep -m 1 -o 'not judged.*' "$log")"
  else
    echo "run $run of $times: held"
  fi
done
echo "cluster: $((times - bad - unjudged)) held, $bad failed, $unjudged not judged in part"
[ "$bad" -eq 0 ]
