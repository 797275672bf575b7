#!/usr/bin/env bash
# The Python package.
#   python.sh tools   installs what it is built and tested with, in target/python; fails where no package index can be had
#   python.sh wheel   a wheel in out/, built as releases are
#   python.sh test    builds one with the profile of the tests, installs it beside what it is used with, and tests types, behaviour and notebooks
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/rust.sh

what=${1:-test}
tools=target/python
# The interpreter of the system, or another of 3.11 and newer.
python=${PYTHON:-python3}

if ! cmp -s python/requirements.txt "$tools/installed"; then
  rm -rf "$tools"
  "$python" -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check --requirement python/requirements.txt
  cp python/requirements.txt "$tools/installed"
fi

# $1: profile, $2: folder. The sources are built where the workspace is: nothing is built twice.
wheel() {
  rm -f "$2"/evenkeel-*.whl
  "$tools/bin/maturin" build --quiet --locked --profile "$1" --target-dir target --manifest-path python/Cargo.toml \
    --interpreter "$tools/bin/python" --out "$2"
}

case $what in
  tools) ;;
  wheel)
    mkdir -p out
    wheel release out
    ls out/evenkeel-*.whl
    ;;
  test)
    wheel dev "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$tools"/evenkeel-*.whl
    # Not the sources beside the tests: what was installed.
    cd python
    # The types that are promised, and whether they are those of what was compiled.
    "../$tools/bin/mypy" --no-error-summary --cache-dir "../$tools/mypy" --python-executable "../$tools/bin/python" evenkeel
    (cd .. && "$tools/bin/python" -P -m mypy.stubtest --concise evenkeel)
    "../$tools/bin/python" -P -m pytest -n auto -p no:cacheprovider --import-mode=importlib tests
    ;;
  *)
    echo "python.sh tools|wheel|test" >&2
    exit 2
    ;;
esac
