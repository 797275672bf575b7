//! Recorded frames are of no use, whoever has restarted meanwhile, and a clock that is behind does
//! no harm.

use evenkeel_cluster::{Event, NodeId};
use evenkeel_core::Nanos;

use crate::change::{Segment, config, none};

fn decided(segment: &Segment, at: usize) -> u64 {
    segment.nodes[at].0.counters().decided
}

/// Decisions of each node within so many milliseconds, with a recording replayed meanwhile: a frame
/// each 100 us to all that live.
fn replaying(
    segment: &mut Segment,
    millis: u64,
    dead: usize,
    recorded: &mut impl Iterator<Item = Vec<u8>>,
) -> Vec<u64> {
    let before: Vec<_> = (0..3).map(|at| decided(segment, at)).collect();
    let quiet = move |from: usize, to: usize, _: &[u8]| from == dead || to == dead;
    for _ in 0..millis {
        for _ in 0..10 {
            let Some(frame) = recorded.next() else { break };
            let now = Nanos::from_micros(segment.micros);
            for (_, (engine, around)) in
                segment.nodes.iter_mut().enumerate().filter(|(at, _)| *at != dead)
            {
                engine.on_frame(now, &frame, around);
            }
        }
        segment.run(1, quiet);
    }
    (0..3).map(|at| decided(segment, at) - before[at]).collect()
}

#[test]
fn recorded_frames_of_a_dead_master_do_not_stop_who_has_restarted() {
    let config = config(&[1, 2, 3], &[1, 3]);
    let mut segment = Segment::new(&config);
    segment.run(100, none);
    let of_master = |frame: &Vec<u8>| frame[6..12] == [2, 0, 0, 0, 0, 1];
    let recorded: Vec<_> = segment.heard.iter().filter(|frame| of_master(frame)).cloned().collect();
    assert!(recorded.len() > 100);
    // The master dies, node 2 restarts; the master's frames come again, to both that live.
    segment.run(50, |from, to, _| from == 0 || to == 0);
    segment.nodes[1].0 = segment.start(&config, 2, 1001);
    segment.run(30, |from, to, _| from == 0 || to == 0);
    let undisturbed = replaying(&mut segment, 100, 0, &mut std::iter::empty());
    let during = replaying(&mut segment, 100, 0, &mut recorded.into_iter());
    println!("decided: undisturbed {undisturbed:?}, during the replay {during:?}");
    for node in [1, 2] {
        assert!(undisturbed[node] > 50, "{undisturbed:?}");
        assert!(during[node] * 100 >= undisturbed[node] * 95, "{undisturbed:?} {during:?}");
        assert_eq!(segment.nodes[node].0.view().master, Some(NodeId(2)));
        let events = &segment.nodes[node].1.events;
        let said = events.iter().filter(|event| **event == Event::Recorded(NodeId(1))).count();
        assert_eq!(said, 1, "node {}: {events:?}", node + 1);
    }
    assert!(segment.nodes[1].0.unused().unproved > 100);
    // The real one is believed.
    segment.nodes[0].0 = segment.start(&config, 1, 1001);
    segment.run(30, none);
    assert!(segment.nodes.iter().all(|(engine, _)| engine.view().master == Some(NodeId(1))));
    let events = &segment.nodes[2].1.events;
    assert!(events.contains(&Event::Proved(NodeId(1))), "{events:?}");
}

#[test]
fn a_forwarder_whose_clock_is_behind_takes_part_and_is_named() {
    let config = config(&[1, 2, 3], &[1, 3]);
    let mut segment = Segment::new(&config);
    segment.run(50, none);
    segment.run(30, |from, to, _| from == 2 || to == 2);
    segment.nodes[2].0 = segment.start(&config, 3, 7);
    segment.run(10, none);
    let before = decided(&segment, 2);
    segment.run(50, none);
    println!("decided by the one whose clock is behind: {}", decided(&segment, 2) - before);
    assert!(decided(&segment, 2) > before + 25, "{:?}", segment.nodes[2].0.counters());
    let named = Event::ClockBehind(NodeId(3));
    for (_, around) in &segment.nodes[..2] {
        assert_eq!(around.events.iter().filter(|event| **event == named).count(), 1);
    }
}

#[test]
fn the_answers_of_an_earlier_life_bring_nothing_back() {
    let config = config(&[1, 2, 3], &[1, 3]);
    let mut segment = Segment::new(&config);
    segment.run(50, none);
    // Two restarts of node 3, each of which answered the others' challenges.
    for epoch in [900, 800] {
        segment.run(30, |from, to, _| from == 2 || to == 2);
        segment.nodes[2].0 = segment.start(&config, 3, epoch);
        segment.run(30, none);
    }
    let of_three = |frame: &Vec<u8>| frame[6..12] == [2, 0, 0, 0, 0, 3];
    let recorded: Vec<_> = segment.heard.iter().filter(|frame| of_three(frame)).cloned().collect();
    // It falls silent: its recordings, of all its lives, are all that there is of it.
    segment.run(30, |from, to, _| from == 2 || to == 2);
    let states = segment.nodes.iter().map(|(engine, _)| engine.counters().states);
    let states: Vec<_> = states.collect();
    for frame in &recorded {
        segment.run(1, |from, to, _| from == 2 || to == 2);
        for (engine, around) in &mut segment.nodes[..2] {
            engine.on_frame(Nanos::from_micros(segment.micros), frame, around);
            assert!(engine.view().present & 4 == 0, "a dead node counts as present");
        }
    }
    assert!(segment.nodes[0].0.counters().states > states[0], "the living go on");
}

#[test]
fn a_flood_of_recorded_frames_makes_nobody_talk() {
    let config = config(&[1, 2, 3], &[1, 3]);
    let mut segment = Segment::new(&config);
    segment.run(50, none);
    let recorded: Vec<_> = segment.heard.clone();
    segment.nodes[1].0 = segment.start(&config, 2, 1001);
    let sent = |segment: &Segment| segment.nodes[1].0.counters().sent_frames;
    segment.run(30, |from, to, _| from == 0 || to == 0);
    let before = sent(&segment);
    segment.run(20, |from, to, _| from == 0 || to == 0);
    let quiet = sent(&segment) - before;
    let before = sent(&segment);
    for _ in 0..20 {
        for frame in recorded.iter().take(200) {
            let (engine, around) = &mut segment.nodes[1];
            engine.on_frame(Nanos::from_micros(segment.micros), frame, around);
        }
        segment.run(1, |from, to, _| from == 0 || to == 0);
    }
    // A challenge or an answer in each `t_br` of 72 us at most, whatever comes.
    let loud = sent(&segment) - before;
    println!("frames sent in 20 ms: {quiet} undisturbed, {loud} in the flood");
    assert!(loud <= quiet + 20_000 / 72 + 1, "{quiet} {loud}");
}

#[test]
fn lost_challenges_and_answers_are_repeated() {
    let config = config(&[1, 2, 3], &[1, 3]);
    let mut segment = Segment::new(&config);
    // Of the first 100 proofs (kind 3) three in four are lost.
    let count = std::cell::Cell::new(0);
    segment.run(60, |_, _, frame| {
        let proof = frame[19] == 3;
        count.set(count.get() + u32::from(proof));
        proof && count.get() < 100 && !count.get().is_multiple_of(4)
    });
    let before: Vec<_> = (0..3).map(|at| decided(&segment, at)).collect();
    segment.run(20, none);
    for (node, before) in before.iter().enumerate() {
        assert!(decided(&segment, node) > before + 10, "{:?}", segment.nodes[node].0.counters());
    }
}

#[test]
fn a_port_with_another_address_goes_on() {
    let config = config(&[1, 2, 3], &[1, 3]);
    let mut segment = Segment::new(&config);
    segment.run(50, none);
    segment.nodes[1].0.set_mac([2, 0, 0, 0, 7, 7]);
    let before: Vec<_> = (0..3).map(|at| decided(&segment, at)).collect();
    segment.run(20, none);
    for (node, before) in before.iter().enumerate() {
        assert!(decided(&segment, node) > before + 15, "{:?}", segment.nodes[node].0.counters());
        assert_eq!(segment.nodes[node].0.unused().duplicate_ids, 0);
    }
}

#[test]
fn who_was_away_decides_nothing_before_its_clocks_are_set() {
    let config = config(&[1, 2, 3], &[1, 3]);
    let mut segment = Segment::new(&config);
    segment.run(50, none);
    // Node 3 stops for 200 ms. Its port has kept the first frames that came meanwhile.
    let heard = segment.heard.len();
    let (engine, around) = segment.nodes.remove(2);
    segment.run(200, none);
    segment.nodes.push((engine, around));
    let kept: Vec<_> = segment.heard[heard..].iter().take(60).cloned().collect();
    let now = Nanos::from_micros(segment.micros);
    let (engine, around) = &mut segment.nodes[2];
    around.grants.clear();
    for frame in &kept {
        engine.on_frame(now, frame, around);
        engine.on_timer(now, around);
    }
    assert!(around.grants.is_empty(), "granted by old frames: {:?}", around.grants);
    let before = decided(&segment, 2);
    segment.run(50, none);
    assert!(decided(&segment, 2) > before + 25, "{:?}", segment.nodes[2].0.counters());
}
