#!/usr/bin/env bash
# A minute of each fuzzer whose crates have changed since a commit, for a job of CI beside `make test`: what it finds may be years old, and
# is no fault of the change. Needs what `make harden` needs.
#
#   scripts/fuzz-changed.sh [COMMIT]        HEAD~1 if nothing is said; SECONDS_EACH=60
set -euo pipefail
cd "$(dirname "$0")/.."
since=${1:-HEAD~1}
changed=$(git diff --name-only "$since" -- crates fuzz) || { echo "fuzz-changed: there is no commit $since" >&2; exit 2; }
# `crates/net/src/frame.rs` is what `evenkeel_net` names in a target.
mapfile -t crates < <(sed -nE 's#^crates/([a-z]+)/src/.*#evenkeel_\1#p' <<<"$changed" | sort -u)
fuzzers=()
for target in fuzz/fuzz_targets/*.rs; do
  if grep -qxF "$target" <<<"$changed" || grep -qwF "$(printf '%s\n' "${crates[@]:-none}")" "$target"; then
    fuzzers+=("$(basename "$target" .rs)")
  fi
done
if [ ${#fuzzers[@]} -eq 0 ]; then
  echo "fuzz-changed: no fuzzer tries what has changed since $since"
  exit
fi
echo "fuzz-changed: ${fuzzers[*]}"
[ -z "${DRY_RUN:-}" ] || exit 0
exec scripts/harden.sh "${SECONDS_EACH:-60}" "${fuzzers[@]}"
