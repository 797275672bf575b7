//! What a port has received before it is this router's turn.

use evenkeel_core::Nanos;
use evenkeel_ports::{FramePool, Port, RxFrame, sys};

use crate::pipeline::BURST;

/// Releases frames that came before `until`, which others have forwarded. Gives those that came
/// later and were read with them.
pub(super) fn discard_until(
    pool: &mut FramePool,
    port: &mut dyn Port,
    until: Nanos,
) -> Vec<RxFrame> {
    let mut frames: Vec<RxFrame> = Vec::with_capacity(BURST);
    loop {
        port.rx_burst(pool, sys::monotonic_now(), &mut frames, BURST);
        let none = frames.is_empty();
        let earlier = frames.partition_point(|frame| frame.arrival < until);
        frames.drain(..earlier).for_each(|received| pool.release(received.frame));
        if none || !frames.is_empty() {
            return frames;
        }
    }
}
