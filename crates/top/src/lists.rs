//! Flows and subscribers: one by one, those that send most.

use evenkeel_control::look::{Again, Busy};
use evenkeel_control::{Client, ClientError};
use evenkeel_router::snapshot::BusyFlow;

use crate::words::{bits, delay, part, per_second};

/// Flows that are asked for: what a monitoring socket tells.
const FLOWS: usize = 1_000;

/// What is below the links.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum View {
    #[default]
    Classes,
    Flows,
    Subscribers,
}

impl View {
    pub(crate) const ALL: [Self; 3] = [Self::Classes, Self::Flows, Self::Subscribers];

    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Classes => Self::Flows,
            Self::Flows => Self::Subscribers,
            Self::Subscribers => Self::Classes,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Flows => "flows",
            Self::Subscribers => "subscribers",
        }
    }
}

/// Rows of names and numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Listing {
    /// Of the names, then of the numbers.
    pub(crate) headings: Vec<&'static str>,
    /// How many of the columns are names.
    pub(crate) names: usize,
    rows: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    cells: Vec<String>,
    /// By column of numbers.
    numbers: Vec<f64>,
}

impl Listing {
    /// What a router tells of a view; `None`: it is no list.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub(crate) fn of(
        view: View,
        client: &mut Client,
        people: &mut Again,
    ) -> Result<Option<Self>, ClientError> {
        Ok(match view {
            View::Classes => None,
            View::Flows => Some(Self::flows(&client.busiest(FLOWS)?)),
            View::Subscribers => Some(Self::subscribers(&people.busiest(client)?)),
        })
    }

    pub(crate) fn flows(flows: &[BusyFlow]) -> Self {
        let row = |flow: &BusyFlow| Entry {
            cells: vec![
                flow.flow.clone(),
                flow.link.clone(),
                flow.class.clone(),
                bits(flow.bps),
                per_second(flow.pps),
                flow.waiting_bytes.to_string(),
            ],
            numbers: vec![flow.bps, flow.pps, flow.waiting_bytes as f64],
        };
        Self {
            headings: vec!["flow", "link", "class", "sent", "packets", "waiting"],
            names: 3,
            rows: flows.iter().map(row).collect(),
        }
    }

    pub(crate) fn subscribers(people: &[Busy]) -> Self {
        let row = |one: &Busy| {
            let (node, sent) = (&one.seen.now, one.seen.rate().0 as f64);
            let dropped = one.seen.per_second(one.seen.since.overflow + one.seen.since.standing);
            let wait = one
                .seen
                .delay(95)
                .map(|wait| wait.map_or(f64::INFINITY, |wait| wait.0 as f64 / 1e3));
            let rtt = node.rtt_us.map(|us| us as f64);
            let used = node.cap_bps.filter(|cap| *cap > 0).map(|cap| sent / cap as f64);
            Entry {
                cells: vec![
                    node.name.clone(),
                    node.parent.clone(),
                    node.link.clone(),
                    one.limit.clone().unwrap_or_else(|| "asks for no more".to_owned()),
                    bits(sent),
                    used.map_or_else(|| "-".to_owned(), part),
                    delay(wait),
                    delay(rtt),
                    per_second(dropped),
                ],
                numbers: [Some(sent), used, wait, rtt, Some(dropped)]
                    .map(|number| number.unwrap_or(-1.0))
                    .to_vec(),
            }
        };
        Self {
            headings: vec![
                "name", "behind", "link", "limit", "sent", "of cap", "p95", "rtt", "dropped",
            ],
            names: 4,
            rows: people.iter().map(row).collect(),
        }
    }

    /// The name of a column of numbers, and how many there are.
    pub(crate) fn column(&self, at: usize) -> (&'static str, usize) {
        let numbers = self.headings.get(self.names..).unwrap_or_default();
        (numbers.get(at % numbers.len().max(1)).copied().unwrap_or(""), numbers.len())
    }

    /// The rows of which a name holds `filter`, those with the largest number in a column first.
    pub(crate) fn ordered(&self, column: usize, reversed: bool, filter: &str) -> Vec<&[String]> {
        let filter = filter.to_lowercase();
        let fits = |row: &&Entry| {
            row.cells.iter().take(self.names).any(|cell| cell.to_lowercase().contains(&filter))
        };
        let mut rows: Vec<&Entry> = self.rows.iter().filter(fits).collect();
        let number = |row: &Entry| row.numbers.get(column % row.numbers.len().max(1)).copied();
        rows.sort_by(|a, b| number(b).unwrap_or(0.0).total_cmp(&number(a).unwrap_or(0.0)));
        if reversed {
            rows.reverse();
        }
        rows.into_iter().map(|row| row.cells.as_slice()).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn flows() -> Listing {
        let flow = |flow: &str, bps: f64, pps: f64| BusyFlow {
            link: "wan".to_owned(),
            flow: flow.to_owned(),
            class: "rest".to_owned(),
            bps,
            pps,
            waiting_bytes: 0,
            seconds: 5.0,
        };
        Listing::flows(&[flow("10.0.0.1>a", 5e6, 400.0), flow("10.0.0.2>b", 1e6, 900.0)])
    }

    #[test]
    fn rows_are_ordered_by_any_number_and_found_by_any_name() {
        let listing = flows();
        let first = |column, reversed, filter| {
            listing.ordered(column, reversed, filter).first().map(|cells| cells[0].clone())
        };
        assert_eq!(first(0, false, "").as_deref(), Some("10.0.0.1>a"));
        assert_eq!(first(1, false, "").as_deref(), Some("10.0.0.2>b"));
        assert_eq!(first(0, true, "").as_deref(), Some("10.0.0.2>b"));
        assert_eq!(first(0, false, "0.2").as_deref(), Some("10.0.0.2>b"));
        assert_eq!(first(0, false, "REST").as_deref(), Some("10.0.0.1>a"));
        assert_eq!(first(0, false, "5.00"), None, "numbers are no names");
        assert_eq!((listing.column(1), listing.column(4)), (("packets", 3), ("packets", 3)));
        assert_eq!(Listing::default().column(0), ("", 0));
    }
}
