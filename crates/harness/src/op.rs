//! What can happen to a discipline, and the bytes that stand for it: a property test and a fuzzer
//! find the same.

use evenkeel_core::schedule::afan::Afd;
use evenkeel_core::schedule::buffer::Victim;
use evenkeel_core::schedule::lct::MultiBacklog;
use evenkeel_core::settings::Change;
use evenkeel_core::{Bytes, Class, Nanos, Weight};
use proptest::prelude::*;

/// Something that happens to a discipline.
#[derive(Clone, Debug)]
pub enum Op {
    /// A packet comes.
    Arrive {
        /// Its class, 0 to 9.
        class: u16,
        /// Bytes of the IP packet.
        length: u32,
        /// Which of 256 flows it is of: see [`flow`](crate::flow).
        flow: u8,
    },
    /// The link asks for a packet.
    Send,
    /// So much time passes.
    Wait(Nanos),
    /// Time passes until the discipline wants to be asked.
    WaitForWake,
    /// A setting changes, or is refused.
    Set(Change),
    /// All that waits is taken out.
    Drain,
}

/// How many bytes stand for an operation.
pub const OP_BYTES: usize = 6;

impl Op {
    /// The operation that these bytes stand for: mostly arrivals and departures, of sensible
    /// lengths, with knobs in and out of range, and classes in and out of existence (0 to 9).
    pub fn from_bytes(code: [u8; OP_BYTES]) -> Self {
        let [op, a, b, c, d, e] = code;
        let number = u32::from(u16::from_le_bytes([b, c]));
        match op {
            0..=99 => Self::Arrive {
                class: u16::from(a % 10),
                length: 20 + if d < 8 { number } else { number % 1481 },
                flow: e,
            },
            100..=199 => Self::Send,
            200..=229 => Self::Wait(Nanos(u64::from(number) << (a % 20))),
            230..=241 => Self::WaitForWake,
            242..=254 => Self::Set(change(a, b, u64::from(c), u32::from(d), e)),
            255 => Self::Drain,
        }
    }
}

/// A change of a setting, in and out of its range.
fn change(kind: u8, class: u8, value: u64, exponent: u32, small: u8) -> Change {
    let scaled = |largest: u32| value * 10u64.pow(exponent % (largest + 1));
    let which = Class(u16::from(class % 10));
    match kind % 14 {
        7 => Change::new("quantum", Bytes(scaled(3))),
        8 if class < 128 => {
            Change::new("buffer", if small < 220 { value % 16 } else { scaled(4) } as u32)
        }
        8 => Change::new("buffer_bytes", Bytes(if small < 220 { 100 * value } else { scaled(7) })),
        9 => {
            Change::new("victim", if value.is_multiple_of(2) { Victim::Head } else { Victim::Tail })
        }
        10 => Change::new("afl_linger", Nanos(scaled(9))),
        11 => Change::new("start_limit", (value > 0).then_some(Bytes(scaled(4)))),
        12 => {
            let afd = Afd {
                target: (!class.is_multiple_of(3)).then_some(scaled(3) as u32),
                sample: u32::from(small),
                ..Afd::default()
            };
            let afd = Afd { shadow: u32::from(class), interval: Nanos(1_000 * scaled(3)), ..afd };
            Change::new("afd", afd)
        }
        13 => Change::new("window", Nanos(1_000 * scaled(6))),
        0 => Change::of("weight", which, Weight(scaled(2) as u32)),
        1 | 2 => Change::of("x_delay", which, Nanos(scaled(9))),
        3 => {
            let limit = if small < 220 { value % 16 } else { scaled(3) } as u32;
            Change { class: (class < 200).then_some(which), ..Change::new("limit", limit) }
        }
        4 => Change::new("module2", value % 2 == 1),
        5 => match value % 6 {
            at @ 0..5 => Change::new("multi_backlog", MultiBacklog::ALL[at as usize]),
            _ => Change::new("rearm_empty", value % 12 == 5),
        },
        _ => Change::new("high_water", Bytes(100 * scaled(6))),
    }
}

/// Any operation, for a property test.
pub fn op() -> impl Strategy<Value = Op> {
    any::<[u8; OP_BYTES]>().prop_map(Op::from_bytes)
}

/// Up to `most` of them.
pub fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 0..most)
}
