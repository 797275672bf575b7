#!/usr/bin/env bash
# Everything CI runs, in the order in which a mistake is cheapest to find. Ends with a line that counts the steps.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/rust.sh

passed=0 failed=0 skipped=0
failures=() times=()
started=$SECONDS
# What a later change may add to is said in CONTRIBUTING.md.
budget=1800

# Each crate is built once: nothing would be read again of what incremental builds store, and writing it takes time and gigabytes. Nor is a crate built in
# pieces: there are enough crates for all cores, and pieces repeat what they share. A panic names its line without debug information, which takes an eighth of
# the time.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=1 CARGO_PROFILE_DEV_DEBUG=none

# CPU seconds of all that a shell has run so far: what a step costs, however busy the machine is with other things.
cpu() { awk '{ sub(/.*\) /, ""); print int(($14 + $15) / 100) }' "/proc/$1/stat"; }

step() { # name, command...
  local name=$1 begin=$SECONDS shell=$BASHPID work
  work=$(cpu "$shell")
  shift
  printf '\n=== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
    times+=("$((SECONDS - begin)) s"$'\t'"$(($(cpu "$shell") - work)) s"$'\t'"$name")
    printf -- '--- %s: ok (%d s)\n' "$name" $((SECONDS - begin))
  else
    failed=$((failed + 1))
    failures+=("$name")
    times+=("$((SECONDS - begin)) s"$'\t'"$(($(cpu "$shell") - work)) s"$'\t'"$name: FAILED")
    printf -- '--- %s: FAILED (%d s)\n' "$name" $((SECONDS - begin))
  fi
}

# A function of steps runs beside those that follow, until `join` tells what came of them: alone, each waits a third of its time.
beside() { # function
  mkdir -p target
  rm -f target/beside.counts
  # Who interrupts all this does not leave those in the background behind.
  trap 'trap - INT TERM; kill 0' INT TERM
  {
    passed=0 failed=0 skipped=0 failures=() times=()
    "$1"
    {
      printf 'passed=$((passed + %d)) failed=$((failed + %d)) skipped=$((skipped + %d))\n' "$passed" "$failed" "$skipped"
      [ ${#failures[@]} -eq 0 ] || printf 'failures+=(%q)\n' "${failures[@]}"
      printf 'times+=(%q)\n' "${times[@]}"
    } >target/beside.counts
  } &>target/beside.log &
  others=$!
}

join() {
  wait "$others"
  trap - INT TERM
  cat target/beside.log
  . target/beside.counts || { failed=$((failed + 1)) && failures+=("steps beside others did not end"); }
}

skip() { # name, why
  skipped=$((skipped + 1))
  times+=("-"$'\t'"-"$'\t'"$1: skipped")
  printf '\n=== %s\n--- skipped: %s\n' "$1" "$2"
}

# Parts of the tests (scripts/run-tests.sh), with more arguments of cargo.
part() { # name, arguments...
  # The command was built with the tests: the lab's need not build it again without the client of etcd.
  EVENKEEL_TESTS=$1 EVENKEEL=$PWD/target/debug/evenkeel cargo test --config "target.'cfg(unix)'.runner = 'scripts/run-tests.sh'" --workspace "${features[@]}" \
    --locked --quiet --no-fail-fast "${@:2}" 2>&1
}

# The tests' own counts, and why what was skipped was. With root everything is there but another kernel, and a test skipped for anything else is a failed one.
tests() {
  local log=target/tests.log virtual=target/tests-virtual.log status=0 beside
  mkdir -p target
  [ "$(id -u)" -ne 0 ] || export EVENKEEL_NO_SKIP=1
  # Who interrupts all this does not leave those in the background behind.
  trap 'trap - INT TERM; kill 0' INT TERM
  # Tests of documentation are real, so once they are enough.
  part virtual --tests >"$virtual" &
  beside=$!
  part real | tee "$log"
  status=${PIPESTATUS[0]}
  part after --tests | tee -a "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
  wait "$beside" || status=1
  # What was begun before has left the machine to those that follow.
  wait "$others"
  trap - INT TERM
  tee -a "$log" <"$virtual"
  part alone --tests | tee -a "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
  awk '/^test result:/ { run += $4; bad += $6; ignored += $8 }
    END { printf "tests: %d passed, %d failed, %d ignored", run, bad, ignored }' "$log"
  printf ', %d without their packets (reasons above)\n' "$(grep -c '^skipped: ' "$log")"
  [ "$status" -eq 0 ] || EVENKEEL=$PWD/target/debug/evenkeel scripts/repeat.sh "$log" "${features[@]}"
}

lint_docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet; }

# With the profile and the folder of the workspace its dependencies are there already. Checking links nothing: the library of the fuzzer, C++, is not
# needed and not built.
fuzz_targets() {
  CUSTOM_LIBFUZZER_PATH=/nowhere/libFuzzer.a cargo check --quiet --locked --manifest-path fuzz/Cargo.toml --target-dir target
}

# Only the command knows `evenkeel serve`, which is a process of its own and has tokio; below everything that a router's process runs, its ports, pipeline and
# control socket, there is nothing asynchronous with default features. Crates that are new are asked too. `deny.toml` allows tokio only below `evenkeel-serve` and
# the client of etcd; with that feature, the client has a thread of its own.
nothing_asynchronous() {
  local knowing=(evenkeel evenkeel-serve own-discipline) excluded=() crate below
  for crate in "${knowing[@]}"; do excluded+=(--exclude "$crate"); done
  # The crates asked about: a name that is misspelt or gone would ask about nothing.
  for crate in evenkeel-ports evenkeel-router evenkeel-control; do
    below=$(cargo tree --locked --quiet --edges normal,build -p "$crate") || return 1
    grep -q '^evenkeel-' <<<"$below" || return 1
    ! grep -E '(^|[^a-z-])(tokio|hyper|axum|futures-util) v' <<<"$below" || return 1
  done
  ! cargo tree --workspace "${excluded[@]}" --locked --quiet --edges normal,build --invert tokio 2>/dev/null | grep .
}

# What the Python package has with other features than the rest of the workspace, and everything above that, would be built a second time.
built_twice() {
  local graph=(cargo tree --locked --quiet --format '{p} [{f}]' --prefix none --no-dedupe)
  comm -13 <("${graph[@]}" --workspace "${features[@]}" --edges normal,dev,no-proc-macro | sort -u) \
    <("${graph[@]}" -p evenkeel-python --edges normal,no-proc-macro | sort -u)
}

dependencies() {
  nothing_asynchronous || { echo "there is something asynchronous below the crates of the router"; return 1; }
  # Without the client of etcd some of them have fewer features.
  [ ${#features[@]} -eq 0 ] || ! built_twice | grep . || { echo "built twice: python/Cargo.toml must have their features"; return 1; }
  # Unoptimised: it is built in a third of the time, and runs for seconds.
  command -v cargo-deny >/dev/null || cargo install --quiet --locked --debug cargo-deny || return 1
  cargo deny --log-level error --locked check licenses bans sources || return 1
  scripts/sbom.py --check || return 1
  # Brought by `make setup` where the network allows it; here it is only used if it is there.
  if compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*/" >/dev/null; then
    cargo deny --log-level error --locked --offline check advisories
  else
    echo "advisories: no local database, not checked (make setup brings it where the network allows)"
  fi
}

# One build has the client of etcd, so that nothing is built twice; the lab and the README build without it.
features=()
if command -v protoc >/dev/null; then
  features=(--features evenkeel/etcd)
else
  echo "without the client of etcd: no protoc (Debian packages protobuf-compiler, libprotobuf-dev; make setup)"
fi

# A cargo that works only with its own toolchains, off PATH: `make` must find it by CARGO_HOME, HOME and SUDO_USER, and a HOME that has none must not hide it.
rust_is_found() {
  local home way found
  home=$(mktemp -d)
  mkdir -p "$home/.cargo/bin" "$home/.rustup" "$home/bin"
  printf '#!/bin/sh\n[ "$RUSTUP_HOME" = "%s/.rustup" ] && echo "cargo of a test"\n' "$home" >"$home/.cargo/bin/cargo"
  printf '#!/bin/sh\n[ "$2" != someone ] || echo "someone:x:1:1::%s:/bin/sh"\n' "$home" >"$home/bin/getent"
  chmod +x "$home/.cargo/bin/cargo" "$home/bin/getent"
  # Nothing else of this machine, which may have a cargo in /usr/bin.
  ln -s $(command -v make bash env id cut) "$home/bin"
  for way in "HOME=$home" "HOME=/nonexistent CARGO_HOME=$home/.cargo" "SUDO_USER=someone" "HOME=/nonexistent SUDO_USER=someone RUSTUP_HOME=/nowhere"; do
    found=$(env -i PATH="$home/bin" $way make -s --eval 'found: ; @cargo --version' found)
    [ "$found" = "cargo of a test" ] || { echo "with $way: $found"; return 1; }
  done
  rm -rf "$home"
}

step "Rust off the path is found" rust_is_found
step "format" cargo fmt --all --check
step "width" scripts/width.sh --self-test
step "size of files and functions" scripts/size.py --self-test
step "what is run again" scripts/repeat.sh --self-test
step "clippy" cargo clippy --workspace --all-targets "${features[@]}" --locked --quiet -- -D warnings
step "documentation" lint_docs
step "tests are built" cargo test --workspace "${features[@]}" --locked --quiet --no-run
places() {
  # Tests on real packets mostly wait: it has what they leave of the CPUs.
  chrt --idle --pid 0 "$BASHPID"
  step "where to add things" scripts/trial.sh
}
beside places
step "tests" tests
join
step "purity of the core" scripts/purity.sh
step "no world in the router" scripts/one_world.sh --self-test
step "circles of files" scripts/circles.py
python_package() {
  local tools
  if tools=$(scripts/python.sh tools 2>&1); then
    step "Python package" scripts/python.sh test
  else
    skip "Python package" "needs python3-venv (make setup) and a package index that pip reaches: $(tail -n 1 <<<"$tools")"
  fi
}
beside python_package
if [ "$(id -u)" -eq 0 ] || /usr/bin/python3 -c 'import z3' 2>/dev/null; then
  step "bounds are proved" scripts/prove.sh bounds
else
  skip "bounds are proved" "needs the Debian package python3-z3: run   make setup   as root"
fi
step "fuzz targets compile" fuzz_targets
step "dependencies" dependencies
join
step "published figures in the simulator" env WORLDS=sim scripts/figures.sh
if [ "$(id -u)" -eq 0 ]; then
  step "published figures in the lab" env WORLDS=lab scripts/figures.sh
else
  skip "published figures in the lab" "needs root for network namespaces: run   sudo -E make test"
fi
step "page of what is reproduced" scripts/reproduced.py check out/figures/sim
step "page of latency under load" scripts/latency.py check
step "page of ns-3" scripts/ns3.py check
step "page of Linux's TCP" scripts/linux_tcp.py check
step "picture of a packet's instructions" scripts/stages.py check
step "gallery" scripts/gallery.py out/figures/sim
step "links of the guide" scripts/guide.py --self-test
step "commands of the README" scripts/readme.sh

printf '\n'
[ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
printf '%s\n' $'took\tCPU\tstep' "${times[@]}" | awk -F '\t' '{ printf "%8s %8s  %s\n", $1, $2, $3 }'
took=$((SECONDS - started))
printf 'in %d s, %d s of CPU time\n' "$took" "$(cpu $$)"
[ "$took" -le "$budget" ] ||
  printf 'That is more than the %d s it may take on two quiet cores: if nothing else ran here, move tests to make soak.\n' "$budget"
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
