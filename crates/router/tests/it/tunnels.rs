//! Tunnels of a router with several workers: one sequence of numbers, and no IV twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{self, Bed, Udp, headers};
use evenkeel_core::Nanos;
use evenkeel_router::pipeline::cycles::VirtualCycles;
use evenkeel_router::pipeline::{Buffers, Tunnels};

/// Two classes by code point, and tunnels with these SPIs for them from the port to the host behind
/// it.
fn config(workers: usize, tunnels: &[u32]) -> String {
    let mut text = format!("[router]\nworkers = {workers}\n[[class]]\nname = \"rest\"\n");
    for spi in [300, 301] {
        let code = spi - 290;
        text += &format!("[[class]]\nname = \"secret{spi}\"\nmatch = [{{ dscp = {code} }}]\n");
        if tunnels.contains(&spi) {
            text += &format!(
                "service = \"vpn{spi}\"\n[[service]]\nname = \"vpn{spi}\"\n[service.work]\nkind = \
                 \"esp\"\nlocal = \"10.0.2.1\"\nremote = \"10.0.2.2\"\nspi = {spi}\nkey = \
                 \"0x4c80cdefbb5d10da906ac73c3613a6342e443b68\"\n"
            );
        }
    }
    text
}

/// Workers as a router starts them.
fn workers(count: usize, tunnels: &Arc<Tunnels>) -> Vec<Bed> {
    let mut workers = Bed::workers(3, &config(count, &[300]));
    for worker in &mut workers {
        let clock = Box::new(VirtualCycles::default());
        worker.pipeline.set_surroundings(clock, Arc::clone(tunnels)).unwrap();
    }
    workers
}

/// What packets of a tunnel carry in clear, of all that have been seen.
#[derive(Default)]
struct Seen {
    sequence: BTreeSet<u32>,
    ivs: BTreeSet<u64>,
    identifications: BTreeSet<u16>,
}

impl Seen {
    /// Each worker in turn sends a packet of the tunnel `spi`, `rounds` times.
    fn send(&mut self, workers: &mut [Bed], spi: u32, rounds: usize) {
        for _ in 0..rounds {
            for worker in workers.iter_mut() {
                worker.send(0, 1, Udp { dscp: (spi - 290) as u8, ..Udp::default() });
                worker.pass(Nanos::from_micros(10));
                self.note(&worker.one(2), spi);
            }
        }
    }

    fn note(&mut self, frame: &[u8], spi: u32) {
        let outer = headers(frame);
        assert_eq!((outer.protocol, outer.flow.destination), (50, common::v4(2, 2)));
        let esp = &frame[usize::from(outer.l4)..];
        let word = |at: usize| u32::from_be_bytes(esp[at..at + 4].try_into().unwrap());
        assert_eq!(word(0), spi);
        assert!(self.sequence.insert(word(4)), "sequence number {} twice", word(4));
        let iv = u64::from(word(8)) << 32 | u64::from(word(12));
        assert!(self.ivs.insert(iv), "IV {iv} twice");
        let ip = &frame[usize::from(outer.l3)..];
        assert!(self.identifications.insert(u16::from_be_bytes([ip[4], ip[5]])));
    }

    /// Sequence numbers have been used from 1 on, none left out.
    fn is_whole(&self, packets: u32) {
        assert!(self.sequence.iter().copied().eq(1..=packets), "{:?}", self.sequence);
    }
}

#[test]
fn workers_draw_sequence_numbers_and_ivs_of_a_tunnel_together() {
    let tunnels = Tunnels::with(7..10_000);
    let (mut first, mut second) = (Seen::default(), Seen::default());
    let mut two = workers(2, &tunnels);
    first.send(&mut two, 300, 20);
    first.is_whole(40);

    // A tunnel that a reload brings is one for all too, and that which stays goes on.
    let more = Bed::config(3, &config(2, &[300, 301]));
    for worker in &mut two {
        let now = worker.now;
        worker.pipeline.reload(now, &more).unwrap();
    }
    second.send(&mut two, 301, 10);
    second.is_whole(20);
    first.send(&mut two, 300, 5);
    first.is_whole(50);
    assert!(first.ivs.is_disjoint(&second.ivs), "one key by mistake, and yet no IV twice");
    let last = two[1].snapshot().services[0].sequence;
    assert_eq!(last, Some(50));
}

/// New workers forward as soon as they are ready, whichever of them takes over what the old had.
#[test]
fn other_workers_go_on_with_the_sequence_of_those_before() {
    let tunnels = Tunnels::with(7..10_000);
    let mut seen = Seen::default();
    let mut old = workers(2, &tunnels);
    seen.send(&mut old, 300, 10);
    let mut new = workers(3, &tunnels);
    // The third has sent before the first has taken anything over.
    seen.send(&mut new[2..], 300, 1);
    for bed in old {
        let now = new[0].now.max(bed.now);
        new[0].pipeline.take_over(now, bed.pipeline, Buffers::Copied);
    }
    seen.send(&mut new, 300, 4);
    seen.is_whole(33);
    let services = |bed: &mut Bed| bed.pipeline.snapshot(bed.now, &mut bed.ports).services;
    let packets: u64 = new.iter_mut().map(|bed| services(bed)[0].packets).sum();
    assert_eq!(packets, 33, "counters of those before are added");

    // Nobody has it any more: the next that is given this key is another SA.
    drop(new);
    let mut seen = Seen::default();
    seen.send(&mut workers(1, &tunnels), 300, 3);
    seen.is_whole(3);
}
