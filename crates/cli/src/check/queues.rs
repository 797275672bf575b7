//! Advice about how long packets wait.

use evenkeel_config::{DisciplineConfig, LinkConfig, RouterConfig};
use evenkeel_core::BitRate;
use evenkeel_core::aqm::{AqmConfig, LONGEST_PACKET};
use evenkeel_core::schedule::buffer::Buffer;
use evenkeel_core::settings::quantity::rate_text;

/// A queue that may let packets wait for longer than this is worth a word, ms.
const LONG_QUEUE: u64 = 100;
/// And so is a ring, ms.
const LONG_RING: u64 = 5;
/// Rings that are shorter are as short as can be, packets.
const SHORT_RING: u32 = 8;

pub(super) fn advice(config: &RouterConfig) -> Vec<String> {
    let of_link = |link| of_link(link).into_iter().chain(of_buffers(link, config.router.buffers));
    config.links.iter().flat_map(of_link).collect()
}

/// Whether one link can hold all frame buffers of the router: then others have none.
fn of_buffers(link: &LinkConfig, buffers: u32) -> Option<String> {
    let buffer = match &link.discipline {
        DisciplineConfig::FqCodel(own) => own.buffer,
        DisciplineConfig::Tree(own) => own.buffer,
        _ => return None,
    };
    (buffer >= buffers).then(|| {
        format!(
            "link {}: its queues may hold {buffer} packets, and the router has {buffers} buffers: \
             then packets of others are lost before any queue (`buffers` of [router])",
            link.port
        )
    })
}

/// How long so many packets take, ms.
fn time_of(packets: u32, rate: BitRate) -> u64 {
    let bits = LONGEST_PACKET.0 * 8;
    u64::from(packets) * bits * 1_000 / rate.0.max(1)
}

fn of_link(link: &LinkConfig) -> Vec<String> {
    let (port, core, mut said) = (&link.port, &link.core, Vec::new());
    if let (Some(rate), DisciplineConfig::Fifo(fifo)) = (core.slowest(), &link.discipline)
        && let wait @ LONG_QUEUE.. = time_of(fifo.limit, rate)
    {
        said.push(format!(
            "link {port}: in a FIFO of {} packets everybody may wait for {wait} ms at {}; \
             without a `discipline` every flow gets a short queue of its own",
            fifo.limit,
            rate_text(rate)
        ));
    }
    if let Some(rate) = core.rate
        && core.ring.slots >= SHORT_RING
        && let wait @ LONG_RING.. = time_of(core.ring.slots, rate)
    {
        said.push(format!(
            "link {port}: a ring of {} packets takes {wait} ms at {}, and no discipline orders or \
             drops what is in it",
            core.ring.slots,
            rate_text(rate)
        ));
    }
    if core.rate.is_some()
        && let Some(limit) = shortest_queue(&link.discipline)
        && core.ring.slots > limit
    {
        said.push(format!(
            "link {port}: a ring of {} packets above queues of {limit}: a refill can empty a \
             queue, and then {} cannot tell classes apart",
            core.ring.slots,
            link.discipline.name()
        ));
    }
    if core.slowest().is_none() && !matches!(link.discipline, DisciplineConfig::Fifo(_)) {
        said.push(format!(
            "link {port}: without a rate packets wait behind the port, where {} has no say: give \
             it a `rate` a little below the line's",
            link.discipline.name()
        ));
    }
    if let (Some(rate), Some(shaper)) = (core.rate, core.shaper)
        && shaper.rate >= rate
    {
        said.push(format!("link {port}: the shaper is not slower than the link, and does nothing"));
    }
    let (buffer, law) = elastic(&link.discipline);
    if core.slowest().is_none() && buffer.is_some_and(|buffer| buffer.max_delay.is_some()) {
        said.push(format!("link {port}: without a rate max_delay bounds nothing; `buffer` does"));
    }
    if let Some(law) = law.filter(|law| law.target.0 * 2 > law.interval.0) {
        said.push(format!(
            "link {port}: an interval of {} is less than two targets, and counts as {}",
            law.interval,
            law.target + law.target
        ));
    }
    said
}

/// The shortest of the queues of classes, packets.
fn shortest_queue(discipline: &DisciplineConfig) -> Option<u32> {
    match discipline {
        DisciplineConfig::WfqAltq(own) => own.limit.first(own.queue_count().into()).min(),
        DisciplineConfig::Lct(own) => own.limit.first(own.classes.into()).min(),
        _ => None,
    }
}

/// The buffer of a discipline, and when its queues count as standing, where that matters.
fn elastic(discipline: &DisciplineConfig) -> (Option<Buffer>, Option<AqmConfig>) {
    match discipline {
        DisciplineConfig::Pfq(own) => (Some(own.buffer), own.aqm.is_on().then_some(own.aqm.law)),
        DisciplineConfig::Pdrr(own) => (Some(own.buffer), own.aqm.is_on().then_some(own.aqm.law)),
        DisciplineConfig::Codel(own) => (None, Some(own.aqm)),
        DisciplineConfig::FqCodel(own) => (None, Some(own.aqm)),
        _ => (None, None),
    }
}
