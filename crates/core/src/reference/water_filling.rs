//! Water filling: the exact max-min fair allocation.
//!
//! No demand can get more without taking it from one that has no more by weight. Source: Bertsekas
//! and Gallager, "Data Networks", 6.5.2; for a polled core, first principles (cycles spent on
//! admitted, polled and refused packets add up to the core's).
//!
//! References in `f64`, to hold droppers and schedulers against; not for the packet path. Cost: n
//! log n for shares of one resource, some dozens of such fillings for a polled core and for two
//! resources.

use alloc::vec;
use alloc::vec::Vec;

/// Halvings of an interval: to the last bit of an `f64`.
const HALVINGS: u32 = 100;

/// Shares of `capacity` among demands by weight; a demand that is below its share gets what it asks
/// for.
///
/// ```
/// use evenkeel_core::reference::max_min;
/// assert_eq!(max_min(10.0, &[(8.0, 1.0), (1.0, 1.0), (8.0, 2.0)]), [3.0, 1.0, 6.0]);
/// ```
#[must_use]
pub fn max_min(capacity: f64, demands: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by(|a, b| {
        (demands[*a].0 / demands[*a].1).total_cmp(&(demands[*b].0 / demands[*b].1))
    });
    let mut weights: f64 = demands.iter().map(|(_, weight)| weight).sum();
    let mut left = capacity;
    let mut shares = vec![0.0; demands.len()];
    for index in order {
        let (demand, weight) = demands[index];
        let share = demand.min(left * weight / weights);
        shares[index] = share;
        left -= share;
        weights -= weight;
    }
    shares
}

/// Two levels: groups share by their weights, each group's flows share what it got. A demand is
/// (how much, weight, group).
#[must_use]
pub fn max_min_of_groups(
    capacity: f64,
    demands: &[(f64, f64, usize)],
    weights: &[f64],
) -> Vec<f64> {
    let of = |group: usize| demands.iter().enumerate().filter(move |(_, demand)| demand.2 == group);
    let totals = |group: usize| of(group).map(|(_, demand)| demand.0).sum::<f64>();
    let groups: Vec<(f64, f64)> =
        weights.iter().enumerate().map(|(g, w)| (totals(g), *w)).collect();
    let mut shares = vec![0.0; demands.len()];
    for (group, budget) in max_min(capacity, &groups).into_iter().enumerate() {
        let inside: Vec<(f64, f64)> = of(group).map(|(_, demand)| (demand.0, demand.1)).collect();
        for ((index, _), share) in of(group).zip(max_min(budget, &inside)) {
            shares[index] = share;
        }
    }
    shares
}

/// A flow through a polled core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreFlow {
    /// Packets per second that arrive at the ring.
    pub offered: f64,
    /// Cycles of an admitted packet, on top of those of polling it.
    pub cost: f64,
    /// Its weight.
    pub weight: f64,
}

/// What a core that polls a ring gives to its flows at best.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreShares {
    /// The part of the arriving packets that is polled; the rest is lost at the ring.
    pub polled: f64,
    /// Cycles per second of a flow of weight 1 that is limited; infinite if none is.
    pub level: f64,
    /// Packets per second admitted of each flow.
    pub admitted: Vec<f64>,
}

/// Cycles of a core: in a second, for each packet fetched, and besides for each one refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreBudget {
    /// Cycles per second.
    pub cycles: f64,
    /// Cycles per polled packet: fetching and judging.
    pub poll: f64,
    /// Cycles per refused packet, besides.
    pub refuse: f64,
}

impl CoreBudget {
    /// The max-min shares if the part `polled` of all arrivals is fetched: the level f of
    /// `sum a_i c_i + p P + d (P - sum a_i) = C` with `a_i = min(P_i, w_i f / c_i)`.
    #[must_use]
    pub fn shares_at(&self, flows: &[CoreFlow], polled: f64) -> CoreShares {
        let admitted = |level: f64| -> Vec<f64> {
            flows.iter().map(|f| (f.offered * polled).min(level * f.weight / f.cost)).collect()
        };
        let arrivals: f64 = flows.iter().map(|flow| flow.offered).sum::<f64>() * polled;
        let spent = |admitted: &[f64]| {
            let useful: f64 = admitted.iter().zip(flows).map(|(a, flow)| a * flow.cost).sum();
            useful + self.poll * arrivals + self.refuse * (arrivals - admitted.iter().sum::<f64>())
        };
        let all = admitted(f64::INFINITY);
        if spent(&all) <= self.cycles {
            return CoreShares { polled, level: f64::INFINITY, admitted: all };
        }
        // A refused packet costs less than an admitted one, so what is spent rises with the level.
        let (mut low, mut high) = (0.0, self.cycles);
        for _ in 0..HALVINGS {
            let level = (low + high) / 2.0;
            if spent(&admitted(level)) > self.cycles { high = level } else { low = level }
        }
        CoreShares { polled, level: low, admitted: admitted(low) }
    }

    /// The fairest point: a flow below the level loses nothing, not even at the ring; if no flow is
    /// below it, no more is polled than is needed to give every flow the level, because every
    /// refused packet was polled in vain.
    #[must_use]
    pub fn shares(&self, flows: &[CoreFlow]) -> CoreShares {
        let below = |shares: &CoreShares| {
            flows.iter().any(|f| f.offered * shares.polled * f.cost < shares.level * f.weight)
        };
        let all = self.shares_at(flows, 1.0);
        if below(&all) {
            return all;
        }
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let polled = (low + high) / 2.0;
            if below(&self.shares_at(flows, polled)) { low = polled } else { high = polled }
        }
        self.shares_at(flows, high)
    }
}

/// A flow that needs both a core and a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoFlow {
    /// Packets per second that it offers.
    pub offered: f64,
    /// Cycles of a packet.
    pub cost: f64,
    /// Bits of a packet.
    pub bits: f64,
}

/// Both resources: packets per second of each flow such that it has the max-min share of one of
/// them, its bottleneck, or all it offers. `a_i = min(offered, f / c_i, g / b_i)` with the largest
/// levels f of cycles and g of bits.
#[must_use]
pub fn max_min_of_two(cycles: f64, bits: f64, flows: &[TwoFlow]) -> Vec<f64> {
    // Each resource takes what the other lets through as demands, in turn; what one gives up the
    // other hands out.
    let (mut by_core, mut by_link) =
        (vec![f64::INFINITY; flows.len()], vec![f64::INFINITY; flows.len()]);
    let filled = |capacity: f64, need: &dyn Fn(&TwoFlow) -> f64, other: &[f64]| -> Vec<f64> {
        let demand = |(flow, other): (&TwoFlow, &f64)| flow.offered.min(*other) * need(flow);
        let demands: Vec<(f64, f64)> =
            flows.iter().zip(other).map(|pair| (demand(pair), 1.0)).collect();
        let shares = max_min(capacity, &demands);
        // The limit of this resource alone: flows that got all they asked for are not limited by
        // it.
        let level = shares
            .iter()
            .zip(&demands)
            .filter(|(s, d)| **s < d.0)
            .map(|(s, _)| *s)
            .fold(0.0, f64::max);
        let level = if level == 0.0 { f64::INFINITY } else { level };
        flows.iter().map(|flow| level / need(flow)).collect()
    };
    for _ in 0..HALVINGS {
        by_core = filled(cycles, &|flow| flow.cost, &by_link);
        by_link = filled(bits, &|flow| flow.bits, &by_core);
    }
    let limits = by_core.iter().zip(&by_link).map(|(core, link)| core.min(*link));
    flows.iter().zip(limits).map(|(flow, limit)| flow.offered.min(limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demo() -> Vec<CoreFlow> {
        let flow = |n: usize| CoreFlow {
            offered: 14.88e6 / 20.0,
            cost: if n < 18 { 354.5 } else { 3545.0 },
            weight: 1.0,
        };
        (0..20).map(flow).collect()
    }

    fn close(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() < within, "{a} is not {b}");
    }

    #[test]
    fn the_published_demo_from_first_principles() {
        let total = |shares: &CoreShares| shares.admitted.iter().sum::<f64>() / 1e6;
        let free = CoreBudget { cycles: 2.6e9, poll: 0.0, refuse: 0.0 };
        close(total(&free.shares(&demo())), 6.67, 0.01);
        // Every arrival polled and judged at 26 cycles.
        let judged = CoreBudget { poll: 26.0, ..free };
        let all = judged.shares_at(&demo(), 1.0);
        close(total(&all), 5.68, 0.01);
        close(all.admitted[0] / 1e3, 312.0, 1.0);
        // As few as are needed: more is left for each.
        let least = judged.shares(&demo());
        close(total(&least), 6.24, 0.05);
        assert!(least.level > all.level && least.polled < 0.5);
        close(least.admitted[0], 14.88e6 / 20.0 * least.polled, 1.0);
    }

    #[test]
    fn the_authors_table_of_cycle_shares() {
        // Three flows at equal packet rates, costs 5, 3 and 1, 0.5 for a refused packet.
        let core = CoreBudget { cycles: 1.0, poll: 0.0, refuse: 0.5 };
        for (load, published) in [
            (1.2, [0.445, 0.400, 0.133]),
            (2.0, [0.320, 0.320, 0.222]),
            (4.0, [0.148, 0.150, 0.151]),
        ] {
            let costs = [5.0, 3.0, 1.0];
            let flows: Vec<CoreFlow> = costs
                .iter()
                .map(|cost| CoreFlow { offered: load / 9.0, cost: *cost, weight: 1.0 })
                .collect();
            let shares = core.shares_at(&flows, 1.0);
            for ((admitted, cost), published) in shares.admitted.iter().zip(costs).zip(published) {
                close(admitted * cost, published, 0.003);
            }
        }
    }

    #[test]
    fn a_flow_below_its_share_keeps_everything_polled() {
        let core = CoreBudget { cycles: 2.6e9, poll: 26.0, refuse: 10.0 };
        let mut flows = demo();
        flows.push(CoreFlow { offered: 1_000.0, cost: 354.5, weight: 1.0 });
        let shares = core.shares(&flows);
        assert_eq!(shares.polled, 1.0);
        close(shares.admitted[20], 1_000.0, 1e-6);
    }

    #[test]
    fn groups_share_before_flows_do() {
        let shares = max_min_of_groups(
            12.0,
            &[(10.0, 1.0, 0), (10.0, 3.0, 0), (1.0, 1.0, 1), (10.0, 1.0, 1), (0.5, 1.0, 2)],
            &[1.0, 1.0, 4.0],
        );
        for (share, exact) in shares.iter().zip([1.4375, 4.3125, 1.0, 4.75, 0.5]) {
            close(*share, exact, 1e-9);
        }
    }

    #[test]
    fn each_flow_has_its_share_of_its_own_bottleneck() {
        // Two flows of large cheap packets, two of small dear ones, a small one of either kind.
        let large = TwoFlow { offered: 1e6, cost: 300.0, bits: 12_000.0 };
        let dear = TwoFlow { offered: 1e6, cost: 3_000.0, bits: 700.0 };
        let small = TwoFlow { offered: 1e3, ..large };
        let admitted = max_min_of_two(1e9, 1e9, &[large, large, dear, dear, small]);
        close(admitted[4], 1e3, 1e-6);
        close(admitted[0], admitted[1], 1e-6);
        let bits: f64 = admitted[0] * 24_000.0 + admitted[2] * 1_400.0 + 12e6;
        let cycles: f64 = admitted[0] * 600.0 + admitted[2] * 6_000.0 + 3e5;
        close(bits, 1e9, 1e3);
        close(cycles, 1e9, 1e3);
    }
}
