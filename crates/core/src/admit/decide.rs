//! The decision about one packet: the order of operations of the [module above](super).

use super::flush::Flushing;
use super::history::Decided;
use super::newcomers::NEW;
use super::per_user::User;
use super::plans::OwnPlan;
use super::protected::{PROOF, SEARCH, States, Touched};
use super::{
    Admission, Backlogs, Cause, EmergencyRule, Event, Last, Measure, Pin, Removal, RouterLists,
    Rule, SecondLinkPolicy, Verdict,
};
use crate::flow_table::{EntryId, PackedFlow};
use crate::packet::{FlowKey, Packet};
use crate::reason::Reason;
use crate::units::{BitRate, Bytes, Nanos, Ppm};

/// A packet of a flow that is not protected.
struct Newcomer<'a> {
    key: &'a PackedFlow,
    hash: u64,
    length: Bytes,
    pin: Pin,
    /// The thresholds of emergency flows hold for it.
    emergency: Option<(BitRate, Ppm)>,
    /// Whose it is, and what that has, where subscribers share the link.
    subscriber: u32,
    own: Option<OwnPlan>,
}

/// Why a packet was refused, with what was held against what.
struct Refusal {
    reason: Reason,
    measure: Measure,
    value: u64,
    threshold: u64,
}

impl Refusal {
    /// The user has started as many flows as it may.
    fn by_quota(flows: u32, most: u32) -> Self {
        let (reason, measure) = (Reason::UserQuota, Measure::UserFlows);
        Self { reason, measure, value: flows.into(), threshold: most.into() }
    }
}

/// What becomes of a packet that does not pass.
enum Held {
    Refused(Refusal),
    /// It goes to the second link, which has been told.
    Diverted,
}

impl From<Refusal> for Held {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Admission {
    /// Decides about `packet`, whose outgoing link is this one.
    ///
    /// `pin` says which next hop the caller chose and the packet's TTL on arrival; kept if the flow
    /// is listed now (without path pinning any value does). `backlogs` is asked only when the most
    /// active flows are looked for.
    #[inline]
    pub fn decide<P: Packet>(
        &mut self,
        now: Nanos,
        packet: &P,
        pin: Pin,
        backlogs: Backlogs<'_>,
        lists: &mut RouterLists,
    ) -> Verdict {
        self.counts.packets += 1;
        // A flow is listed by one rule only. Flows that pass by another rule do so before they
        // could be listed here, and a flow of the second link leaves this list.
        let guessed = self.list.guessed(packet);
        if let Some(id) = guessed
            && self.protects(now, id, packet).is_some()
        {
            self.last = Last::Listed(id, packet.flow_hash());
            return self.pass(Rule::Protected);
        }
        self.look_up(now, packet, guessed, pin, backlogs, lists)
    }

    /// What the flow of a packet is, which is listed at `id`; `None`: it was silent for too long.
    #[inline(always)] // in a run of packets most of it is known
    pub(super) fn protects(
        &mut self,
        now: Nanos,
        id: EntryId,
        packet: &impl Packet,
    ) -> Option<States> {
        let Touched { proves, states } = self.list.touch(id, now, packet.wire_len())?;
        if proves && let Some(budget) = &mut self.budget {
            budget.proved();
        }
        Some(states)
    }

    /// The decision about a packet whose flow is not where it was listed last, or was `silent` for
    /// too long and still has that place.
    #[inline(never)] // so that packets of protected flows do not pay for it
    fn look_up<P: Packet>(
        &mut self,
        now: Nanos,
        packet: &P,
        silent: Option<EntryId>,
        pin: Pin,
        backlogs: Backlogs<'_>,
        lists: &mut RouterLists,
    ) -> Verdict {
        let (key, hash, length) = (packet.packed_flow(), packet.flow_hash(), packet.wire_len());
        let listed = silent.or_else(|| self.list.find(hash, &key));
        if let Some(id) = listed
            && silent.is_none()
            && self.protects(now, id, packet).is_some()
        {
            self.last = Last::Listed(id, hash);
            return self.pass(Rule::Protected);
        }
        self.last = Last::Nothing;
        if self.config.bypass_control && packet.is_own_control() && self.own.takes(now, length) {
            return self.pass(Rule::Control);
        }
        if self.config.global_list {
            self.is_unlisted(&key, hash);
        }
        let mut new = Newcomer {
            key: &key,
            hash,
            length,
            pin,
            emergency: None,
            subscriber: packet.subscriber(),
            own: None,
        };
        new.emergency = match &self.emergency {
            Some(emergency) if emergency.matches(&packet.flow()) => match emergency.rule {
                EmergencyRule::Bypass => return self.pass(Rule::Emergency),
                EmergencyRule::Thresholds => {
                    let (min_fair_rate, max_priority_load) = emergency.thresholds;
                    Some((BitRate(min_fair_rate.of(self.config.rate.0)), max_priority_load))
                }
                EmergencyRule::Off => None,
            },
            _ => None,
        };
        if let Some(second) = &mut self.second
            && second.carries(now, self.config.flow_timeout, key.hash(self.seed), &key, length)
        {
            self.counts.diverted_packets += 1;
            return Verdict::Divert;
        }
        if let Some(id) = listed
            && let Some((silent, allowed)) = self.list.expired(id, now)
        {
            self.remove(now, id, Removal::Silent, Measure::Time, (silent.0, allowed.0));
        }
        let min_fair = new.emergency.map_or(self.min_fair(), |(min_fair, _)| min_fair);
        new.own = self.own_plan(new.subscriber, min_fair, backlogs);
        self.newcomer(now, &new, backlogs, lists)
    }

    /// The packet's flow may be on the router's list, which is told how it is treated.
    #[inline(never)] // few links ask for it
    fn is_unlisted(&mut self, key: &PackedFlow, hash: u64) {
        self.last = Last::Unlisted(*key, hash);
    }

    fn pass(&mut self, rule: Rule) -> Verdict {
        self.passed[rule as usize] += 1;
        Verdict::Pass
    }

    /// What is decided is done.
    fn newcomer(
        &mut self,
        now: Nanos,
        new: &Newcomer<'_>,
        backlogs: Backlogs<'_>,
        lists: &RouterLists,
    ) -> Verdict {
        match self.rule(now, new, backlogs, lists) {
            Ok(rule) => self.admit(now, new, rule),
            Err(Held::Refused(refusal)) => self.refuse(now, new, &refusal),
            Err(Held::Diverted) => Verdict::Divert,
        }
    }

    /// The rule by which a packet passes.
    fn rule(
        &mut self,
        now: Nanos,
        new: &Newcomer<'_>,
        backlogs: Backlogs<'_>,
        lists: &RouterLists,
    ) -> Result<Rule, Held> {
        if self.flushing.is_some() {
            self.follow_clearing(now);
        }
        let blocked = |flushing: &Flushing| flushing.blocked(now, new.key.hash(self.seed), new.key);
        if let Some(until) = self.flushing.as_ref().and_then(blocked) {
            let (reason, measure) = (Reason::FlowBlocked, Measure::Time);
            return Err(Refusal { reason, measure, value: now.0, threshold: until.0 }.into());
        }
        if self.list.is_full() {
            self.sweep(now, SEARCH);
        }
        self.hear_peers(now);
        let (min_fair, max_load) =
            new.emergency.unwrap_or((self.min_fair(), self.config.max_priority_load));
        let closed = new.own.is_some_and(|own| own.is_closed()).then_some(Cause::FairRate);
        let mut cause = self.cause(min_fair, max_load).or(closed);
        let mut triggered = false;
        // What turned elastic where it was let in by way of exception waits until the link is open.
        let elastic =
            self.config.newcomer_share > Ppm::ZERO && self.history.turned_elastic(new.key);
        if cause.is_none() && self.is_window_full(elastic) {
            cause = Some(Cause::FairRate);
        }
        if let Some(closed) = cause
            && !elastic
            && new.own.is_none()
            && self.force_open(now, closed, backlogs)
        {
            triggered = true;
            cause = self.cause(min_fair, max_load);
        }
        let rule = match (cause, new.emergency, self.forced) {
            (Some(cause), ..) => {
                if let Some(rule) = self.congested(now, new, cause, !elastic, backlogs, lists)? {
                    return Ok(rule);
                }
                triggered = false;
                Rule::Newcomer
            }
            (None, Some(_), _) => return Ok(Rule::EmergencyThreshold),
            (None, None, Some(_)) => Rule::ForcedOpen,
            (None, None, None) => Rule::Open,
        };
        Ok(self.enter(now, new, rule, triggered)?)
    }

    /// Whether ECCM's window, if it is open, has room for no flow more: as many as bring FR down to
    /// [`LEAST_FAIR`](super::newcomers::LEAST_FAIR) of min_FR; none for those known to be elastic.
    fn is_window_full(&self, elastic: bool) -> bool {
        let open = self.forced.is_some_and(|forced| forced.by_eccm && !forced.closed);
        open && (elastic || self.is_crowded_at_worst())
    }

    /// The link is open: whose turn is it? Gives the rule by which the flow enters, and counts it
    /// as one that has. A flow for which the list has just been cleared need not ask.
    fn enter(
        &mut self,
        now: Nanos,
        new: &Newcomer<'_>,
        rule: Rule,
        triggered: bool,
    ) -> Result<Rule, Refusal> {
        let rule = if triggered { rule } else { self.awaited_first(now, new, rule)? };
        let user = self.within_quota(now, new, triggered)?;
        if !triggered {
            self.within_budget(now, new)?;
        }
        if let (Some(users), Some((user, most))) = (&mut self.per_user, user)
            && let Err(flows) = users.count(user, most)
        {
            return Err(Refusal::by_quota(flows, users.config.flows));
        }
        if let Some(budget) = &mut self.budget {
            budget.spend(new.length);
        }
        if rule == Rule::PriorityAccess
            && let Some(flushing) = &mut self.flushing
        {
            flushing.came_back(new.key.hash(self.seed), new.key);
            self.tell_awaited();
        }
        Ok(rule)
    }

    /// RPAEF, RAMAF: while flows are awaited that were cleared from the list, others enter by
    /// chance only.
    fn awaited_first(
        &mut self,
        now: Nanos,
        new: &Newcomer<'_>,
        rule: Rule,
    ) -> Result<Rule, Refusal> {
        let Some(flushing) = &self.flushing else { return Ok(rule) };
        let (awaited, chance) = (self.awaited(now), flushing.config.others_chance);
        if awaited == 0 {
            return Ok(rule);
        }
        if flushing.awaits(now, new.key.hash(self.seed), new.key) {
            return Ok(Rule::PriorityAccess);
        }
        if self.draw() < chance.0 {
            return Ok(rule);
        }
        let (reason, measure) = (Reason::PriorityAccess, Measure::Awaited);
        Err(Refusal { reason, measure, value: awaited, threshold: 0 })
    }

    /// When ECCM's window began, if it is open.
    fn window(&self) -> Option<Nanos> {
        self.eccm.as_ref().and_then(|eccm| eccm.window()).filter(|_| self.forced.is_some())
    }

    /// PUF: the user has flows left in this interval. Gives the user, if there are any, and how
    /// many it may have, if that is held against it.
    ///
    /// It holds in ECCM's window too, but for who would wait for longer than ECCM's bound: all who
    /// wait at once would fill the priority queue.
    fn within_quota(
        &mut self,
        now: Nanos,
        new: &Newcomer<'_>,
        triggered: bool,
    ) -> Result<Option<(User, Option<u32>)>, Refusal> {
        let late = self.window().is_some()
            && self.eccm.as_ref().is_some_and(|eccm| {
                self.history.has_waited(now, new.key, eccm.config.max_accept_delay)
            });
        let Some(users) = &mut self.per_user else { return Ok(None) };
        let FlowKey { source, destination, .. } = new.key.unpack();
        let user = users.user(source, destination, new.subscriber);
        let most = users.config.flows;
        if late || triggered {
            return Ok(Some((user, None)));
        }
        if user.flows < most {
            return Ok(Some((user, Some(most))));
        }
        Err(Refusal::by_quota(user.flows, most))
    }

    /// The budget of first packets has room.
    ///
    /// Flows that waited for ECCM's window enter it all the same, or its bound would not hold;
    /// one-packet flows do not wait. Half of the list is kept from flows that have not proved
    /// themselves, or a flood would fill it before it is told.
    fn within_budget(&mut self, now: Nanos, new: &Newcomer<'_>) -> Result<(), Refusal> {
        let waited = self.window().is_some_and(|start| {
            self.history.waiting_since(new.key).is_some_and(|since| since < start)
        });
        let Some(budget) = self.budget.as_mut().filter(|_| !waited) else { return Ok(()) };
        budget.follow_peers();
        let (unproved, half) = (self.list.unproved(), self.list.capacity() / 2);
        let crowded = unproved > half;
        let least = Nanos(self.config.load_interval.0.saturating_mul(PROOF));
        let again = (budget.flood() || crowded) && self.history.has_waited(now, new.key, least);
        let (used, so_far) = budget.state(now, again);
        let crowd = crowded && !again;
        if !crowd && used < so_far {
            return Ok(());
        }
        budget.refused();
        let (measure, value, threshold) = if crowd {
            (Measure::Flows, unproved.into(), half.into())
        } else {
            (Measure::BudgetBytes, used.0, so_far.0)
        };
        Err(Refusal { reason: Reason::FirstPacketBudget, measure, value, threshold })
    }

    /// A new flow meets a closed link: ECCM or the flushing family may open it. Whether they did.
    #[inline(never)] // so that who comes to an open link does not pay for it
    fn force_open(&mut self, now: Nanos, cause: Cause, backlogs: Backlogs<'_>) -> bool {
        if cause == Cause::FairRate && self.eccm.as_ref().is_some_and(|eccm| eccm.must_open(now)) {
            self.open_window(now);
            self.counts.openings += 1;
            if let Some(peers) = &self.peers {
                peers.tell_opened(now);
            }
            return true;
        }
        cause != Cause::PriorityLoad && self.clear_if_due(now, backlogs)
    }

    /// Whether ECCM's window did not help a flow in time because its user had no flow left (PUF).
    fn is_late(&self, now: Nanos, new: &Newcomer<'_>) -> bool {
        let by_user = self.per_user.is_some() && new.own.is_none();
        let Some(eccm) = self.eccm.as_ref().filter(|_| by_user) else { return false };
        self.newcomers.has_room()
            && self.history.has_waited(now, new.key, eccm.config.max_accept_delay)
    }

    /// Whether a guest more may enter.
    fn has_place(&self, new: &Newcomer<'_>) -> bool {
        let (share, rate) = (self.config.newcomer_share, self.config.rate);
        if let Some(OwnPlan { rate, fair, least, .. }) = new.own {
            return self.newcomers.has_place_of(new.subscriber, share, rate, least, fair);
        }
        self.newcomers.has_place(share, rate, self.min_fair(), self.estimates.fair)
    }

    /// Whether it waits for a place for the first time; or for so long, where no window of ECCM
    /// comes.
    fn is_guest(&self, now: Nanos, new: &Newcomer<'_>) -> bool {
        let waited = |time| self.history.has_waited(now, new.key, time);
        let late = || self.eccm.as_ref().is_some_and(|eccm| waited(eccm.config.max_accept_delay));
        !waited(NEW) || new.own.is_some() && late()
    }

    /// The link stays closed: the global list, the second link, or refusal. `None`: the flow enters
    /// as a guest, if it is its turn.
    #[inline(never)] // so that who comes to an open link does not pay for it
    fn congested(
        &mut self,
        now: Nanos,
        new: &Newcomer<'_>,
        cause: Cause,
        may_be_guest: bool,
        backlogs: Backlogs<'_>,
        lists: &RouterLists,
    ) -> Result<Option<Rule>, Held> {
        if self.config.global_list && lists.lists(now, new.hash, new.key) {
            return Ok(Some(Rule::GlobalList));
        }
        let (timeout, interval) = (self.config.flow_timeout, self.config.fair_rate_interval);
        if self.second.as_mut().is_some_and(|second| second.takes(now, timeout, interval)) {
            return self.divert(now, new, backlogs).map(Some);
        }
        if may_be_guest
            && cause == Cause::FairRate
            && self.cause(BitRate::ZERO, self.config.max_priority_load).is_none()
        {
            if self.is_late(now, new) {
                return Ok(Some(Rule::Newcomer));
            }
            if self.is_guest(now, new) && self.has_place(new) {
                return Ok(None);
            }
        }
        let (reason, view) =
            (cause.reason(), |measure, value, threshold| (measure, value, threshold));
        let (min_fair, max_load) =
            new.emergency.unwrap_or((self.min_fair(), self.config.max_priority_load));
        let (measure, value, threshold) = match cause {
            Cause::FairRate => match new.own {
                Some(own) => view(Measure::FairRate, own.fair.min(own.expected).0, own.least.0),
                None => view(Measure::FairRate, self.expected_fair().0, min_fair.0),
            },
            Cause::PriorityLoad => {
                view(Measure::PriorityLoad, self.estimates.load.0.into(), max_load.0.into())
            }
            Cause::ListFull => {
                view(Measure::Flows, self.list.len().into(), self.list.capacity().into())
            }
        };
        Err(Refusal { reason, measure, value, threshold }.into())
    }

    /// MFAN: a flow leaves for the second link, so that the new one enters, or is the new one.
    fn divert(
        &mut self,
        now: Nanos,
        new: &Newcomer<'_>,
        backlogs: Backlogs<'_>,
    ) -> Result<Rule, Held> {
        let leaves: Option<EntryId> = match self.config.second_link.policy {
            SecondLinkPolicy::Newest => None,
            SecondLinkPolicy::MostActive => self.list.busiest(backlogs),
            SecondLinkPolicy::Oldest => self.list.oldest(),
        };
        let (key, length) = match leaves {
            Some(id) => (*self.list.key(id), Bytes::ZERO),
            None => (*new.key, new.length),
        };
        if let Some(second) = &mut self.second {
            second.add(now, key.hash(self.seed), key, length);
        }
        let decided =
            Decided { event: Event::Diverted, measure: Measure::Nothing, value: 0, threshold: 0 };
        if let Some(id) = leaves {
            self.remove(now, id, Removal::Diverted, Measure::Nothing, (0, 0));
            let _ = self.history.note(now, &key, decided);
            return Ok(Rule::Open);
        }
        if let Some(waited) = self.history.note(now, &key, decided) {
            self.accept_delay.record(waited);
        }
        self.counts.diverted_packets += 1;
        Err(Held::Diverted)
    }

    /// The flow is let in and, chance and room allowing, listed.
    fn admit(&mut self, now: Nanos, new: &Newcomer<'_>, rule: Rule) -> Verdict {
        let measure = if rule == Rule::GlobalList { Measure::Nothing } else { Measure::FairRate };
        let of_link = (self.fair(), self.min_fair());
        let (value, threshold) = new.own.map_or(of_link, |own| (own.fair, own.least));
        let (value, threshold) = (value.0, threshold.0);
        let decided = Decided { event: Event::Admitted(rule), measure, value, threshold };
        let listed =
            self.config.listing_chance == Ppm::ONE || self.draw() < self.config.listing_chance.0;
        if let Some(waited) = self.history.note(now, new.key, decided) {
            self.accept_delay.record(waited);
        }
        if listed && let Some(id) = self.list.insert(new.hash, *new.key, now, new.pin, new.length) {
            self.counts.admissions += 1;
            self.last = Last::Listed(id, new.hash);
            self.newcomers.came(now, id, new.subscriber);
            if rule == Rule::Newcomer {
                self.list.mark_eccm(id);
                self.newcomers.invite(now, id, new.subscriber);
            }
            self.tell_peers(now);
            let window = self.forced.is_some_and(|forced| forced.by_eccm);
            if window
                && rule == Rule::ForcedOpen
                && let Some(eccm) = &mut self.eccm
            {
                self.list.mark_eccm(id);
                eccm.note(id);
                if !eccm.has_room()
                    && let Some(forced) = &mut self.forced
                {
                    (forced.until, forced.closed) = (now, true);
                    self.due = self.when_due();
                }
            }
        }
        self.pass(rule)
    }

    fn refuse(&mut self, now: Nanos, new: &Newcomer<'_>, refusal: &Refusal) -> Verdict {
        let Refusal { reason, measure, value, threshold } = *refusal;
        self.refused[reason.index()] += 1;
        let decided = Decided { event: Event::Refused(reason), measure, value, threshold };
        let _ = self.history.note(now, new.key, decided);
        Verdict::Refuse(reason)
    }
}
