#!/usr/bin/env bash
# Where to add things (ARCHITECTURE.md), tried: in a copy of the tree, a live setting, a counter and a
# discipline are added as that page says, each without a second place being touched. They must
# compile, pass the tests that hold all of them to their promises, and reach help, reference, schema
# and columns.
# --each-line: every line of the trial setting is removed in turn; each time a build or a test must fail.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "trial: $*" >&2; exit 1; }
tree=$PWD/target/trial/tree
# Dependencies are there already; what is built of the copy stays apart from what is built of the tree.
export CARGO_TARGET_DIR=$PWD/target/trial/build CARGO_INCREMENTAL=0 UPDATE_DOCS=1
# A few short tests are run of it: building it takes the time.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=false
rm -rf "$tree" && mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | grep -zv '^out/' | xargs -0 cp --parents -t "$tree" 2>/dev/null || true
cd "$tree"
git init -q . && git add -A && git -c user.name=trial -c user.email=trial@localhost commit -q -m before
git tag before

changed() { git diff --name-only HEAD; git ls-files --others --exclude-standard; }
sources() { changed | grep -vE '^docs/' | wc -l; }
# What has been added since the last one touches so many sources.
touches() { # what, sources
  [ "$(sources)" = "$2" ] || fail "$1 touched $(sources) sources: $(changed | tr '\n' ' ')"
  git add -A && git -c user.name=trial -c user.email=trial@localhost commit -q -m "$1"
  echo "$1: $2 source$([ "$2" = 1 ] || echo s)"
}
quiet() { "$@" >"$tree/../log" 2>&1 || { tail -40 "$tree/../log" >&2; return 1; }; }

# A line of FILE after the one that PATTERN fits.
after() { # file, pattern, text
  local before
  before=$(wc -l <"$1")
  awk -v pattern="$2" -v text="$3" '{ print } index($0, pattern) && !done { print text; done = 1 }' "$1" >"$1.new"
  mv "$1.new" "$1"
  [ "$(wc -l <"$1")" -gt "$before" ] || fail "no line of $1 has: $2"
}

# A limit of FIFO in bytes.
fifo=crates/core/src/schedule/fifo.rs
after $fifo 'live limit: u32' '        /// Most bytes queued.
        live byte_limit: Option<Bytes> = None, in 1_500..=16_777_216, absent "packets alone are limited";'
after $fifo 'fn enqueue(' '        let bytes = self.queue.backlog().bytes + packet.ip_len();
        if self.config.byte_limit.is_some_and(|most| bytes > most) {
            dropped.dropped(packet, Reason::QueueFull);
            return Treated::Dropped(Reason::QueueFull);
        }'
cat >>$fifo <<'RUST'

#[cfg(test)]
mod trial {
    use super::*;
    use crate::packet::Descriptor;

    #[test]
    fn bytes_are_limited_live() {
        let mut fifo = Fifo::new(FifoConfig::default()).unwrap();
        fifo.set(Nanos::ZERO, &Change::new("byte_limit", Some(Bytes(2_000)))).unwrap();
        let packet = || Descriptor::new(Class(0), Bytes(1_500), Nanos::ZERO);
        let mut lost = 0;
        let mut arrive = |fifo: &mut Fifo<Descriptor>| {
            fifo.enqueue(Nanos::ZERO, packet(), &mut |_: Descriptor, _: Reason| lost += 1)
        };
        assert_eq!(arrive(&mut fifo), Treated::Queued);
        assert_eq!(arrive(&mut fifo), Treated::Dropped(Reason::QueueFull));
        assert_eq!((lost, fifo.backlog().packets), (1, 1), "what was dropped went to the sink");
        assert!(fifo.set(Nanos::ZERO, &Change::new("byte_limit", Some(Bytes(1_499)))).is_err());
    }
}
RUST
# The example shows every key, which a test asks for.
sed -i "0,/^\[link.discipline\]/s//# With kind = \"fifo\": byte_limit = \"64KiB\"\n&/" docs/examples/router.toml
touches "a live setting" 1

# Packets of a class of at most 100 bytes.
qostat=crates/core/src/measure/qostat.rs
after $qostat 'count sent_bytes: Bytes' '        /// Packets of at most 100 bytes whose last bit left the wire.
        count small_packets: u64, "packets", as "small";'
after $qostat 'meter.sent_packets += 1' '        meter.small_packets += u64::from(packet.ip_len() <= Bytes(100));'
touches "a counter of a class" 1

# FIFO as it was, under another name: a file, and a line in each of two.
git show before:$fifo | sed -e 's/Fifo/Trial/g; s/"fifo"/"trial"/; s/\\"fifo\\"/\\"trial\\"/' >crates/core/src/schedule/trial.rs
after crates/core/src/schedule/mod.rs 'pub mod shared_flows;' 'pub mod trial;'
after crates/core/src/schedule/any.rs 'Fifo: super::fifo::FifoConfig' '    /// A trial.
    Trial: super::trial::TrialConfig, shared as TrialPart: Shared;'
touches "a discipline" 3

quiet cargo test --offline --locked --quiet -p evenkeel-core --lib -- trial measure
quiet cargo test --offline --locked --quiet -p evenkeel-core --test it disciplines::every_setting
quiet cargo test --offline --locked --quiet -p evenkeel-config --test it reference
quiet cargo check --offline --locked --quiet -p evenkeel-report -p evenkeel-control
[ "$(sources)" = 0 ] || fail "what is generated is a source: $(changed | tr '\n' ' ')"
grep -q '`byte_limit`' docs/reference-router.md || fail "the reference does not have the setting"
grep -q '"byte_limit"' docs/schema/router.schema.json || fail "the schema does not have the setting"
sed -n '/What changes while a router runs/,$p' docs/reference-router.md | grep -q '`byte_limit`' ||
  fail "the list of what changes live does not have the setting"
grep -q 'kind = \\"trial\\"\|"trial"' docs/schema/router.schema.json || fail "the schema does not have the discipline"
grep -q 'kind = "trial"' docs/reference-router.md || fail "the reference does not have the discipline"
echo "they hold what all promise; reference, schema and the list of live settings follow"

if [ "${1:-}" = --each-line ]; then
  cp $fifo ../whole.rs
  for at in $(diff <(git show before:$fifo) ../whole.rs | awk '/^[0-9]+a[0-9]+/ { split($1, r, /[a,]/); from = r[2]; to = (r[3] ? r[3] : from); for (n = from; n <= to; n++) print n }'); do
    line=$(sed -n "${at}p" ../whole.rs)
    # Not the test itself, and no line that is only a bracket.
    grep -n '^mod trial' ../whole.rs | cut -d: -f1 | { read -r test; [ "$at" -lt $((test - 2)) ]; } || continue
    [[ $line =~ [a-z] ]] || continue
    sed "${at}d" ../whole.rs >$fifo
    if cargo test --offline --locked --quiet -p evenkeel-core --lib trial >/dev/null 2>&1; then
      fail "without this line nothing fails: $line"
    fi
    echo "  noticed when missing: ${line#"${line%%[![:space:]]*}"}"
  done
  cp ../whole.rs $fifo
fi
