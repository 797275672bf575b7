#!/usr/bin/env bash
# What is proved by machine: docs/proofs.md. Takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
# Debian's Python, for which python3-z3 is installed.
python=/usr/bin/python3
if ! "$python" -c 'import z3' 2>/dev/null; then
  echo "z3 is missing: install the Debian package python3-z3 (scripts/setup.sh prove)." >&2
  exit 3
fi
exec "$python" scripts/prove.py
