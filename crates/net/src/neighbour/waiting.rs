//! The waiting room: many first-in first-out lines in one block of memory.

/// No seat.
const NONE: u32 = u32::MAX;

/// One line. It belongs to the room whose calls made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    head: u32,
    tail: u32,
    len: u32,
}

impl Line {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };

    pub(super) const fn len(&self) -> u32 {
        self.len
    }
}

/// A fixed number of seats, shared by all lines. Every call takes constant time; only `new`
/// allocates.
pub(super) struct WaitingRoom<H> {
    seats: Vec<Seat<H>>,
    free: u32,
    taken: u32,
}

struct Seat<H> {
    item: Option<H>,
    next: u32,
}

impl<H> WaitingRoom<H> {
    pub(super) fn new(seats: u32) -> Self {
        let next = |i: u32| if i + 1 < seats { i + 1 } else { NONE };
        let free = if seats > 0 { 0 } else { NONE };
        Self {
            seats: (0..seats).map(|i| Seat { item: None, next: next(i) }).collect(),
            free,
            taken: 0,
        }
    }

    /// How many wait, in all lines.
    pub(super) const fn len(&self) -> u32 {
        self.taken
    }

    /// Puts `item` at the end of `line`, or gives it back if every seat is taken.
    pub(super) fn push(&mut self, line: &mut Line, item: H) -> Result<(), H> {
        let at = self.free;
        let Some(seat) = self.seats.get_mut(at as usize) else {
            return Err(item);
        };
        self.free = seat.next;
        *seat = Seat { item: Some(item), next: NONE };
        match self.seats.get_mut(line.tail as usize) {
            Some(tail) => tail.next = at,
            None => line.head = at,
        }
        line.tail = at;
        line.len += 1;
        self.taken += 1;
        Ok(())
    }

    /// Takes the first of `line` out.
    pub(super) fn pop(&mut self, line: &mut Line) -> Option<H> {
        let at = line.head;
        let seat = self.seats.get_mut(at as usize)?;
        let item = seat.item.take();
        line.head = core::mem::replace(&mut seat.next, self.free);
        self.free = at;
        line.len -= 1;
        if line.head == NONE {
            line.tail = NONE;
        }
        self.taken -= 1;
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_one_queue_per_line_with_a_common_limit(
            seats in 0_u32..6,
            operations in prop::collection::vec((0_usize..3, any::<bool>()), 0..200),
        ) {
            let mut room = WaitingRoom::new(seats);
            let mut lines = [Line::EMPTY; 3];
            let mut model: [VecDeque<usize>; 3] = Default::default();
            for (number, (line, push)) in operations.into_iter().enumerate() {
                if push {
                    let full = model.iter().map(VecDeque::len).sum::<usize>() == seats as usize;
                    let expected = if full { Err(number) } else { Ok(()) };
                    prop_assert_eq!(room.push(&mut lines[line], number), expected);
                    if !full {
                        model[line].push_back(number);
                    }
                } else {
                    prop_assert_eq!(room.pop(&mut lines[line]), model[line].pop_front());
                }
                for (line, model) in lines.iter().zip(&model) {
                    prop_assert_eq!(line.len() as usize, model.len());
                }
                prop_assert_eq!(room.len() as usize,
                    model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
