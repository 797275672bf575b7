//! Random operations on an admission control with everything on, and what holds after each.

use evenkeel_core::Prefix;
use evenkeel_core::admit::{
    Admission, AdmissionConfig, BudgetConfig, EccmConfig, EmergencyConfig, EmergencyRule, Flush,
    FlushConfig, Observed, PerUserConfig, Pin, PinningConfig, RouterLists, RouterListsConfig,
    SecondLinkConfig, SecondLinkPolicy, Verdict,
};
use evenkeel_core::schedule::Treated;
use evenkeel_core::{BitRate, Bytes, FlowKey, Nanos, Ppm, Reason};

use super::world::accounts;
use super::{C, XpPacket, flow, hash};

/// How many bytes stand for an operation.
pub const OP_BYTES: usize = 6;

/// A configuration that these bytes stand for: small lists, and any set of mechanisms.
pub fn config(code: [u8; 8]) -> AdmissionConfig {
    let [on, more, a, b, c, d, e, f] = code;
    let has = |bit: u8| on & 1 << bit != 0;
    let prefix = |last| Prefix::host([10, 0, 0, last].into());
    let rule = if has(7) { EmergencyRule::Thresholds } else { EmergencyRule::Bypass };
    let kinds = [
        Flush::All,
        Flush::Efm,
        Flush::Efmp,
        Flush::Raef,
        Flush::Rbaef,
        Flush::Rpaef,
        Flush::Ramaf,
        Flush::Rmaef,
    ];
    let policies =
        [SecondLinkPolicy::Newest, SecondLinkPolicy::MostActive, SecondLinkPolicy::Oldest];
    let second = |policy| SecondLinkConfig {
        policy,
        flows: 1 + u32::from(f % 16),
        rate: has(5).then_some(BitRate::from_mbps(1)),
        ..SecondLinkConfig::default()
    };
    AdmissionConfig {
        flows: 1 + u32::from(a % 32),
        history: 1 + u32::from(b % 32),
        flow_timeout: Nanos::from_millis(200 + 100 * u64::from(c % 16)),
        probation: if more & 1 != 0 { Nanos::from_millis(100) } else { Nanos::ZERO },
        listing_chance: if more & 2 != 0 { Ppm::percent(50) } else { Ppm::ONE },
        budget: BudgetConfig {
            on: more & 4 != 0,
            burst: if more & 8 != 0 { Nanos::from_millis(5) } else { Nanos::ZERO },
            ..BudgetConfig::default()
        },
        emergency: EmergencyConfig {
            rule,
            sources: if has(0) { vec![prefix(1)] } else { vec![] },
            min_fair_rate: Ppm::percent(1),
            max_priority_load: Ppm::percent(90),
            ..EmergencyConfig::default()
        },
        eccm: EccmConfig {
            on: has(1),
            max_accept_delay: Nanos::from_millis(600),
            table: 1 + u32::from(d % 4),
        },
        global_list: has(2),
        per_user: PerUserConfig {
            on: has(3),
            flows: 2,
            users: 1 + u32::from(d % 8),
            ..PerUserConfig::default()
        },
        flushing: FlushConfig {
            interval: Nanos::from_millis(300),
            active_time: Nanos::from_millis(100),
            most_active: 2,
            table: 1 + u32::from(e % 8),
            ..FlushConfig::new(if has(4) {
                kinds[usize::from(e) % kinds.len()]
            } else {
                Flush::Off
            })
        },
        second_link: second(policies[usize::from(f) % policies.len()]),
        pinning: PinningConfig { on: has(6), ..PinningConfig::default() },
        ..AdmissionConfig::new(C)
    }
}

/// An admission control under operations.
pub struct Subject {
    pub admission: Admission,
    lists: RouterLists,
    now: Nanos,
    observed: Observed,
    memory: usize,
}

impl Subject {
    pub fn new(config: AdmissionConfig) -> Self {
        let admission =
            Admission::new(config, 11, Nanos::ZERO).expect("the configuration is in range");
        let lists = RouterListsConfig { flows: 8, ..RouterListsConfig::default() };
        Self {
            memory: admission.view().memory,
            admission,
            lists: RouterLists::new(lists, 12).expect("8 flows are in range"),
            now: Nanos::ZERO,
            observed: Observed {
                fair_bytes: Some(Bytes(0)),
                priority_bytes: Some(Bytes(0)),
                ..Observed::default()
            },
        }
    }

    /// Does what these bytes stand for and checks what holds then.
    pub fn step(&mut self, code: [u8; OP_BYTES]) {
        let [op, a, b, c, d, e] = code;
        match op {
            0..=159 => self.packet(a % 64, c, d),
            160..=229 => {
                self.wait(Nanos::from_millis(u64::from(a)), u64::from(b) << 6, u64::from(c) << 6);
            }
            230..=249 => {
                let lists = self.admission.config();
                let (flows, history) = (lists.flows, lists.history);
                let mut wanted = config([a, b, 0, 0, c, d, e, op]);
                (wanted.flows, wanted.history) = (flows, history);
                self.admission.set(self.now, wanted).expect("the configuration is in range");
                self.memory = self.admission.view().memory;
            }
            250..=252 => self.admission.link_down(self.now),
            _ => self.admission.link_up(self.now, &self.observed),
        }
        accounts(&self.admission);
        let view = self.admission.view();
        assert_eq!(view.memory, self.memory, "memory is constant");
        // Another configuration, and a packet that fills ECCM's table and so ends its window, make
        // things due that the next wait does.
        let waited = (160..=229).contains(&op);
        assert!(!waited || self.admission.next_tick() > self.now, "what is due was done");
    }

    fn packet(&mut self, n: u8, length: u8, treated: u8) {
        let key = if n >= 60 {
            FlowKey { protocol: 1, ..flow(1, 1) }
        } else {
            flow(u16::from(n % 8), u16::from(n))
        };
        let packet = XpPacket {
            flow: key,
            len: 40 + u64::from(length) * 5,
            overhead: 38,
            arrival: self.now,
            source: 0,
            own: n >= 60,
        };
        let before = self.admission.view();
        let known = self.admission.explain(self.now, &key, hash(&key));
        let backlogs = |flow: &FlowKey| Bytes(u64::from(flow.source_port % 7));
        let pin = Pin { next_hop: n, ttl: 60 };
        let verdict = self.admission.decide(self.now, &packet, pin, &backlogs, &mut self.lists);
        let after = self.admission.view();
        if known.protected.is_some() && !known.diverted {
            assert_eq!(verdict, Verdict::Pass, "a protected flow is never refused");
        }
        match verdict {
            Verdict::Refuse(reason) => {
                assert_eq!(after.refused[reason.index()], before.refused[reason.index()] + 1);
                let said = self.admission.explain(self.now, &key, hash(&key));
                assert_eq!(
                    said.decisions.last().map(|d| d.event),
                    Some(evenkeel_core::admit::Event::Refused(reason))
                );
            }
            Verdict::Divert => assert_eq!(after.diverted_packets, before.diverted_packets + 1),
            Verdict::Pass => {
                let treated = match treated % 8 {
                    0..=3 => Treated::Priority,
                    4..=6 => Treated::Queued,
                    _ => Treated::Dropped(Reason::QueueFull),
                };
                self.admission.treated(self.now, treated, &mut self.lists);
            }
        }
    }

    /// Time passes; a flow gets `fair` bytes per millisecond, `priority` bytes per millisecond go
    /// first.
    fn wait(&mut self, time: Nanos, fair: u64, priority: u64) {
        let to = self.now + time;
        loop {
            let at = self.admission.next_tick().max(self.now).min(to);
            let ms = (at - self.now).0 / 1_000_000;
            self.observed.fair_bytes =
                self.observed.fair_bytes.map(|bytes| bytes + Bytes(ms * (fair >> 5)));
            self.observed.priority_bytes =
                self.observed.priority_bytes.map(|bytes| bytes + Bytes(ms * (priority >> 4)));
            self.now = at;
            if self.admission.next_tick() <= at {
                self.admission.tick(at, &self.observed);
            } else if at == to {
                return;
            }
        }
    }
}
