//! Packets of a run whose flows are protected, against the same packets one by one: nobody can tell
//! by what an admission decides, counts and lists.

use crate::admit::{PIN, XpPacket, config, flow, hash};
use evenkeel_core::admit::{
    Admission, AdmissionConfig, Observed, RouterLists, RouterListsConfig, Verdict,
};
use evenkeel_core::packet::Places;
use evenkeel_core::schedule::Treated;
use evenkeel_core::{Bytes, Class, FlowKey, Nanos, Packet};
use proptest::prelude::*;

/// A packet that is told where its flow is listed.
struct Told {
    packet: XpPacket,
    listed: u32,
}

impl Packet for Told {
    fn ip_len(&self) -> Bytes {
        self.packet.ip_len()
    }
    fn wire_len(&self) -> Bytes {
        self.packet.wire_len()
    }
    fn class(&self) -> Class {
        self.packet.class()
    }
    fn flow(&self) -> FlowKey {
        self.packet.flow()
    }
    fn flow_hash(&self) -> u64 {
        hash(&self.packet.flow)
    }
    fn arrival(&self) -> Nanos {
        self.packet.arrival
    }
    fn places(&self) -> Places {
        Places { listed: self.listed, ..Places::UNKNOWN }
    }
}

/// An admission with the lists that it tells.
struct Link {
    admission: Admission,
    lists: RouterLists,
}

impl Link {
    fn new(config: AdmissionConfig) -> Self {
        let lists = RouterListsConfig { flows: 8, ..RouterListsConfig::default() };
        Self {
            admission: Admission::new(config, 7, Nanos::ZERO).unwrap(),
            lists: RouterLists::new(lists, 8).unwrap(),
        }
    }

    fn decide(&mut self, now: Nanos, packet: &Told, treated: Treated) -> Verdict {
        let nothing = |_: &FlowKey| Bytes::ZERO;
        let verdict = self.admission.decide(now, packet, PIN, &nothing, &mut self.lists);
        if verdict == Verdict::Pass {
            self.admission.treated(now, treated, &mut self.lists);
        }
        verdict
    }
}

/// How many µs later a packet comes, of which flow, its length, and how it is treated.
type Step = (u64, u16, u64, Treated);

fn step() -> impl Strategy<Value = Step> {
    let treated = prop_oneof![
        4 => Just(Treated::Priority),
        4 => Just(Treated::Queued),
        1 => Just(Treated::Dropped(evenkeel_core::Reason::QueueFull)),
    ];
    let gap = prop_oneof![9 => 0u64..9_000, 1 => 0u64..3_000_000];
    (gap, 0u16..14, 40u64..1_500, treated)
}

proptest! {
    /// Also where flows fall silent, lose their place to others, or change their class, the list is
    /// full or the link congested, and estimates are due; with and without the router's list.
    #[test]
    fn protected_flows_pass_in_runs_as_they_do_one_by_one(
        steps in prop::collection::vec(step(), 1..400),
        global_list in any::<bool>(),
        flows in prop_oneof![Just(6u32), Just(1_000)],
    ) {
        let flow_timeout = Nanos::from_secs(2);
        let config = AdmissionConfig { global_list, flows, flow_timeout, ..config() };
        let [mut singly, mut together] = [(); 2].map(|()| Link::new(config.clone()));
        let (mut now, mut listed, mut runs) = (Nanos::ZERO, [Places::NOWHERE; 14], 0);
        let (mut bytes, mut passed, mut run) = (0, 0, together.admission.protected_run());
        for (gap, number, length, treated) in steps {
            now += Nanos::from_micros(gap);
            let of = usize::from(number);
            let packet = XpPacket {
                flow: flow(number / 4, number),
                len: length,
                overhead: 38,
                arrival: now,
                source: 0,
                own: false,
            };
            let told = Told { packet, listed: listed[of] };
            bytes += length;
            let mut passes = together.admission.protects_in_run(&mut run, now, &told);
            if passes {
                passed += 1;
                if !matches!(treated, Treated::Dropped(_)) {
                    let is_elastic = treated == Treated::Queued;
                    together.admission.treated_in_run(&mut run, now, listed[of], is_elastic);
                }
            } else {
                together.admission.passed_protected(&run);
                passed = 0;
                for link in [&mut singly, &mut together] {
                    while link.admission.next_tick() <= now {
                        let at = link.admission.next_tick();
                        // Half of what came had priority; elastic flows got the more the longer
                        // the packets were.
                        let observed = Observed {
                            fair_bytes: Some(Bytes(bytes * 2)),
                            priority_bytes: Some(Bytes(bytes / 2)),
                            ..Observed::default()
                        };
                        link.admission.tick(at, &observed);
                    }
                }
                passes = together.decide(now, &told, treated) == Verdict::Pass;
                listed[of] = together.admission.last_place();
                run = together.admission.protected_run();
            }
            runs += u32::from(passed > 0);
            let verdict = singly.decide(now, &told, treated);
            prop_assert_eq!(verdict == Verdict::Pass, passes);
            prop_assert_eq!(format!("{:?}", singly.lists), format!("{:?}", together.lists));
        }
        together.admission.passed_protected(&run);
        let views = [singly, together].map(|link| format!("{:?}", link.admission.view()));
        prop_assert_eq!(&views[0], &views[1]);
        prop_assert!(!global_list || runs == 0, "the router's list hears of each packet");
    }
}
