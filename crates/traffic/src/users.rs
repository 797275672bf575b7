//! People who browse and computers that fetch: when connections begin and how much each carries.
//!
//! | habit | connections | pause | model |
//! |---|---|---|---|
//! | web | a page: its text, lognormal (mean 10 710 bytes, σ 1.37, 100 bytes to 2 MB), and after it was parsed (0.13 s, exponential) its objects, all at once: Pareto many (shape 1.1, scale 2, at most 55, less 2; mean 5.64), each lognormal (mean 7 758 bytes, σ 2.36, 50 bytes to 2 MB) | 30 s, exponential | NGMN Alliance, "Radio Access Performance Evaluation Methodology", 2008, Annex A, Web browsing |
//! | update | a file, lognormal (mean 2 MB, σ 0.35, at most 5 MB) | 180 s, exponential | the same, FTP |
//!
//! Means and σ are those of the distributions before they are cut; what is beyond the bounds is
//! drawn anew. Each object has a connection of its own. A pause begins with the page, not when it
//! has come: all disciplines meet the same demand, however slow they are. So nobody waits for a
//! page before asking for the next, as people would.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use evenkeel_core::{Bytes, Nanos};

use crate::random::{Dice, ONE};
use crate::sizes::Sizes;
use crate::source::FLOW_STREAMS;

/// What somebody does again and again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Habit {
    /// Reads pages.
    Web,
    /// Fetches files.
    Update,
}

/// What [`Users`] are made from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UsersConfig {
    /// What they do.
    pub habit: Habit,
    /// How many they are, each on its own.
    pub users: u32,
    /// Nobody begins before.
    pub start: Nanos,
    /// No connection begins at or after.
    pub stop: Nanos,
    /// Seed of the run.
    pub seed: u64,
    /// Number of this source within the run.
    pub stream: u64,
}

/// A lognormal size within bounds, bytes.
#[derive(Clone, Copy)]
struct Within {
    mean: u64,
    shape_milli: u32,
    least: u64,
    most: u64,
}

const PAGE: Within = Within { mean: 10_710, shape_milli: 1_370, least: 100, most: 2_000_000 };
const OBJECT: Within = Within { mean: 7_758, shape_milli: 2_360, least: 50, most: 2_000_000 };
const FILE: Within = Within { mean: 2_000_000, shape_milli: 350, least: 1, most: 5_000_000 };
const PARSING: Nanos = Nanos::from_millis(130);
const READING: Nanos = Nanos::from_secs(30);
const BETWEEN_FILES: Nanos = Nanos::from_secs(180);
/// Scale, bound and shape in thousandths of the number of objects of a page, the scale included.
const OBJECTS: (u64, u64, u32) = (2, 55, 1_100);

impl Within {
    fn draw(self, dice: &mut Dice) -> Bytes {
        let sizes = Sizes::Lognormal { shape_milli: self.shape_milli };
        loop {
            let size = sizes.draw(Bytes(self.mean), dice);
            if (self.least..=self.most).contains(&size.0) {
                return size;
            }
        }
    }
}

/// All that many people ask for, in order of time: when, and how many bytes.
#[derive(Clone, Debug)]
pub struct Users {
    config: UsersConfig,
    dice: Vec<Dice>,
    /// What comes next: when, whose, and how long it is; `None`: that of a page or file.
    due: BinaryHeap<Reverse<(Nanos, u32, Option<Bytes>)>>,
}

impl Users {
    /// Before their first connection. Each comes with a pause that is under way.
    #[must_use]
    pub fn new(config: UsersConfig) -> Self {
        let stream = |user: u32| config.stream.wrapping_add(u64::from(user) * FLOW_STREAMS);
        let dice = (0..config.users).map(|user| Dice::new(config.seed, stream(user))).collect();
        let mut users = Self { config, dice, due: BinaryHeap::new() };
        for user in 0..config.users {
            let first = users.pause(user, config.start);
            users.due.push(Reverse((first, user, None)));
        }
        users
    }

    /// When somebody who began at `from` begins again.
    fn pause(&mut self, user: u32, from: Nanos) -> Nanos {
        let mean = match self.config.habit {
            Habit::Web => READING,
            Habit::Update => BETWEEN_FILES,
        };
        from.saturating_add(exponential(mean, &mut self.dice[user as usize]))
    }

    /// The first connection of a page or the only one of a file; those after it become due.
    fn begin(&mut self, user: u32, at: Nanos) -> Bytes {
        let dice = &mut self.dice[user as usize];
        let (size, ready) = match self.config.habit {
            Habit::Update => (FILE.draw(dice), at),
            Habit::Web => {
                let size = PAGE.draw(dice);
                let parsed = at.saturating_add(exponential(PARSING, dice));
                for _ in 0..objects(dice) {
                    let object = OBJECT.draw(dice);
                    self.due.push(Reverse((parsed, user, Some(object))));
                }
                (size, parsed)
            }
        };
        let next = self.pause(user, ready);
        self.due.push(Reverse((next, user, None)));
        size
    }
}

impl Iterator for Users {
    type Item = (Nanos, Bytes);

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((at, user, size)) = self.due.pop()?;
        if at >= self.config.stop {
            // Everything else is due later still.
            self.due.clear();
            return None;
        }
        Some((at, size.unwrap_or_else(|| self.begin(user, at))))
    }
}

fn exponential(mean: Nanos, dice: &mut Dice) -> Nanos {
    let product = u128::from(mean.0) * u128::from(dice.exponential()) / u128::from(ONE);
    Nanos(u64::try_from(product).unwrap_or(u64::MAX))
}

/// How many objects a page has.
fn objects(dice: &mut Dice) -> u64 {
    let (scale, most, shape_milli) = OBJECTS;
    // Its mean is scale x shape / (shape - 1). In thousandths, so that the rest decides by chance.
    let mean = scale * 1_000 * u64::from(shape_milli) / (u64::from(shape_milli) - 1_000);
    let drawn = Sizes::Pareto { shape_milli }.draw(Bytes(mean), dice).0.min(most * 1_000);
    (drawn.saturating_sub(scale * 1_000) + dice.within(0..1_000)) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(habit: Habit, users: u32, seconds: u64) -> UsersConfig {
        let (start, stop) = (Nanos::from_secs(5), Nanos::from_secs(5 + seconds));
        UsersConfig { habit, users, start, stop, seed: 4, stream: 2 }
    }

    /// Mean of a lognormal variate that is drawn anew beyond its bounds, by the trapezium rule.
    fn exact_mean(within: Within) -> f64 {
        let sigma = f64::from(within.shape_milli) / 1e3;
        let mu = (within.mean as f64).ln() - sigma * sigma / 2.0;
        let (low, high) = ((within.least as f64).ln(), (within.most as f64).ln());
        let step = (high - low) / 100_000.0;
        let (mut weight, mut sum) = (0.0, 0.0);
        for n in 0..=100_000 {
            let x = low + step * f64::from(n);
            let density = (-((x - mu) / sigma).powi(2) / 2.0).exp();
            weight += density;
            sum += density * x.exp();
        }
        sum / weight
    }

    #[test]
    fn sizes_have_the_means_of_the_distributions_that_were_cut() {
        for (within, tolerance) in [(PAGE, 0.02), (OBJECT, 0.05), (FILE, 0.01)] {
            let mut dice = Dice::new(3, 3);
            const N: u64 = 100_000;
            let sum: u64 = (0..N).map(|_| within.draw(&mut dice).0).sum();
            let (mean, exact) = (sum as f64 / N as f64, exact_mean(within));
            assert!((mean / exact - 1.0).abs() < tolerance, "{mean}, not {exact}");
        }
    }

    #[test]
    fn a_page_has_five_or_six_objects_on_average() {
        let mut dice = Dice::new(9, 0);
        let drawn: Vec<_> = (0..100_000).map(|_| objects(&mut dice)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&0), Some(&53)));
        let mean = drawn.iter().sum::<u64>() as f64 / 1e5;
        assert!((mean - 5.64).abs() < 0.12, "{mean}");
    }

    #[test]
    fn connections_come_in_order_as_often_as_the_pauses_say() {
        let web: Vec<_> = Users::new(config(Habit::Web, 200, 600)).collect();
        assert!(web.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert!(web[0].0 >= Nanos::from_secs(5) && web[web.len() - 1].0 < Nanos::from_secs(605));
        // 200 x 600 / 30.13 pages of 6.64 connections; standard deviation of a page's: 10.
        let expected = 200.0 * 600.0 / 30.13 * 6.64;
        assert!((web.len() as f64 / expected - 1.0).abs() < 0.08, "{} {expected}", web.len());
        let files = Users::new(config(Habit::Update, 200, 3_600)).count() as f64;
        assert!((files / 4_000.0 - 1.0).abs() < 0.05, "{files}");
    }

    #[test]
    fn users_are_independent_of_how_many_there_are() {
        let one: Vec<_> = Users::new(config(Habit::Web, 1, 600)).collect();
        let many: Vec<_> = Users::new(config(Habit::Web, 5, 600)).collect();
        assert!(one.iter().all(|connection| many.contains(connection)));
        assert_eq!(one, Users::new(config(Habit::Web, 1, 600)).collect::<Vec<_>>());
        assert_eq!(Users::new(config(Habit::Web, 0, 600)).next(), None);
    }
}
