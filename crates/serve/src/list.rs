//! A list that can be long: the flows that send most, or subscribers. It is read once for all who
//! look, and cut into pages, searched and ordered as asked.

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_control::{Client, ClientError, look};
use evenkeel_router::snapshot::BusyFlow;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::mark::now_ms;

/// Rows that are told at once at most.
pub(crate) const MOST: usize = 1_000;
/// A list is told as it was read for at least so long.
const FRESH: Duration = Duration::from_secs(4);
/// And for so many times as long as it took to read: a router with very many subscribers is asked
/// for them less often, however many look.
const REST: u32 = 3;

/// Which part of a list, and how it is ordered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Only rows that have this in one of their texts, whatever its case.
    #[serde(default)]
    search: String,
    /// Only rows of this link.
    link: Option<String>,
    /// The field that rows are ordered by.
    sort: Option<String>,
    order: Option<Order>,
    /// So many rows are left out before the first.
    #[serde(default)]
    pub(crate) offset: usize,
    /// How many at most.
    #[serde(default = "hundred", alias = "top")]
    limit: usize,
}

pub(crate) fn hundred() -> usize {
    100
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Order {
    Asc,
    Desc,
}

/// A field that rows can be ordered by. Texts go up unless told, numbers down; what has no number
/// comes last in either order.
pub(crate) enum Key<T> {
    Text(fn(&T) -> &str),
    Number(fn(&T) -> Option<f64>),
}

/// What a list is of.
pub(crate) trait Listed: Serialize + Send + Sync + Sized + 'static {
    /// What the list is called in answers.
    const NAME: &'static str;
    /// The fields that it can be ordered by. It is read in the order of the first.
    const KEYS: &'static [(&'static str, Key<Self>)];

    /// What is kept from one reading for the next.
    type Memory: Default + Send + std::fmt::Debug;

    /// Asks a router for all rows.
    fn read(router: &mut Client, memory: &mut Self::Memory) -> Result<Vec<Self>, ClientError>;

    fn link(&self) -> &str;
}

impl Listed for BusyFlow {
    type Memory = ();

    const NAME: &'static str = "flows";
    const KEYS: &'static [(&'static str, Key<Self>)] = &[
        ("bps", Key::Number(|flow| Some(flow.bps))),
        ("pps", Key::Number(|flow| Some(flow.pps))),
        ("flow", Key::Text(|flow| &flow.flow)),
        ("class", Key::Text(|flow| &flow.class)),
        ("link", Key::Text(|flow| &flow.link)),
        ("waiting_bytes", Key::Number(|flow| Some(flow.waiting_bytes as f64))),
    ];

    fn read(router: &mut Client, (): &mut ()) -> Result<Vec<Self>, ClientError> {
        // A router tells as many at its monitoring socket.
        router.busiest(MOST)
    }

    fn link(&self) -> &str {
        &self.link
    }
}

/// A subscriber in one direction.
#[derive(Debug, Serialize)]
pub(crate) struct Subscriber {
    pub(crate) name: String,
    pub(crate) parent: String,
    pub(crate) link: String,
    down: bool,
    pub(crate) bps: u64,
    pub(crate) cap_bps: Option<u64>,
    guarantee_bps: u64,
    pub(crate) waiting_packets: u64,
    pub(crate) dropped_pps: u64,
    pub(crate) p95_us: Option<u64>,
    pub(crate) rtt_us: Option<u64>,
    limit: Option<String>,
}

impl From<look::Busy> for Subscriber {
    fn from(look::Busy { seen, limit }: look::Busy) -> Self {
        Self {
            bps: seen.rate().0,
            p95_us: seen.delay(95).flatten().map(|delay| delay.0 / 1_000),
            dropped_pps: seen.per_second(seen.since.overflow + seen.since.standing).round() as u64,
            rtt_us: seen.now.rtt_us,
            name: seen.now.name,
            parent: seen.now.parent,
            link: seen.now.link,
            down: seen.now.down,
            cap_bps: seen.now.cap_bps,
            guarantee_bps: seen.now.guarantee_bps,
            waiting_packets: seen.now.backlog_packets,
            limit,
        }
    }
}

impl Listed for Subscriber {
    type Memory = look::Again;

    const NAME: &'static str = "subscribers";
    const KEYS: &'static [(&'static str, Key<Self>)] = &[
        ("bps", Key::Number(|one| Some(one.bps as f64))),
        ("name", Key::Text(|one| &one.name)),
        ("parent", Key::Text(|one| &one.parent)),
        ("link", Key::Text(|one| &one.link)),
        ("cap_bps", Key::Number(|one| one.cap_bps.map(|bps| bps as f64))),
        ("guarantee_bps", Key::Number(|one| Some(one.guarantee_bps as f64))),
        ("waiting_packets", Key::Number(|one| Some(one.waiting_packets as f64))),
        ("dropped_pps", Key::Number(|one| Some(one.dropped_pps as f64))),
        ("p95_us", Key::Number(|one| one.p95_us.map(|us| us as f64))),
        ("rtt_us", Key::Number(|one| one.rtt_us.map(|us| us as f64))),
        ("limit", Key::Text(|one| one.limit.as_deref().unwrap_or_default())),
    ];

    fn read(router: &mut Client, memory: &mut look::Again) -> Result<Vec<Self>, ClientError> {
        Ok(memory.busiest(router)?.into_iter().map(Self::from).collect())
    }

    fn link(&self) -> &str {
        &self.link
    }
}

/// The lists of a router, as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) flows: List<BusyFlow>,
    pub(crate) subscribers: List<Subscriber>,
}

/// A list that is being read keeps the others waiting who want it: they need not read it again.
pub(crate) type List<T> = Arc<Mutex<Known<T>>>;

/// What is known of a list.
#[derive(Debug)]
pub(crate) struct Known<T: Listed> {
    pub(crate) kept: Option<Kept<T>>,
    memory: T::Memory,
}

impl<T: Listed> Default for Known<T> {
    fn default() -> Self {
        Self { kept: None, memory: T::Memory::default() }
    }
}

impl<T: Listed> Known<T> {
    pub(crate) fn read(&mut self, socket: &Path) -> Result<Kept<T>, ClientError> {
        let begun = Instant::now();
        let rows = T::read(&mut Client::connect(socket)?, &mut self.memory)?;
        let kept = Kept::of(rows, begun);
        self.kept = Some(kept.clone());
        Ok(kept)
    }
}

/// A list as it was read.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    pub(crate) time_ms: u64,
    pub(crate) old_at: Instant,
    pub(crate) rows: Arc<[T]>,
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self { rows: Arc::clone(&self.rows), ..*self }
    }
}

impl<T: Listed> Kept<T> {
    /// What it took some time to read.
    fn of(rows: Vec<T>, begun: Instant) -> Self {
        let (now, took) = (Instant::now(), begun.elapsed());
        Self { time_ms: now_ms(), old_at: now + FRESH.max(took * REST), rows: rows.into() }
    }

    /// The part that is wanted, and how many rows match.
    pub(crate) fn page(&self, wanted: &Wanted) -> Result<(Vec<&T>, usize), String> {
        let (_, key) = match &wanted.sort {
            None => &T::KEYS[0],
            Some(sort) => T::KEYS.iter().find(|(name, _)| name == sort).ok_or_else(|| {
                let names: Vec<_> = T::KEYS.iter().map(|(name, _)| *name).collect();
                format!("cannot be ordered by {sort:?}, only by {}", names.join(", "))
            })?,
        };
        let search = wanted.search.to_lowercase();
        let has = |row: &T| {
            search.is_empty()
                || T::KEYS.iter().any(|(_, key)| match key {
                    Key::Text(of) => of(row).to_lowercase().contains(&search),
                    Key::Number(_) => false,
                })
        };
        let of_link = |row: &T| wanted.link.as_ref().is_none_or(|link| row.link() == link);
        let mut rows: Vec<&T> = self.rows.iter().filter(|row| of_link(row) && has(row)).collect();
        let directed = |order: Ordering, unless_told: Order| match wanted.order {
            None if unless_told == Order::Asc => order,
            Some(Order::Asc) => order,
            _ => order.reverse(),
        };
        // What is alike stays in the order in which it was read: pages fit together.
        match key {
            Key::Text(of) => rows.sort_by(|a, b| directed(of(a).cmp(of(b)), Order::Asc)),
            Key::Number(of) => rows.sort_by(|a, b| match (of(a), of(b)) {
                (Some(a), Some(b)) => directed(a.total_cmp(&b), Order::Desc),
                (a, b) => b.is_some().cmp(&a.is_some()),
            }),
        }
        let matching = rows.len();
        let page = rows.into_iter().skip(wanted.offset).take(wanted.limit.min(MOST)).collect();
        Ok((page, matching))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::extract::Query;

    fn flow(flow: &str, class: &str, bps: f64) -> BusyFlow {
        let (flow, class) = (flow.into(), class.into());
        BusyFlow { flow, class, bps, link: "wan".into(), ..BusyFlow::default() }
    }

    fn kept<T: Listed>(rows: Vec<T>) -> Kept<T> {
        Kept::of(rows, Instant::now())
    }

    fn wanted(text: &str) -> Wanted {
        let uri = format!("http://localhost/?{text}").parse().unwrap();
        Query::try_from_uri(&uri).map(|Query(wanted)| wanted).unwrap()
    }

    fn names<'a>(kept: &'a Kept<BusyFlow>, text: &str) -> Vec<&'a str> {
        let (page, _) = kept.page(&wanted(text)).unwrap();
        page.into_iter().map(|flow| flow.flow.as_str()).collect()
    }

    #[test]
    fn pages_fit_together_and_are_ordered_and_searched() {
        let kept = kept(vec![flow("c", "Bulk", 3.0), flow("a", "voice", 2.0), flow("b", "x", 2.0)]);
        assert_eq!(names(&kept, ""), ["c", "a", "b"]);
        assert_eq!(names(&kept, "limit=2"), ["c", "a"]);
        assert_eq!(names(&kept, "limit=2&offset=2"), ["b"]);
        assert_eq!(names(&kept, "offset=9"), Vec::<&str>::new());
        assert_eq!(names(&kept, "sort=flow"), ["a", "b", "c"]);
        assert_eq!(names(&kept, "sort=flow&order=desc"), ["c", "b", "a"]);
        assert_eq!(names(&kept, "sort=bps&order=asc"), ["a", "b", "c"]);
        assert_eq!(names(&kept, "search=BULK"), ["c"]);
        assert_eq!(names(&kept, "link=lan"), Vec::<&str>::new());
        assert_eq!(kept.page(&wanted("search=o&limit=0")).unwrap().1, 1);
        let why = kept.page(&wanted("sort=size")).unwrap_err();
        assert!(why.contains("\"size\"") && why.contains("bps, pps, flow"), "{why}");
    }

    #[test]
    fn what_has_no_number_comes_last_in_either_order() {
        let with = |name: &str, cap_bps| {
            let now = evenkeel_router::snapshot::NodeSnapshot {
                name: name.into(),
                cap_bps,
                ..Default::default()
            };
            Subscriber::from(look::Busy { seen: look::Seen { now, ..<_>::default() }, limit: None })
        };
        let kept = kept(vec![with("none", None), with("slow", Some(1)), with("fast", Some(2))]);
        for (order, expected) in
            [("asc", ["slow", "fast", "none"]), ("desc", ["fast", "slow", "none"])]
        {
            let (page, _) = kept.page(&wanted(&format!("sort=cap_bps&order={order}"))).unwrap();
            let names: Vec<_> = page.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(names, expected, "{order}");
        }
    }
}
