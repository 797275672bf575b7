//! Operation sequences for the disciplines: bytes to operations, and the harness that checks every contract after
//! each. Both are those of the property tests, so a find of the fuzzer is a test case as it stands.

use arbitrary::{Arbitrary, Unstructured};

/// The harness of the property tests.
#[path = "../../crates/core/tests/common/mod.rs"]
#[allow(missing_docs, reason = "a test module of another crate")]
pub mod harness;

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
