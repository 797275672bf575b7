//! PUF, per-user fairness: no user starts more than N flows between two estimates of the fair rate.
//!
//! Source: Domzal et al., GLOBECOM 2020. A user is a source address, or a prefix of it; or the
//! destination, or the end that lies inside, which are this project's: on the way to users, sources
//! are servers, and one server's address would have the quota of one user for a whole household.
//! Where a tree says whose a packet is, a user is a subscriber; all whom it does not know are one.
//! The paper says both "at most N" and "dropped if the counter is higher than N"; here a flow is
//! admitted if the count is below N, and then counted.
//!
//! | symbol | here |
//! |---|---|
//! | N | [`PerUserConfig::flows`] |
//! | PUFL | `table`: user -> flows in this interval |
//!
//! Only admitted flows are counted, so the table holds as many users as flows were let in since the
//! last estimate, whatever is offered. Users that find it full share one of [`SHARED`] counters:
//! none of them gets more than N, some get less. Constant expected time; emptied in constant time,
//! by the number of the interval.
//!
//! Flows that enter by GPFL or ECM are neither counted nor limited.
//!
//! **Several workers** of a link count in one table (`share/users.rs`), so that N holds over all of
//! them, and intervals are the link's. What a worker has let in itself it keeps as well, to tell,
//! and takes along when it goes on with another table.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::config::LIST_RANGE;
use super::emergency::{PrefixList, network};
use super::{Admission, UserAdmissions};
use crate::flow_table::{EntryId, Table, fold};
use crate::prefix::Prefix;
use crate::settings::SettingError;
use crate::share::Users;
use crate::units::Nanos;
use crate::{settings, words};

words! {
    /// Whose flow a flow is (PUF).
    pub enum UserBy {
        /// its source's; on a link towards users those are servers
        #[default]
        Source = "source",
        /// its destination's
        Destination = "destination",
        /// that of its end that lies in `[flows] inside`; its source's if both or neither do
        Inside = "inside",
        /// that of the subscriber whose it is; the link needs a `[[tree]]`
        Subscriber = "subscriber",
    }
}

settings! {
    /// PUF: how many flows a user may start between two estimates of the fair rate.
    pub struct PerUserConfig: "" {
        /// PUF: limits the flows that a user may start between two estimates of the fair rate.
        live on as per_user: bool = false;
        /// N: how many, with `per_user`.
        live flows as user_flows: u32 = 2, in 1..=65_535, counting "flows";
        /// Whose flow a flow is, with `per_user`.
        live by as user: UserBy = UserBy::Source;
        /// Bits of an IPv4 address that make a user.
        live ipv4_prefix as user_ipv4_prefix: u8 = 32, in 1..=32, counting "bits";
        /// Bits of an IPv6 address that make a user: those a subscriber cannot choose.
        live ipv6_prefix as user_ipv6_prefix: u8 = 64, in 1..=128, counting "bits";
        /// Users told apart in an interval; beyond that users share counters. A change empties the
        /// table.
        live users: u32 = 16_384, in LIST_RANGE, counting "users";
    }
    plain {
        /// The hosts on the inside.
        inside: Vec<Prefix> = Vec::new();
    }
}

/// Counters for users that the table has no room for.
const SHARED: usize = 1_024;
/// Users that a view tells.
pub const USERS_TOLD: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Count {
    interval: u32,
    flows: u32,
}

/// The list of users.
#[derive(Clone, Debug)]
pub(super) struct PerUser {
    pub(super) config: PerUserConfig,
    inside: PrefixList,
    table: Table<Owner, Count>,
    shared: Vec<Count>,
    interval: u32,
    seed: u64,
    /// Where all workers of the link count; `None`: it is the only one.
    together: Option<Arc<Users>>,
}

/// Who a user is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Owner {
    /// The network address of a prefix.
    Address(IpAddr),
    /// The [place](crate::packet::Packet::subscriber) of a subscriber.
    Subscriber(u32),
}

impl Owner {
    /// What a hash of it is made of.
    fn bits(self) -> u128 {
        match self {
            Self::Address(address) => network(address, 128),
            Self::Subscriber(place) => place.into(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Subscriber(place) => write!(f, "subscriber {place}"),
        }
    }
}

/// Where a user's flows are counted, and how many it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    owner: Owner,
    hash: u64,
    /// Its hash for all workers.
    common: u64,
    listed: Option<EntryId>,
    pub(super) flows: u32,
}

impl PerUser {
    pub(super) fn new(config: PerUserConfig, seed: u64) -> Result<Self, SettingError> {
        let table = Table::new(config.users, seed)?;
        let shared = alloc::vec![Count { interval: 0, flows: 0 }; SHARED];
        let inside = PrefixList::new(&config.inside);
        Ok(Self { config, inside, table, shared, interval: 0, seed, together: None })
    }

    /// Whose a flow from `source` to `destination` is, of a packet of this subscriber.
    fn of(&self, source: IpAddr, destination: IpAddr, subscriber: u32) -> Owner {
        let address = match self.config.by {
            UserBy::Subscriber => return Owner::Subscriber(subscriber),
            UserBy::Source => source,
            UserBy::Destination => destination,
            UserBy::Inside if self.inside.contains(source) => source,
            UserBy::Inside if self.inside.contains(destination) => destination,
            UserBy::Inside => source,
        };
        Owner::Address(match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(
                (network(address, self.config.ipv4_prefix) >> 96) as u32,
            )),
            IpAddr::V6(_) => {
                IpAddr::V6(Ipv6Addr::from_bits(network(address, self.config.ipv6_prefix)))
            }
        })
    }

    /// All counters go to zero: the fair rate was estimated. `restart`: at the end of a window of
    /// ECCM.
    pub(super) fn next_interval(&mut self, now: Nanos, interval: Nanos, restart: bool) {
        match &self.together {
            Some(users) => users.next_interval(now, interval, restart),
            None => self.interval = self.interval.wrapping_add(1),
        }
    }

    /// The present interval.
    fn present(&self) -> u32 {
        self.together.as_ref().map_or(self.interval, |users| users.interval())
    }

    /// It takes the place of another, which has counted with these workers.
    pub(super) fn follow(&mut self, other: &Self) {
        self.together.clone_from(&other.together);
    }

    /// Counts with the other workers, or alone. What it has let in since its interval began, at
    /// `since`, counts there.
    fn share(&mut self, users: Option<Arc<Users>>, since: Nanos) {
        if self.together.as_ref().map(Arc::as_ptr) == users.as_ref().map(Arc::as_ptr) {
            return;
        }
        let before = self.present();
        self.together = users;
        let Some(users) = &self.together else {
            self.interval = before;
            return;
        };
        users.begin(since);
        let listed = self.table.iter().filter(|(_, _, count)| count.interval == before);
        let known: Vec<_> = listed.map(|(id, owner, count)| (id, *owner, count.flows)).collect();
        for (id, owner, flows) in known {
            let hash = users.hash(owner.bits());
            (0..flows).for_each(|_| _ = users.enter(hash, u32::MAX));
            self.table.value_mut(id).interval = users.interval();
        }
    }

    fn place(&self, hash: u64) -> usize {
        (hash >> 32) as usize % SHARED
    }

    /// What this worker has counted of a user in an interval.
    fn counted(&self, hash: u64, listed: Option<EntryId>, interval: u32) -> u32 {
        let count = match listed {
            Some(id) => *self.table.value(id),
            // Also where the table has room again: the user may have been counted there before.
            None => self.shared[self.place(hash)],
        };
        if count.interval == interval { count.flows } else { 0 }
    }

    /// The user of a flow, and what it has in this interval.
    pub(super) fn user(&mut self, source: IpAddr, destination: IpAddr, subscriber: u32) -> User {
        let owner = self.of(source, destination, subscriber);
        let bits = owner.bits();
        let hash = fold(fold(self.seed, (bits >> 64) as u64), bits as u64);
        let listed = self.table.find(hash, &owner);
        let interval = self.present();
        if listed.is_none() && self.table.is_full() {
            self.table.sweep(super::protected::SEARCH, |_, count| count.interval != interval);
        }
        let common = self.together.as_ref().map_or(0, |users| users.hash(bits));
        let flows = match &self.together {
            Some(users) => users.flows(common),
            None => self.counted(hash, listed, interval),
        };
        User { owner, hash, common, listed, flows }
    }

    /// A flow of the user is about to be admitted, if it has fewer than `most`; `None`: whatever it
    /// has.
    ///
    /// # Errors
    /// Other workers have admitted so many since it was [looked at](Self::user).
    pub(super) fn count(&mut self, user: User, most: Option<u32>) -> Result<(), u32> {
        if let Some(users) = &self.together {
            match (users.enter(user.common, most.unwrap_or(u32::MAX)), most) {
                (Ok(interval), _) => self.interval = interval,
                (Err(flows), Some(_)) => return Err(flows),
                // It cannot be counted any more.
                (Err(_), None) => return Ok(()),
            }
        }
        let flows = self.counted(user.hash, user.listed, self.interval) + 1;
        let count = Count { interval: self.interval, flows };
        let place = self.place(user.hash);
        match user.listed {
            Some(id) => *self.table.value_mut(id) = count,
            None => {
                if self.table.insert(user.hash, user.owner, count).is_err() {
                    self.shared[place] = count;
                }
            }
        }
        Ok(())
    }

    /// The busiest users of this interval, of the flows that this worker has let in.
    pub(super) fn busiest(&self) -> Vec<UserAdmissions> {
        let interval = self.present();
        let mut users: Vec<UserAdmissions> = self
            .table
            .iter()
            .filter(|(_, _, count)| count.interval == interval)
            .map(|(_, user, count)| UserAdmissions { user: *user, flows: count.flows })
            .collect();
        users.sort_unstable_by_key(|user| (core::cmp::Reverse(user.flows), user.user));
        users.truncate(USERS_TOLD);
        users
    }

    pub(super) fn memory(&self) -> usize {
        self.table.memory() + SHARED * size_of::<Count>()
    }
}

impl Admission {
    /// From now on users are those of all workers that count in this table, each with the same
    /// settings, of a link that they [share](Self::share); `None`: of this one alone. To be told
    /// again when the settings of `per_user` have changed.
    pub fn share_users(&mut self, users: Option<Arc<Users>>) {
        let since = self.estimates.fair_since();
        if let Some(own) = &mut self.per_user {
            own.share(users, since);
        }
    }
}
