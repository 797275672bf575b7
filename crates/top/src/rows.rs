//! Rows of links and classes: ordered, filtered, written.

use std::fmt::Write as _;

use evenkeel_control::rates::{Rates, RouterRates};

use crate::words::{bits, delay, part, per_second};

/// A link, or a class of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) link: String,
    /// Of a link as a whole: its discipline.
    pub(crate) class: String,
    pub(crate) is_link: bool,
    pub(crate) limit_bps: Option<u64>,
    pub(crate) rates: Rates,
}

/// What rows are ordered by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// The file's.
    File,
    Sent,
    Offered,
    P50,
    P99,
    Dropped,
    Waiting,
}

impl Order {
    pub(crate) const ALL: [Self; 7] =
        [Self::File, Self::Sent, Self::Offered, Self::P50, Self::P99, Self::Dropped, Self::Waiting];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Sent => "sent",
            Self::Offered => "offered",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Dropped => "dropped",
            Self::Waiting => "waiting",
        }
    }

    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    fn key(self, rates: &Rates) -> f64 {
        match self {
            Self::File => 0.0,
            Self::Sent => rates.sent_bps,
            Self::Offered => rates.offered_bps,
            Self::P50 => rates.p50_us.unwrap_or(-1.0),
            Self::P99 => rates.p99_us.unwrap_or(-1.0),
            Self::Dropped => rates.dropped_pps,
            Self::Waiting => rates.queued_packets as f64,
        }
    }
}

/// The headings of [`Row::cells`].
pub(crate) const HEADINGS: [&str; 10] =
    ["link", "class", "sent", "of limit", "offered", "p50", "p99", "dropped", "marked", "waiting"];

impl Row {
    pub(crate) fn cells(&self) -> [String; 10] {
        let of = &self.rates;
        let used = self.limit_bps.filter(|limit| *limit > 0);
        [
            self.link.clone(),
            self.class.clone(),
            bits(of.sent_bps),
            used.map_or_else(|| "-".to_owned(), |limit| part(of.sent_bps / limit as f64)),
            bits(of.offered_bps),
            delay(of.p50_us),
            delay(of.p99_us),
            per_second(of.dropped_pps),
            per_second(of.marked_pps),
            of.queued_packets.to_string(),
        ]
    }
}

/// The links.
pub(crate) fn links(rates: &RouterRates) -> Vec<Row> {
    let row = |link: &evenkeel_control::rates::LinkRates| Row {
        link: link.link.clone(),
        class: format!("({})", link.discipline),
        is_link: true,
        limit_bps: link.limit_bps,
        rates: link.all,
    };
    rates.links.iter().map(row).collect()
}

/// The classes of all links whose names, or whose links' names, contain `filter`; most first unless
/// it is the file's order, or `reversed`.
pub(crate) fn classes(rates: &RouterRates, order: Order, reversed: bool, filter: &str) -> Vec<Row> {
    let filter = filter.to_lowercase();
    let fits = |row: &Row| {
        row.class.to_lowercase().contains(&filter) || row.link.to_lowercase().contains(&filter)
    };
    let of_link = |link: &evenkeel_control::rates::LinkRates| {
        let (name, limit_bps) = (link.link.clone(), link.limit_bps);
        let row = move |class: &evenkeel_control::rates::ClassRates| Row {
            link: name.clone(),
            class: class.class.clone(),
            is_link: false,
            limit_bps,
            rates: class.rates,
        };
        link.classes.iter().map(row).collect::<Vec<_>>()
    };
    let mut rows: Vec<Row> = rates.links.iter().flat_map(of_link).filter(fits).collect();
    if order != Order::File {
        rows.sort_by(|a, b| order.key(&b.rates).total_cmp(&order.key(&a.rates)));
    }
    if reversed {
        rows.reverse();
    }
    rows
}

/// A window as one table: each link, then its classes.
#[must_use]
pub fn plain(rates: &RouterRates, link: Option<&str>) -> String {
    let classes = classes(rates, Order::File, false, "");
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for of in links(rates).iter().filter(|of| link.is_none_or(|link| link == of.link)) {
        rows.push(of.cells());
        rows.extend(classes.iter().filter(|class| class.link == of.link).map(Row::cells));
    }
    let widths: [usize; 10] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = match column {
                0 | 1 => write!(line, "{gap}{cell:<width$}"),
                _ => write!(line, "{gap}{cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use evenkeel_control::rates::{ClassRates, LinkRates};

    pub(crate) fn rates() -> RouterRates {
        let class = |name: &str, mbit: f64, p99_us: Option<f64>, dropped_pps: f64| ClassRates {
            class: name.to_owned(),
            rates: Rates { sent_bps: mbit * 1e6, p99_us, dropped_pps, ..Rates::default() },
        };
        let link = |name: &str, classes: Vec<ClassRates>| LinkRates {
            link: name.to_owned(),
            discipline: "pdrr".to_owned(),
            limit_bps: Some(20_000_000),
            all: Rates { sent_bps: 19e6, queued_packets: 7, ..Rates::default() },
            classes,
            ..LinkRates::default()
        };
        let wan = vec![class("rest", 12.0, Some(21_000.0), 0.0), class("voice", 0.1, None, 0.0)];
        let lan = vec![class("rest", 17.0, Some(900.0), 3.0)];
        RouterRates { links: vec![link("wan", wan), link("lan", lan)], ..RouterRates::default() }
    }

    fn names(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| format!("{}.{}", row.link, row.class)).collect()
    }

    #[test]
    fn classes_are_ordered_and_filtered() {
        let of = |order, reversed, filter| names(&classes(&rates(), order, reversed, filter));
        assert_eq!(of(Order::File, false, ""), ["wan.rest", "wan.voice", "lan.rest"]);
        assert_eq!(of(Order::Sent, false, ""), ["lan.rest", "wan.rest", "wan.voice"]);
        assert_eq!(of(Order::P99, false, ""), ["wan.rest", "lan.rest", "wan.voice"]);
        assert_eq!(of(Order::Sent, true, ""), ["wan.voice", "wan.rest", "lan.rest"]);
        assert_eq!(of(Order::Dropped, false, "VOI"), ["wan.voice"]);
        assert_eq!(of(Order::File, false, "lan"), ["lan.rest"]);
        let mut order = Order::File;
        for _ in Order::ALL {
            order = order.next();
        }
        assert_eq!(order, Order::File);
    }

    #[test]
    fn a_pipe_gets_one_table() {
        let table = plain(&rates(), None);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 1 + 2 + 3);
        assert!(lines[0].starts_with("link  class"), "{table}");
        assert!(lines[1].starts_with("wan   (pdrr)  19.0 Mbit/s      95 %"), "{table}");
        assert!(lines[2].contains("21.0 ms"), "{table}");
        assert_eq!(plain(&rates(), Some("lan")).lines().count(), 3);
    }
}
