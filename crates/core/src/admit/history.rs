//! What happened to flows lately, refused ones included: for `explain`, for acceptance delays, and
//! to know flows that come again.
//!
//! A bounded table of records, touched only by packets of flows that are not protected and by
//! removals. When it is full a hand passes over it and the first record that is not of a waiting
//! flow that came again, [`LATER`] than at first, goes; after [`TRIES`] places the next goes in any
//! case. So a flood of flows that send a few packets at once cannot push out those that wait.
//!
//! Constant time. 64 bytes per flow, and 208 of its record.

use alloc::vec::Vec;

use super::view::{DECISIONS, Decision, Event, Measure, Removal, Rule};
use crate::flow_table::{EntryId, FlowTable, PackedFlow};
use crate::settings::SettingError;
use crate::units::Nanos;

/// Places looked at for a record to forget.
const TRIES: u32 = 16;
/// Packets closer together than this are one visit.
const LATER: Nanos = Nanos::from_millis(5);
/// A flow that did not come for longer is not awaited.
const WAITS: Nanos = Nanos::from_secs(60);

const BLANK: Decision = Decision {
    event: Event::Diverted,
    first: Nanos::ZERO,
    last: Nanos::ZERO,
    count: 0,
    measure: Measure::Nothing,
    value: 0,
    threshold: 0,
};

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// The first packet that is not admitted yet came; `None`: it was let in.
    pub(super) waiting_since: Option<Nanos>,
    pub(super) first_seen: Nanos,
    last: Nanos,
    pub(super) refused: u64,
    /// Refused since it waits.
    attempts: u32,
    /// It was let into a closed link, and left because it turned elastic.
    pub(super) turned_elastic: bool,
    /// Ring of the last decisions; `next` is the oldest place.
    decisions: [Decision; DECISIONS],
    next: u8,
}

impl Record {
    const BLANK: Self = Self {
        waiting_since: None,
        first_seen: Nanos::ZERO,
        last: Nanos::ZERO,
        refused: 0,
        attempts: 0,
        turned_elastic: false,
        decisions: [BLANK; DECISIONS],
        next: 0,
    };

    /// It becomes that of another flow, of which nothing is known.
    fn begin(&mut self, now: Nanos) {
        (self.waiting_since, self.first_seen, self.last) = (None, now, now);
        (self.refused, self.attempts, self.turned_elastic) = (0, 0, false);
        // What the others hold does not matter: one without a count is none.
        self.decisions.iter_mut().for_each(|decision| decision.count = 0);
        self.next = 0;
    }

    /// The decisions, oldest first.
    pub(super) fn decisions(&self) -> impl Iterator<Item = &Decision> {
        let (newer, older) = self.decisions.split_at(usize::from(self.next));
        older.iter().chain(newer).filter(|decision| decision.count > 0)
    }
}

/// A decision without its instants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) event: Event,
    pub(super) measure: Measure,
    pub(super) value: u64,
    pub(super) threshold: u64,
}

/// The records.
#[derive(Clone, Debug)]
pub(super) struct History {
    table: FlowTable<()>,
    /// Beside the keys, so that one begins where it lies.
    records: Vec<Record>,
    /// Records of flows that turned elastic: while there is none, nobody is looked for.
    turned: u32,
    hand: u32,
    seed: u64,
    forgotten: u64,
}

impl History {
    pub(super) fn new(capacity: u32, seed: u64) -> Result<Self, SettingError> {
        let table = FlowTable::new(capacity, seed)?;
        let records = alloc::vec![Record::BLANK; capacity as usize];
        Ok(Self { table, records, turned: 0, hand: 0, seed, forgotten: 0 })
    }

    pub(super) fn find(&self, key: &PackedFlow) -> Option<&Record> {
        self.table.find(key.hash(self.seed), key).map(|id| &self.records[id.index()])
    }

    /// Whether the flow has waited for at least `least` and still comes.
    pub(super) fn has_waited(&self, now: Nanos, key: &PackedFlow, least: Nanos) -> bool {
        self.waiting_since(key).is_some_and(|since| now.saturating_sub(since) >= least)
    }

    /// Since when the flow waits to be let in.
    pub(super) fn waiting_since(&self, key: &PackedFlow) -> Option<Nanos> {
        self.find(key).and_then(|record| record.waiting_since)
    }

    /// Whether the flow was let into a closed link before, and turned elastic there.
    pub(super) fn turned_elastic(&self, key: &PackedFlow) -> bool {
        self.turned > 0 && self.find(key).is_some_and(|record| record.turned_elastic)
    }

    /// Writes a decision down. Gives how long the flow had waited if it is let in now and was not
    /// before.
    pub(super) fn note(&mut self, now: Nanos, key: &PackedFlow, decided: Decided) -> Option<Nanos> {
        let hash = key.hash(self.seed);
        let id = self.table.find(hash, key).or_else(|| self.make(now, hash, key));
        // There is always a place: the table has at least one.
        let record = &mut self.records[id?.index()];
        record.last = now;
        let newest = (usize::from(record.next) + DECISIONS - 1) % DECISIONS;
        let same = &mut record.decisions[newest];
        let repeated = same.count > 0 && same.event == decided.event;
        if repeated {
            (same.last, same.count) = (now, same.count.saturating_add(1));
            (same.measure, same.value, same.threshold) =
                (decided.measure, decided.value, decided.threshold);
        } else {
            let Decided { event, measure, value, threshold } = decided;
            record.decisions[usize::from(record.next)] =
                Decision { event, first: now, last: now, count: 1, measure, value, threshold };
            record.next = (record.next + 1) % DECISIONS as u8;
        }
        match decided.event {
            Event::Refused(_) => {
                record.refused += 1;
                record.attempts = record.attempts.saturating_add(1);
                record.waiting_since = record.waiting_since.or(Some(now));
                None
            }
            Event::Admitted(rule) if rule == Rule::Open && record.turned_elastic => {
                record.turned_elastic = false;
                self.turned -= 1;
                record.attempts = 0;
                let since = record.waiting_since.take();
                since.map(|since| now.saturating_sub(since))
            }
            Event::Admitted(_) | Event::Diverted => {
                record.attempts = 0;
                match record.waiting_since.take() {
                    Some(since) => Some(now.saturating_sub(since)),
                    // A flow that is let in packet by packet, unlisted, was accepted once.
                    None => (!repeated).then_some(Nanos::ZERO),
                }
            }
            Event::Removed(removal) => {
                if removal == Removal::Eccm && !record.turned_elastic {
                    record.turned_elastic = true;
                    self.turned += 1;
                }
                None
            }
        }
    }

    fn make(&mut self, now: Nanos, hash: u64, key: &PackedFlow) -> Option<EntryId> {
        let id = if self.table.is_full() {
            let id = self.next_to_go(now);
            self.table.replace(id, hash, *key, ());
            id
        } else {
            self.table.insert(hash, *key, ()).ok()?
        };
        self.records[id.index()].begin(now);
        Some(id)
    }

    /// The record that goes for another: see the [module](self).
    fn next_to_go(&mut self, now: Nanos) -> EntryId {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let id = EntryId::from_link(self.hand);
            self.hand = if self.hand + 1 < self.table.capacity() { self.hand + 1 } else { 0 };
            let record = &self.records[id.index()];
            let waits = record.attempts > 0 && now.saturating_sub(record.last) <= WAITS;
            let again = record
                .waiting_since
                .is_some_and(|since| record.last.saturating_sub(since) >= LATER);
            if waits && again && attempt < TRIES {
                continue;
            }
            self.forgotten += u64::from(waits);
            self.turned -= u32::from(record.turned_elastic);
            return id;
        }
    }

    /// Waiting flows that were forgotten.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub(super) fn memory(&self) -> usize {
        self.table.memory() + self.records.len() * size_of::<Record>()
    }
}

const _: () = assert!(FlowTable::<()>::BYTES_PER_ENTRY == 64 && size_of::<Record>() == 208);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::FlowKey;
    use crate::reason::Reason;

    /// What is looked for only while somebody turned elastic must be found then, whoever else is
    /// forgotten, and not before or after.
    #[test]
    fn who_turned_elastic_is_known_until_it_is_let_in_or_forgotten() {
        let flow = |port| {
            let text = alloc::format!("10.0.0.1:{port}->10.0.1.1:80/tcp");
            PackedFlow::new(&text.parse::<FlowKey>().unwrap())
        };
        let decided = |event| Decided { event, measure: Measure::Nothing, value: 0, threshold: 0 };
        let removed = decided(Event::Removed(Removal::Eccm));
        let open = decided(Event::Admitted(Rule::Open));
        let mut history = History::new(4, 1).unwrap();
        let mut turned = Vec::new();
        let mut state = 1u64;
        for step in 0..2_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let (port, now) = ((state >> 40) % 7, Nanos::from_millis(step));
            let event = match state >> 62 {
                0 | 1 => removed,
                2 => open,
                _ => decided(Event::Refused(Reason::FairRateLow)),
            };
            let _ = history.note(now, &flow(port), event);
            turned.retain(|other| *other != port || !matches!(event.event, Event::Admitted(_)));
            if matches!(event.event, Event::Removed(_)) && !turned.contains(&port) {
                turned.push(port);
            }
            // Whom there was no room for is forgotten.
            turned.retain(|port| history.find(&flow(*port)).is_some_and(|it| it.turned_elastic));
            for port in 0..7 {
                assert_eq!(history.turned_elastic(&flow(port)), turned.contains(&port), "{step}");
            }
            assert_eq!(history.turned as usize, turned.len(), "{step}");
        }
    }
}
