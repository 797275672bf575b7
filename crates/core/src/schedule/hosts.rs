//! Who gets the same of a link: flows, hosts, or hosts and within each its flows; and which hosts
//! the flows of a link are of.
//!
//! Source: where the hosts may be on either side, a flow counts as one of the busier of its two, as
//! with `triple-isolate` of CAKE (Høiland-Jørgensen, Täht, Morton, "Piece of CAKE", LANMAN 2018,
//! section II.B).

mod over_workers;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Waiting;
use super::flow_list::FlowList;
use crate::flow_table::{EntryId, PackedFlow};
use crate::packet::Packet;
use crate::settings::SettingError;
use crate::share::SharedLink;
use crate::words;
use over_workers::{Over, Shared};

words! {
    /// Who gets the same.
    pub enum Fair {
        /// Each flow.
        #[default]
        Flow = "flow",
        /// Each host that sends, all its flows in one queue.
        Source = "source",
        /// Each host that receives, all its flows in one queue.
        Destination = "destination",
        /// Each host that sends, and within it each of its flows.
        SourceFlow = "source-flow",
        /// Each host that receives, and within it each of its flows.
        DestinationFlow = "destination-flow",
        /// Each host, and within it each of its flows: of the two hosts of a flow the one that has
        /// more flows waiting.
        HostFlow = "host-flow",
    }
}

impl Fair {
    /// Whether a host's flows have queues of their own.
    pub(super) const fn is_nested(self) -> bool {
        !self.sides().is_empty()
    }

    /// Of which hosts of a flow it matters how many flows they have: the first is the source.
    const fn sides(self) -> &'static [usize] {
        match self {
            Self::Flow | Self::Source | Self::Destination => &[],
            Self::SourceFlow => &[SOURCE],
            Self::DestinationFlow => &[DESTINATION],
            Self::HostFlow => &[SOURCE, DESTINATION],
        }
    }

    /// Whether each flow has a queue of its own.
    pub(super) const fn is_by_flow(self) -> bool {
        !matches!(self, Self::Source | Self::Destination)
    }

    /// Upper bound of how many hosts so many flows have.
    pub(super) const fn hosts(self, flows: u32) -> u32 {
        flows * self.sides().len() as u32
    }

    /// The hash and the key of the queue that a packet waits in.
    #[inline]
    pub(super) fn queue_of(self, packet: &impl Packet) -> (u64, PackedFlow) {
        let host = |source| {
            let key = packet.packed_flow().host(source);
            (key.mixed(), key)
        };
        match self {
            Self::Source => host(true),
            Self::Destination => host(false),
            _by_flow => (packet.flow_hash(), packet.packed_flow()),
        }
    }

    /// Why several workers cannot share a link so, where they cannot.
    pub(super) const fn for_one_worker(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Flow | Self::SourceFlow | Self::DestinationFlow => None,
            Self::Source => Some(("fair = \"source\"", ONE_QUEUE)),
            Self::Destination => Some(("fair = \"destination\"", ONE_QUEUE)),
            Self::HostFlow => Some((
                "fair = \"host-flow\"",
                "which of its two hosts a flow counts with depends on those at other workers",
            )),
        }
    }
}

/// Why hosts are one worker's whose flows have one queue together.
const ONE_QUEUE: &str = "the packets of a host have one queue, and meet several workers";

const SOURCE: usize = 0;
const DESTINATION: usize = 1;

/// What is known of a host on one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host<T> {
    /// Who needs it: its flows in use, and its owner.
    held: u32,
    /// Its flows of which something waits for a turn.
    waiting: u32,
    /// On which side it counts.
    side: u8,
    /// What a discipline keeps with it.
    pub(super) own: T,
}

/// The hosts of the flows in use.
#[derive(Clone, Debug)]
pub(super) struct Hosts<T> {
    sides: &'static [usize],
    hosts: FlowList<Host<T>>,
    blank: Host<T>,
    /// The source and the destination of each flow in use; of another, what they were last.
    of: Vec<[EntryId; 2]>,
    /// Sources, and destinations, of which something waits.
    busy: [u32; 2],
    shared: Shared,
}

impl<T: Copy> Hosts<T> {
    /// For so many flows; `None` where hosts do not matter.
    pub(super) fn new(
        fair: Fair,
        flows: u32,
        seed: u64,
        own: T,
    ) -> Result<Option<Self>, SettingError> {
        if !fair.is_nested() {
            return Ok(None);
        }
        Self::on(fair.sides(), flows, seed, own).map(Some)
    }

    /// For so many flows, each of which is of one group, whatever that is.
    pub(super) fn groups(flows: u32, seed: u64, own: T) -> Result<Self, SettingError> {
        Self::on(&[SOURCE], flows, seed, own)
    }

    fn on(sides: &'static [usize], flows: u32, seed: u64, own: T) -> Result<Self, SettingError> {
        let blank = Host { held: 0, waiting: 0, side: SOURCE as u8, own };
        Ok(Self {
            sides,
            hosts: FlowList::new(flows * sides.len() as u32, seed, blank)?,
            blank,
            of: alloc::vec![[EntryId::from_link(0); 2]; flows as usize],
            busy: [0; 2],
            shared: Shared::default(),
        })
    }

    #[inline]
    pub(super) fn get(&self, host: EntryId) -> &Host<T> {
        self.hosts.get(host)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, host: EntryId) -> &mut T {
        &mut self.hosts.get_mut(host).own
    }

    /// The host of a flow in use on this side.
    #[inline]
    pub(super) fn of(&self, flow: EntryId, side: usize) -> EntryId {
        self.of[flow.index()][side]
    }

    /// A flow comes into use.
    pub(super) fn begin(&mut self, flow: EntryId, packet: &impl Packet) {
        let key = packet.packed_flow();
        for side in self.sides {
            self.join_on(*side, flow, key.host(*side == SOURCE));
        }
    }

    /// A flow comes into use, and is of the group of this key.
    pub(super) fn join(&mut self, flow: EntryId, group: PackedFlow) -> EntryId {
        self.join_on(SOURCE, flow, group)
    }

    fn join_on(&mut self, side: usize, flow: EntryId, key: PackedFlow) -> EntryId {
        let last = self.of[flow.index()][side];
        let id = if self.hosts.is_of(last, &key) { last } else { self.place(key, side) };
        self.hold(id);
        self.of[flow.index()][side] = id;
        id
    }

    /// The place of a host. There is one for each host of each flow, but not for those that owners
    /// hold beyond: flows that find none share the first.
    fn place(&mut self, key: PackedFlow, side: usize) -> EntryId {
        let hash = key.mixed();
        if let Some(id) = self.hosts.find(hash, &key) {
            return id;
        }
        let new = Host { side: side as u8, ..self.blank };
        let Some(id) = self.hosts.insert(hash, key, new, |_, _| ()) else {
            return EntryId::from_link(0);
        };
        if let Some(over) = &mut self.shared.0 {
            over.name(id, &key);
        }
        id
    }

    /// Several workers share the link, all with this seed: the flows of a host are counted together
    /// from now on. A worker has at least so much of each of its hosts, in 2^-16. Nothing has come
    /// yet.
    pub(super) fn share(&mut self, link: &Arc<SharedLink>, seed: u64, least: u32) {
        let hosts = self.of.len() * self.sides.len();
        self.shared = Shared(Some(Box::new(Over::new(link, hosts, seed, least))));
    }

    /// One more flow of a host waits for a turn, or one less.
    #[inline]
    pub(super) fn tell(&mut self, host: EntryId, more: bool) {
        if let Some(over) = &mut self.shared.0 {
            over.change(host, more);
        }
    }

    /// The part of a host that this worker has now, in 2^-16; `None`: it has all there is.
    #[inline]
    pub(super) fn part(&mut self, host: EntryId) -> Option<u32> {
        self.shared.0.as_mut().map(|over| over.part(host))
    }

    /// What the worker is due for all its hosts, in 2^-16, where several share.
    #[inline]
    pub(super) fn weight(&self) -> Option<u64> {
        self.shared.0.as_ref().map(|over| over.weight())
    }

    /// As many queues as there would have to be at all workers for each to have what a queue of
    /// this host's flows has, where several share and the others are due `elsewhere`.
    pub(super) fn queues_of(&self, host: EntryId, elsewhere: u64) -> Option<u64> {
        let over = self.shared.0.as_ref()?;
        let hosts = (over.weight() + elsewhere + Waiting::ONE / 2) / Waiting::ONE;
        Some(hosts.max(1) * u64::from(over.known(host).max(1)))
    }

    /// A flow in use ceases to be: nothing of it waits.
    pub(super) fn end(&mut self, flow: EntryId) {
        for side in self.sides {
            self.release(self.of[flow.index()][*side]);
        }
    }

    /// Somebody needs a host.
    pub(super) fn hold(&mut self, host: EntryId) {
        if !self.hosts.in_use(host) {
            self.hosts.begin(host);
            let known = self.hosts.get_mut(host);
            *known = Host { side: known.side, ..self.blank };
        }
        self.hosts.get_mut(host).held += 1;
    }

    /// Somebody who held a host does not need it any more.
    pub(super) fn release(&mut self, host: EntryId) {
        let known = self.hosts.get_mut(host);
        known.held -= 1;
        if known.held == 0 {
            self.hosts.end(host);
        }
    }

    /// A flow gets its first packet that waits for a turn, or has lost its last.
    #[inline]
    pub(super) fn waits(&mut self, flow: EntryId, waits: bool) {
        for side in self.sides {
            let id = self.of[flow.index()][*side];
            self.tell(id, waits);
            let Host { waiting, side, .. } = self.hosts.get_mut(id);
            let busy = &mut self.busy[usize::from(*side)];
            if waits {
                *busy += u32::from(*waiting == 0);
                *waiting += 1;
            } else {
                *waiting -= 1;
                *busy -= u32::from(*waiting == 0);
            }
        }
    }

    /// The side on which a flow has the busier host: the first, if both are equally busy. It is the
    /// same for all flows between the same two.
    #[inline]
    pub(super) fn busier(&self, flow: EntryId) -> usize {
        let waiting = |side: usize| self.hosts.get(self.of(flow, side)).waiting;
        match *self.sides {
            [first, other] if waiting(other) > waiting(first) => other,
            [first, ..] => first,
            [] => SOURCE,
        }
    }

    /// With how many flows, itself among them, a flow shares what the busier of its hosts gets: at
    /// least one.
    #[inline]
    pub(super) fn siblings(&self, flow: EntryId) -> u32 {
        let waiting = |side: &usize| self.hosts.get(self.of(flow, *side)).waiting;
        self.sides.iter().map(waiting).max().unwrap_or(1).max(1)
    }

    /// The same at all workers, now. A flow of which nothing waits does not count.
    #[inline]
    pub(super) fn siblings_now(&mut self, flow: EntryId) -> u32 {
        match &mut self.shared.0 {
            None => self.siblings(flow),
            Some(over) => over.look(self.of[flow.index()][self.sides[0]]).max(1),
        }
    }

    /// What is kept with the group of a flow.
    #[inline]
    pub(super) fn own_of(&self, flow: EntryId) -> T {
        self.hosts.get(self.of(flow, SOURCE)).own
    }

    /// Upper bound of the hosts that share the link, exact where all are on one side.
    #[inline]
    fn busy(&self) -> u32 {
        self.sides.iter().map(|side| self.busy[*side]).min().unwrap_or(0)
    }

    /// As many queues as there would have to be for each to have what a queue of this flow has.
    /// `elsewhere` is what other workers are due.
    pub(super) fn queues(&self, flow: EntryId, elsewhere: u64) -> u64 {
        let of_all = self.queues_of(self.of(flow, self.sides[0]), elsewhere);
        of_all.unwrap_or_else(|| u64::from(self.busy()) * u64::from(self.siblings(flow)))
    }

    /// Nothing waits any more.
    pub(super) fn clear(&mut self) {
        self.busy = [0; 2];
        if let Some(over) = &mut self.shared.0 {
            over.clear();
        }
    }
}
