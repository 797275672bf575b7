//! A port whose interface may come later.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use evenkeel_core::Nanos;

use crate::error::PortError;
use crate::pool::{Frame, FramePool};
use crate::port::{Port, PortCounters, PortState, PortWrapper, RxFrame};

/// Opens the port when its interface is there.
type Open = Box<dyn FnMut() -> Result<Box<dyn Port>, PortError> + Send>;

/// A port to an interface that is missing: [`PortState::Gone`] until [`Port::reopen`] finds it.
/// From then on it is that port, also while the interface is gone again.
pub struct LatePort {
    inner: Box<dyn Port>,
    /// `None`: it has been opened.
    open: Option<Open>,
}

impl LatePort {
    /// A port to `interface`, which `open` opens once it is there.
    #[must_use]
    pub fn new(interface: &str, open: Open) -> Self {
        Self { inner: Box::new(Missing(interface.to_owned())), open: Some(open) }
    }
}

impl PortWrapper for LatePort {
    type Inner = dyn Port;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut *self.inner
    }

    fn reopen(&mut self) -> Result<bool, PortError> {
        let Some(open) = &mut self.open else { return Port::reopen(&mut *self.inner) };
        self.inner = open()?;
        self.open = None;
        Ok(true)
    }
}

/// An interface that is not there, by name.
struct Missing(String);

impl Port for Missing {
    fn name(&self) -> &str {
        &self.0
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn state(&self) -> PortState {
        PortState::Gone
    }

    fn mac(&self) -> [u8; 6] {
        [0; 6]
    }

    fn mtu(&self) -> u32 {
        0
    }

    fn rx_burst(
        &mut self,
        _pool: &mut FramePool,
        _now: Nanos,
        _out: &mut Vec<RxFrame>,
        _max: usize,
    ) -> usize {
        0
    }

    fn tx_burst(&mut self, _pool: &mut FramePool, _frames: &mut VecDeque<Frame>) -> usize {
        0
    }

    fn counters(&mut self) -> PortCounters {
        PortCounters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryOptions, MemoryPort};

    #[test]
    fn it_is_gone_until_its_interface_is_there() {
        let mut port = LatePort::new("b", Box::new(|| Err(PortError::NoInterface("b".to_owned()))));
        let (mut pool, mut out) = (FramePool::new(4), Vec::new());
        for _ in 0..2 {
            assert_eq!((Port::state(&port), Port::name(&port)), (PortState::Gone, "b"));
            assert_eq!(Port::rx_burst(&mut port, &mut pool, Nanos(1), &mut out, 8), 0);
            assert!(matches!(Port::reopen(&mut port), Err(PortError::NoInterface(_))));
        }
    }

    #[test]
    fn opened_once_it_is_the_port_itself() {
        let (mut host, end) =
            MemoryPort::pair(MemoryOptions::default(), ("a", [1; 6]), ("b", [2; 6]));
        let mut end = Some(end);
        let mut port = LatePort::new(
            "b",
            Box::new(move || {
                let end = end.take().ok_or_else(|| PortError::NoInterface("b".to_owned()))?;
                Ok(Box::new(end))
            }),
        );
        let (mut pool, mut out) = (FramePool::new(4), Vec::new());
        assert!(Port::reopen(&mut port).unwrap(), "its descriptor is new");
        assert!(host.inject(&[7; 60]));
        assert_eq!(Port::rx_burst(&mut port, &mut pool, Nanos(1), &mut out, 8), 1);
        assert_eq!((Port::state(&port), Port::mac(&port)), (PortState::Up, [2; 6]));
        assert!(!Port::reopen(&mut port).unwrap(), "it is not opened again");
        out.drain(..).for_each(|rx| pool.release(rx.frame));
    }
}
