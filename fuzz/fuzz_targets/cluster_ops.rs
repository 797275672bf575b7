//! Frames, true and altered, and timers in any order, for two nodes of a cluster: every frame is
//! counted once, and nothing panics.
#![no_main]

use evenkeel_cluster::{ClusterConfig, Engine, Forwarder, Grant, NodeId, Record, Variant, Version};
use evenkeel_core::Nanos;
use libfuzzer_sys::fuzz_target;

struct Around<'a>(&'a mut Vec<Vec<u8>>);

impl Forwarder for Around<'_> {
    fn heads(&mut self, link: usize, class: usize, out: &mut [Record]) -> usize {
        out.fill(Record::of_packet((link + class) as u32, 64));
        out.len() - usize::from(link == 2)
    }
    fn grant(&mut self, _: Grant) {}
    fn broadcast(&mut self, frame: &[u8]) {
        if self.0.len() < 64 {
            self.0.push(frame.to_vec());
        }
    }
}

fuzz_target!(|input: (u8, Vec<(u8, u16, u16, u8)>)| {
    let (kind, steps) = input;
    let mut config = ClusterConfig::new(3, 3, &[1, 2, 3]);
    config.framing.version = if kind & 1 == 0 { Version::V1 } else { Version::V2 };
    let (variant, l, p) = match kind >> 1 & 3 {
        0 => (Variant::Single, 1, 0),
        1 => (Variant::Lazy, 5, 0),
        2 => (Variant::Multiple, 3, 2),
        _ => (Variant::Pipelined, 3, 2),
    };
    config.set_variant(variant, l, p);
    config.early_close = kind & 8 != 0;
    let node = |id: u16| {
        let mac = [2, 0, 0, 0, 0, id as u8];
        Engine::new(&config, NodeId(id), mac, 1, Nanos::ZERO).expect("the configuration is valid")
    };
    let mut engines = [node(0), node(2)];
    let (mut kept, mut now) = (vec![vec![0xff; 60]], Nanos::ZERO);
    for (step, a, b, byte) in steps {
        let engine = &mut engines[usize::from(byte & 1)];
        match step % 6 {
            0 => now += Nanos::from_micros(a.into()),
            1 => now = now.saturating_sub(Nanos::from_micros(b.into())),
            2 => engine.on_timer(now.max(engine.next_timer()), &mut Around(&mut kept)),
            step => {
                let mut frame = kept[usize::from(a) % kept.len()].clone();
                let at = usize::from(b) % frame.len();
                match step {
                    4 => frame[at] = byte,
                    5 => frame.truncate(at),
                    _ => {}
                }
                engine.on_frame(now, &frame, &mut Around(&mut kept));
            }
        }
    }
    for engine in &engines {
        let counters = engine.counters();
        let unused: u64 = engine.unused().met().map(|(_, frames)| frames).sum();
        let used = counters.states + counters.clocks + counters.proofs;
        assert_eq!(counters.frames, used + unused);
    }
});
