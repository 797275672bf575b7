//! The bytes of a window divided: into classes by weight, or one before the other, then into the
//! workers of each.

use super::{ELASTIC, Part, SharedLink, Sharing, Table, Told};

impl SharedLink {
    /// Fills `budget` into the demands, and writes the new sums. Returns what is left; the part's
    /// `by_class` has the demands that are. `most` is what a worker may hold of grants that it has
    /// not used; `level` is what an elastic flow got that always waits, in 2^-16 bytes on the wire.
    pub(super) fn divide(
        &self,
        part: &mut Part,
        before: &Table,
        table: &Table,
        budget: u64,
        most: i64,
        level: &mut u64,
    ) -> u64 {
        let back = self.collect_demands(part, before, most);
        // What a class does not need that was held meanwhile is for the others: of one window, so
        // that what a worker left for long is no burst.
        let budget = budget.saturating_add(if part.sharing == Sharing::Packets {
            back.min(budget)
        } else {
            0
        });
        let mut rest = self.fill_classes(part, budget);
        // What cannot be divided among the workers of a class is left, too.
        for class in 0..self.classes {
            rest += if part.sharing == Sharing::Flows && class == ELASTIC {
                self.fill_workers_by_flows(part, level)
            } else {
                self.fill_workers(part, class)
            };
        }
        part.grant.iter().enumerate().for_each(|(at, granted)| table.granted.set(at, *granted));
        rest
    }

    /// Demands: T - G of each worker and class, and their sum by class. Returns what is taken back.
    fn collect_demands(&self, part: &mut Part, before: &Table, most: i64) -> u64 {
        let mut back = 0;
        let (classes, workers) = (self.classes, self.workers);
        let Part { demand, grant, by_class, columns, sharing, .. } = part;
        for (class, (column, filled)) in columns.iter_mut().zip(&mut *by_class).enumerate() {
            if *sharing == Sharing::Packets {
                column.weight = self.mean_length(class);
            }
            *filled = (column.weight, 0);
        }
        for worker in 0..workers {
            let cells = &self.cells[worker].0;
            for (class, (_, asked)) in by_class[..classes].iter_mut().enumerate() {
                let at = worker * classes + class;
                let (target, sent) = (cells.get(2 * class), cells.get(2 * class + 1));
                let granted = before.granted.get(at);
                // Below zero: packets were dropped that had been granted bytes. The grant is taken
                // back.
                let wanted = target.wrapping_sub(granted) as i64;
                let granted = if wanted < 0 { target } else { granted };
                back += wanted.min(0).unsigned_abs();
                // Grants that are not used yet (G - S) leave less room for new ones.
                let room = most.saturating_sub(granted.wrapping_sub(sent) as i64);
                demand[at] = wanted.min(room).max(0) as u64;
                *asked = asked.saturating_add(demand[at]);
                grant[at] = granted;
            }
        }
        back
    }

    /// The budget is filled into the classes; `by_class` keeps the demand that stays open. Returns
    /// what is left.
    fn fill_classes(&self, part: &mut Part, budget: u64) -> u64 {
        let by_class = &mut part.by_class[..self.classes];
        if matches!(part.sharing, Sharing::Levels | Sharing::Flows) {
            // In the order of the columns: levels; or first priority, then elastic, where further
            // columns hold at most what a discipline by class has overdrawn before.
            let mut left = budget;
            for (_, asked) in by_class {
                let met = (*asked).min(left);
                *asked -= met;
                left -= met;
            }
            left
        } else if by_class.iter().any(|(_, demand)| *demand > 0) {
            fill(by_class, budget)
        } else {
            budget
        }
    }

    /// What the elastic column got goes to its workers by weighted max-min: a worker weighs as much
    /// as it has elastic flows that wait. Returns what is left.
    fn fill_workers_by_flows(&self, part: &mut Part, level: &mut u64) -> u64 {
        let classes = self.classes;
        let Part { demand, grant, by_class, by_worker, .. } = part;
        let demands = || (0..self.workers).map(|worker| demand[worker * classes + ELASTIC]);
        for (worker, (asks, entry)) in demands().zip(by_worker.iter_mut()).enumerate() {
            // A worker that has just begun has not told its flows yet: then it is one.
            let told = self.told(worker, Told::Flows);
            *entry = (if told == 0 { 1 << 16 } else { told }, asks);
        }
        let budget = demands().fold(0, u64::saturating_add) - by_class[ELASTIC].1;
        let rest = fill(by_worker, budget);
        for (worker, (asks, (weight, open))) in demands().zip(by_worker.iter()).enumerate() {
            // A flow of this worker got this much; the largest of them is what FB grows by.
            // Nobody gets more than there is, however small the part of its host is that asks.
            let gets = asks - *open;
            let share = (u128::from(gets) << 16) / u128::from(*weight);
            *level = (*level).max(share.min(budget.into()) as u64);
            let at = worker * classes + ELASTIC;
            grant[at] = grant[at].wrapping_add(gets);
        }
        rest
    }

    /// What a class got goes to its workers by max-min: each round gives all that still demand the
    /// same, until the bytes are used up or too few to go round. Returns what is left.
    fn fill_workers(&self, part: &mut Part, class: usize) -> u64 {
        let (classes, workers) = (self.classes, self.workers);
        let Part { demand, grant, by_class, .. } = part;
        let all: u64 =
            (0..workers).map(|w| demand[w * classes + class]).fold(0, u64::saturating_add);
        let mut budget = all - by_class[class].1;
        let mut thirsty = (0..workers).filter(|w| demand[w * classes + class] > 0).count() as u64;
        while budget > 0 && thirsty > 0 {
            let level = budget / thirsty;
            if level == 0 {
                break;
            }
            for worker in 0..workers {
                let at = worker * classes + class;
                let gets = demand[at].min(level);
                if gets == 0 {
                    continue;
                }
                demand[at] -= gets;
                grant[at] = grant[at].wrapping_add(gets);
                budget -= gets;
                thirsty -= u64::from(demand[at] == 0);
            }
        }
        budget
    }
}

/// Fills `budget` into demands `(weight, demand)` by weighted max-min, leaves in each what is not
/// met, and returns what of the budget is left: less than one unit for each demand if some is not
/// met.
fn fill(demands: &mut [(u64, u64)], budget: u64) -> u64 {
    let mut left = budget;
    loop {
        let weights: u64 =
            demands.iter().filter(|(_, demand)| *demand > 0).map(|(weight, _)| weight).sum();
        if weights == 0 {
            return left;
        }
        let part =
            |weight: u64| (u128::from(left) * u128::from(weight) / u128::from(weights)) as u64;
        // Those that need less than their part get what they need, and the others share the rest
        // anew.
        let mut met = 0;
        for (weight, demand) in demands.iter_mut() {
            if *demand > 0 && *demand <= part(*weight) {
                met += *demand;
                *demand = 0;
            }
        }
        if met == 0 {
            let mut given = 0;
            for (weight, demand) in demands.iter_mut().filter(|(_, demand)| *demand > 0) {
                let gets = part(*weight);
                *demand -= gets;
                given += gets;
            }
            return left - given;
        }
        left -= met;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BitRate, Bytes, Nanos};

    /// Two workers ask for a packet each, and get it; the one has a 64th of the host.
    #[test]
    fn the_smallest_part_of_a_host_does_not_count_for_more_than_there_is() {
        let link = SharedLink::new(2, 2, Nanos::from_millis(5));
        link.set_rate(Some(BitRate::from_mbps(1_000)));
        let mut parts = [0, 1].map(|worker| link.part_by_flows(worker));
        for (part, weight) in parts.iter_mut().zip([1 << 10, 63 << 10]) {
            part.publish_flows(&link, [Bytes::ZERO, Bytes(1_538)], weight);
        }
        parts[0].at(&link, Nanos::SECOND);
        assert!(parts[0].may_send_elastic(Nanos::SECOND));
        assert_eq!(link.together().fair_bytes, Bytes(2 * 1_538));
    }

    #[test]
    fn budgets_are_filled_by_weight_up_to_the_demands() {
        let mut demands = [(1, 1_000), (2, 1_000), (1, 50), (7, 0)];
        assert_eq!(fill(&mut demands, 950), 0);
        assert_eq!(demands, [(1, 700), (2, 400), (1, 0), (7, 0)]);
        let mut demands = [(3, 10), (1, 5)];
        assert_eq!(fill(&mut demands, 100), 85);
        assert_eq!(demands, [(3, 0), (1, 0)]);
    }
}
