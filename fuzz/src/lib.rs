//! Operation sequences for the disciplines: bytes to operations, and the harness that checks every contract after
//! each. Both are those of the property tests, so a find of the fuzzer is a test case as it stands.

use arbitrary::{Arbitrary, Unstructured};
use evenkeel_core::Bytes;
use evenkeel_core::schedule::buffer::{BufferLimit, Victim};

/// The harness of the property tests.
#[path = "../../crates/core/tests/common/mod.rs"]
#[allow(missing_docs, reason = "a test module of another crate")]
pub mod harness;

/// Admission under operations, from the property tests.
#[path = "../../crates/core/tests/admit/mod.rs"]
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
pub fn buffer(case: &Case) -> (BufferLimit, Victim) {
    let [.., kind, high, low] = case.config;
    let size = number(&[high, low], 0, u64::from(u16::MAX));
    let buffer = match kind % 2 {
        0 => BufferLimit::Packets(1 + size as u32 % 60),
        _ => BufferLimit::Bytes(Bytes(1_500 + size)),
    };
    (buffer, if kind & 2 == 0 { Victim::Head } else { Victim::Tail })
}

/// A bound of the peak at the start of flows, or none.
#[must_use]
pub fn start_limit(case: &Case) -> Option<Bytes> {
    let [.., limit, _, _, _] = case.config;
    (limit > 0).then_some(Bytes(64 + 32 * u64::from(limit)))
}
