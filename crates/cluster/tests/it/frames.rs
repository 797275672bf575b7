//! Frames that are wrong, forged, replayed or strange, clocks that jump, two masters: counted, and
//! without effect on what is sent.

use evenkeel_cluster::frame::{Auth, Builder, FrameError, FrameKind, Header, Parser, state_bytes};
use evenkeel_cluster::{
    ClusterConfig, Engine, Event, ExchangeKey, Forwarder, Grant, NodeId, Record, Variant, Version,
};
use evenkeel_core::Nanos;
use proptest::prelude::*;

/// Queues that are always backlogged, with a log of all that the engine asks for.
#[derive(Default)]
struct Around {
    frames: Vec<Vec<u8>>,
    grants: Vec<Grant>,
    events: Vec<Event>,
    quiet: bool,
}

impl Forwarder for Around {
    fn heads(&mut self, link: usize, class: usize, out: &mut [Record]) -> usize {
        for (n, record) in out.iter_mut().enumerate() {
            *record = Record::of_packet((link + 3 * class + 9 * n) as u32, 64);
        }
        out.len()
    }

    fn grant(&mut self, grant: Grant) {
        self.grants.push(grant);
    }

    fn broadcast(&mut self, frame: &[u8]) {
        if !self.quiet {
            self.frames.push(frame.to_vec());
        }
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

fn config(version: Version, key: Option<[u8; 16]>) -> ClusterConfig {
    let mut config = ClusterConfig::new(3, 3, &[1, 1, 1]);
    config.variant = Variant::Single;
    config.framing.version = version;
    config.framing.key = key.map(ExchangeKey);
    config
}

fn engine(config: &ClusterConfig, id: u16) -> Engine {
    Engine::new(config, NodeId(id), [2, 0, 0, 0, 0, id as u8], 1, Nanos::ZERO).unwrap()
}

/// Lets two engines talk for a while, every frame passing through `meddle`; returns what was around
/// them.
fn talk(
    engines: &mut [Engine; 2],
    micros: std::ops::Range<u64>,
    mut meddle: impl FnMut(u64, &mut Engine, &[u8], &mut Around),
) -> [Around; 2] {
    let mut around = [Around::default(), Around::default()];
    for micro in micros {
        let now = Nanos::from_micros(micro);
        for from in 0..2 {
            if engines[from].next_timer() <= now {
                engines[from].on_timer(now, &mut around[from]);
            }
            for frame in std::mem::take(&mut around[from].frames) {
                let to = 1 - from;
                engines[to].on_frame(now, &frame, &mut around[to]);
                meddle(micro, &mut engines[to], &frame, &mut around[to]);
            }
        }
    }
    around
}

fn pair(config: &ClusterConfig) -> [Engine; 2] {
    [engine(config, 0), engine(config, 1)]
}

#[test]
fn version_one_has_the_published_length() {
    let config = ClusterConfig::published(3, 3, &[1, 1, 1]);
    assert_eq!(state_bytes(&config), 54);
    assert_eq!(Builder::new(&config, [2; 6]).state_wire_bytes(), 98);
    let mut most = config;
    most.set_variant(Variant::Multiple, 25, 0);
    assert_eq!(Builder::new(&most, [2; 6]).state_wire_bytes(), 1394);
    most.framing.mtu = 9000;
    most.set_variant(Variant::Multiple, 160, 0);
    assert!(most.validate().is_ok(), "jumbo");
}

#[test]
fn what_is_built_is_parsed_also_in_fragments() {
    for (version, l) in [(Version::V1, 3), (Version::V2, 3), (Version::V2, 60)] {
        for key in [None, Some([7; 16])] {
            let mut config = config(version, key);
            config.set_variant(Variant::Multiple, l, 0);
            let mut builder = Builder::new(&config, [2, 0, 0, 0, 0, 1]);
            let body: Vec<u8> = (0..state_bytes(&config)).map(|n| n as u8).collect();
            let header = Header {
                kind: FrameKind::State,
                from: NodeId(1),
                cycle: 200,
                master: true,
                resync: true,
                fragment: 0,
                fragments: 1,
                checksum: Some(5),
                ready: None,
                members: Some(7),
            };
            let mut auth = key.map(|key| Auth::new(key, 9, &config.members));
            let mut frames = Vec::new();
            builder.build(&header, &body, auth.as_mut(), |frame| frames.push(frame.to_vec()));
            let parser = Parser::new(&config);
            let receiver = key.map(|key| Auth::new(key, 1, &config.members));
            let mut whole = vec![0; body.len()];
            for frame in &frames {
                assert_eq!(frame[12..16], [0x81, 0, 0xeb, 0xb9], "PCP 7, VLAN 3001");
                let parsed = parser.parse(frame, receiver.as_ref()).unwrap();
                assert_eq!((parsed.member, parsed.header.cycle), (1, 200));
                assert!(parsed.header.master && parsed.header.resync);
                whole[parsed.offset..parsed.offset + parsed.body.len()]
                    .copy_from_slice(parsed.body);
                // Every shorter frame, and one that goes on, is refused.
                for length in 0..frame.len() {
                    assert!(parser.parse(&frame[..length], receiver.as_ref()).is_err(), "{length}");
                }
                let longer = [frame.as_slice(), &[1]].concat();
                assert!(parser.parse(&longer, receiver.as_ref()).is_err());
                if key.is_some() {
                    let mut forged = frame.clone();
                    for at in 18..frame.len() {
                        forged[at] ^= 1;
                        assert!(parser.parse(&forged, receiver.as_ref()).is_err(), "byte {at}");
                        forged[at] ^= 1;
                    }
                }
            }
            assert_eq!(whole, body);
            assert_eq!(frames.len() > 1, l == 60);
        }
    }
}

#[test]
fn forged_and_replayed_frames_change_nothing() {
    let config = config(Version::V2, Some([1; 16]));
    let undisturbed = {
        let mut engines = pair(&config);
        let around = talk(&mut engines, 0..20_000, |_, _, _, _| {});
        around.map(|around| around.grants)
    };
    assert!(undisturbed[0].len() > 100 && undisturbed[1].len() > 100);
    let mut engines = pair(&config);
    let mut old = Vec::new();
    let around = talk(&mut engines, 0..20_000, |micro, engine, frame, around| {
        let refused = |engine: &Engine| {
            // A challenge of a node that is not known yet does no harm twice.
            let unused = engine.unused();
            unused.replayed + unused.unproved + unused.forged + engine.counters().proofs
        };
        let (before, now) = (refused(engine), Nanos::from_micros(micro));
        engine.on_frame(now, frame, around);
        let mut forged = frame.to_vec();
        forged[40] ^= 0x55;
        engine.on_frame(now, &forged, around);
        if !old.is_empty() {
            engine.on_frame(now, &old, around);
        }
        assert!(refused(engine) >= before + 2);
        old = frame.to_vec();
    });
    assert!(around.map(|around| around.grants) == undisturbed, "what is sent is the same");
}

#[test]
fn a_node_with_another_configuration_is_refused_and_named() {
    let ours = config(Version::V2, None);
    let mut theirs = ours.clone();
    theirs.weight.set(evenkeel_core::Class(2), 9);
    let mut engines = [engine(&ours, 0), engine(&theirs, 1)];
    let around = talk(&mut engines, 0..10_000, |_, _, _, _| {});
    assert!(engines[0].unused().other_configuration > 5);
    let named =
        Event::OtherConfiguration { node: NodeId(1), theirs: theirs.hash(), ours: ours.hash() };
    assert_eq!(around[0].events.iter().filter(|event| **event == named).count(), 1, "said once");
    assert!(ours.hash() != theirs.hash());
}

#[test]
fn a_second_node_with_the_same_id_is_noticed() {
    let config = config(Version::V2, None);
    let mut engines = pair(&config);
    let mut twin = Engine::new(&config, NodeId(1), [2, 0, 0, 0, 9, 9], 1, Nanos::ZERO).unwrap();
    let mut twins = Around::default();
    talk(&mut engines, 0..10_000, |_, _, _, _| {});
    twin.on_timer(twin.next_timer(), &mut twins);
    for engine in &mut engines {
        engine.on_frame(Nanos::from_micros(10_000), &twins.frames[0], &mut Around::default());
    }
    assert!(engines[0].unused().duplicate_ids > 0, "another's id");
    assert!(engines[1].unused().duplicate_ids > 0, "its own id");
}

#[test]
fn a_higher_master_is_not_obeyed_and_steps_back() {
    let config = config(Version::V2, None);
    let mut engines = pair(&config);
    let around = talk(&mut engines, 0..5_000, |_, _, _, _| {});
    assert!(engines[0].view().is_master && engines[1].view().in_step);
    assert!(around[1].events.contains(&Event::FollowsMaster(NodeId(0))));
    // The slave's clock jumps ahead by a minute: it takes over, and steps back when it hears the
    // master.
    let mut alone = Around::default();
    engines[1].on_timer(Nanos::from_secs(60), &mut alone);
    assert!(engines[1].view().is_master);
    let now = Nanos::from_micros(5_000);
    for frame in alone.frames {
        engines[0].on_frame(now, &frame, &mut Around::default());
    }
    assert_eq!(engines[0].unused().second_master, 1);
    assert!(engines[0].view().is_master);
    // Its clock jumps back: engine time stands still meanwhile.
    talk(&mut engines, 5_001..10_000, |_, _, _, _| {});
    assert!(engines[1].counters().clock_backwards == 1 && !engines[1].view().is_master);
    assert!(engines[1].view().in_step && engines[0].view().is_master);
}

#[test]
fn nothing_allocates_in_a_cycle() {
    struct Quiet(u64);
    impl Forwarder for Quiet {
        fn heads(&mut self, _: usize, class: usize, out: &mut [Record]) -> usize {
            out.fill(Record::of_packet(class as u32, 64));
            out.len()
        }
        fn grant(&mut self, _: Grant) {
            self.0 += 1;
        }
        fn broadcast(&mut self, _: &[u8]) {}
    }
    let mut config = ClusterConfig::new(1, 3, &[1, 1, 1]);
    config.framing.key = Some(ExchangeKey([3; 16]));
    let mut engine = engine(&config, 0);
    let mut around = Quiet(0);
    let mut cycles = |many| {
        for _ in 0..many {
            engine.on_timer(engine.next_timer(), &mut around);
        }
    };
    cycles(20);
    let allocated = allocation_counter::measure(|| cycles(200));
    assert_eq!(allocated.count_total, 0);
    assert!(around.0 > 1_000);
}

#[test]
fn a_strangers_frame_and_an_unknown_version_are_refused() {
    let mut config = config(Version::V2, None);
    let parser = Parser::new(&config);
    let mut around = Around::default();
    let mut master = engine(&config, 0);
    master.on_timer(master.next_timer(), &mut around);
    let frame = around.frames[0].clone();
    let change = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        parser.parse(&frame, None).map(|parsed| parsed.member)
    };
    assert_eq!(change(18, 3), Err(FrameError::Version(3)));
    assert_eq!(change(19, 9), Err(FrameError::Kind(9)));
    assert_eq!(change(27, 40), Err(FrameError::Stranger(40)));
    assert_eq!(change(31, 2), Err(FrameError::Dimensions));
    assert_eq!(change(15, 1), Err(FrameError::Foreign));
    config.framing.vlan = 4_095;
    assert!(config.validate().unwrap_err().to_string().contains("0 to 4094"));
}

proptest! {
    #[test]
    fn no_sequence_of_frames_and_timers_breaks_an_engine(
        version in prop_oneof![Just(Version::V1), Just(Version::V2)],
        steps in prop::collection::vec((0_u8..6, any::<u16>(), any::<u16>(), any::<u8>()), 1..200),
    ) {
        let config = config(version, None);
        let mut engines = [engine(&config, 0), engine(&config, 2)];
        let (mut around, mut now) = ([Around::default(), Around::default()], Nanos::ZERO);
        let mut kept: Vec<Vec<u8>> = vec![vec![0xff; 60]];
        for (step, a, b, byte) in steps {
            let which = usize::from(byte & 1);
            match step {
                0 => now += Nanos::from_micros(a.into()),
                1 => now = now.saturating_sub(Nanos::from_micros(b.into())),
                2 => {
                    let due = engines[which].next_timer();
                    engines[which].on_timer(now.max(due.min(now + Nanos::SECOND)),
                        &mut around[which]);
                }
                _ => {
                    let mut frame = kept[usize::from(a) % kept.len()].clone();
                    if step == 4 {
                        let at = usize::from(b) % frame.len();
                        frame[at] = byte;
                    }
                    if step == 5 {
                        frame.truncate(usize::from(b) % (frame.len() + 1));
                    }
                    engines[which].on_frame(now, &frame, &mut around[which]);
                }
            }
            for around in &mut around {
                kept.append(&mut around.frames);
            }
        }
        for engine in &engines {
            let counters = engine.counters();
            let unused: u64 = engine.unused().met().map(|(_, frames)| frames).sum();
            let used = counters.states + counters.clocks + counters.proofs;
            prop_assert_eq!(counters.frames, used + unused);
        }
    }
}
