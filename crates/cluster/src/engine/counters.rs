//! What happened to an engine, counted.

use crate::frame::FrameError;

/// Counts since the start. Every frame handed in is in exactly one of `states`, `clocks`, or a count of frames not used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Frames handed in.
    pub frames: u64,
    /// State frames used.
    pub states: u64,
    /// Clock frames used (parts of clock bodies included).
    pub clocks: u64,
    /// Not used: another ethertype, VLAN or destination.
    pub foreign: u64,
    /// Not used: this node's own, come back.
    pub echoes: u64,
    /// Not used: too short.
    pub short: u64,
    /// Not used: too long.
    pub long: u64,
    /// Not used: unknown version or kind.
    pub version: u64,
    /// Not used: dimensions, fragments or values that cannot be.
    pub malformed: u64,
    /// Not used: from nodes that are no members.
    pub strangers: u64,
    /// Not used: an id that two nodes use.
    pub duplicate_ids: u64,
    /// Not used: another configuration.
    pub other_configuration: u64,
    /// Not used: authentication missing or wrong.
    pub forged: u64,
    /// Not used: a counter used before.
    pub replayed: u64,
    /// Not used: of a cycle that is over, or of none that is near.
    pub late: u64,
    /// Not used: heard before in this cycle.
    pub repeated: u64,
    /// Not used: from a master that another one outranks.
    pub second_master: u64,
    /// Not used: a clock frame that was not wanted.
    pub unwanted_clocks: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Clock bodies sent.
    pub sent_clocks: u64,
    /// Cycles opened.
    pub cycles: u64,
    /// Cycles in which this node knew all that it needed, and obeyed.
    pub decided: u64,
    /// Cycles in which it sent nothing because it did not.
    pub abstained: u64,
    /// States of present members that did not come.
    pub missing: u64,
    /// Rounds decided.
    pub rounds: u64,
    /// Grants given to this node.
    pub grants: u64,
    /// Their bytes.
    pub granted_bytes: u64,
    /// Members whose last charges were taken back because they had not sent.
    pub refunds: u64,
    /// Times this node's clocks were found to differ.
    pub out_of_step: u64,
    /// Times it became master.
    pub takeovers: u64,
    /// Times another configuration came into force.
    pub changes: u64,
    /// Times the caller's clock went backwards; engine time stood still meanwhile.
    pub clock_backwards: u64,
}

impl Counters {
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
        };
        *count += 1;
    }

    /// Frames handed in that were not used.
    #[must_use]
    pub fn unused(&self) -> u64 {
        self.foreign
            + self.echoes
            + self.short
            + self.long
            + self.version
            + self.malformed
            + self.strangers
            + self.duplicate_ids
            + self.other_configuration
            + self.forged
            + self.replayed
            + self.late
            + self.repeated
            + self.second_master
            + self.unwanted_clocks
    }
}
