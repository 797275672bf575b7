//! Operation sequences for the disciplines: bytes to operations, and the harness that checks every
//! contract after each. Both are those of the property tests, so a find of the fuzzer is a test
//! case as it stands.

use arbitrary::{Arbitrary, Unstructured};
use evenkeel_core::Bytes;
use evenkeel_core::aqm::elastic::ElasticAqm;
use evenkeel_core::schedule::buffer::{BYTES_RANGE, Buffer, KnownFlows, Victim};

/// The harness of the property tests.
pub use evenkeel_harness as harness;

/// Admission under operations, from the property tests.
#[path = "../../crates/core/tests/it/admit/mod.rs"]
#[allow(missing_docs, reason = "a test module of another crate")]
pub mod admit;

use harness::{OP_BYTES, Op};

/// A configuration, as the bytes it is chosen by, and what happens to the discipline made of it.
#[derive(Debug)]
pub struct Case {
    /// Bytes that a target makes a configuration of.
    pub config: [u8; 16],
    /// What happens.
    pub ops: Vec<Op>,
}

impl<'a> Arbitrary<'a> for Case {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let config = u.arbitrary()?;
        let ops = u.arbitrary_iter::<[u8; OP_BYTES]>()?.map(|code| code.map(Op::from_bytes));
        Ok(Self { config, ops: ops.collect::<Result<_, _>>()? })
    }
}

/// A number of `least` and more, up to `span` above it, that two bytes stand for.
#[must_use]
pub fn number(bytes: &[u8], least: u64, span: u64) -> u64 {
    least + bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) % (span + 1)
}

/// A buffer for a discipline with a queue per flow, by the last bytes of a case.
#[must_use]
pub fn buffer(case: &Case) -> Buffer {
    let [.., kind, high, low] = case.config;
    let size = number(&[high, low], 0, u64::from(u16::MAX));
    let limit = match kind % 2 {
        0 => Buffer::packets(1 + size as u32 % 60),
        _ => Buffer::bytes(Bytes(*BYTES_RANGE.start() + size)),
    };
    Buffer { victim: if kind & 2 == 0 { Victim::Head } else { Victim::Tail }, ..limit }
}

/// What keeps the queues of flows short, by a byte in the middle of a case.
#[must_use]
pub fn aqm(case: &Case) -> ElasticAqm {
    if case.config[5] % 2 == 0 { ElasticAqm::default() } else { ElasticAqm::cobalt() }
}

/// A number of flows by the first byte of a case, which is the seed, too, and a bound of the peak
/// at their start, or none.
#[must_use]
pub fn flows(case: &Case) -> KnownFlows {
    let [flows, .., limit, _, _, _] = case.config;
    KnownFlows {
        flows: 1 + u32::from(flows % 40),
        start_limit: (limit > 0).then_some(Bytes(64 + 32 * u64::from(limit))),
        seed: u64::from(flows),
    }
}
