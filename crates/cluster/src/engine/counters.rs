//! What happened to an engine, counted.

use evenkeel_core::counters;
use evenkeel_core::measure::Tally;

use crate::frame::FrameError;

counters! {
    /// Counts since the start. Every frame handed in is in exactly one of `states`, `clocks`,
    /// `proofs`, or a count of frames not used.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Counters {
        /// Frames handed in.
        count frames: u64, "frames";
        /// State frames used.
        count states: u64, "frames";
        /// Clock frames used (parts of clock bodies included).
        count clocks: u64, "frames";
        /// Challenges and answers used.
        count proofs: u64, "frames";
        /// Frames sent.
        count sent_frames: u64, "frames";
        /// Clock bodies sent.
        count sent_clocks: u64, "times";
        /// Cycles opened.
        count cycles: u64, "exchanges";
        /// Cycles in which this node knew all that it needed, and obeyed.
        count decided: u64, "cycles";
        /// Cycles in which it sent nothing because it did not.
        count abstained: u64, "cycles";
        /// States of present members that did not come.
        count missing: u64, "states";
        /// Rounds decided.
        count rounds: u64, "rounds";
        /// Grants given to this node.
        count grants: u64, "grants";
        /// Their bytes.
        count granted_bytes: u64, "bytes";
        /// Members whose last charges were taken back because they had not sent.
        count refunds: u64, "members";
        /// Times this node's clocks were found to differ.
        count out_of_step: u64, "times";
        /// Times it became master.
        count takeovers: u64, "times";
        /// Times another configuration came into force.
        count changes: u64, "times";
        /// Times the caller's clock went backwards; engine time stood still meanwhile.
        count clock_backwards: u64, "times";
    }
}

counters! {
    /// Frames that were not used, by what was wrong with them.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Unused {
        /// Another ethertype, VLAN or destination.
        count foreign: u64, "frames";
        /// This node's own, come back.
        count echoes: u64, "frames";
        /// Too short.
        count short: u64, "frames";
        /// Too long.
        count long: u64, "frames";
        /// Unknown version or kind.
        count version: u64, "frames";
        /// Dimensions, fragments or values that cannot be.
        count malformed: u64, "frames";
        /// From nodes that are no members.
        count strangers: u64, "frames";
        /// An id that two nodes use.
        count duplicate_ids: u64, "frames";
        /// Another configuration.
        count other_configuration: u64, "frames";
        /// Authentication missing or wrong.
        count forged: u64, "frames";
        /// A counter used before, or of an earlier life of a node that is heard.
        count replayed: u64, "frames";
        /// Of a life of its sender that has not answered a challenge.
        count unproved: u64, "frames";
        /// Of a cycle that is over, or of none that is near.
        count late: u64, "frames";
        /// Heard before in this cycle.
        count repeated: u64, "frames";
        /// From a master that another one outranks.
        count second_master: u64, "frames";
        /// A clock frame that was not wanted.
        count unwanted_clocks: u64, "frames";
    }
}

impl Unused {
    pub(crate) fn refuse(&mut self, error: FrameError) {
        let count = match error {
            FrameError::Foreign => &mut self.foreign,
            FrameError::Short { .. } => &mut self.short,
            FrameError::Long { .. } => &mut self.long,
            FrameError::Version(_) | FrameError::Kind(_) => &mut self.version,
            FrameError::Dimensions => &mut self.malformed,
            FrameError::Stranger(_) => &mut self.strangers,
            FrameError::DuplicateId(_) => &mut self.duplicate_ids,
            FrameError::Echo => &mut self.echoes,
            FrameError::OtherConfiguration { .. } => &mut self.other_configuration,
            FrameError::Forged => &mut self.forged,
            FrameError::Replayed => &mut self.replayed,
            FrameError::Unproved(_) => &mut self.unproved,
        };
        *count += 1;
    }

    /// All of them, by name; those never met are left out.
    pub fn met(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let each = Self::COUNTERS.iter().filter_map(|of| Some((of.name, self.value(of.name)?)));
        each.filter(|(_, frames)| *frames > 0)
    }
}
