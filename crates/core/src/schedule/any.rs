//! The disciplines that are built in: the one list of them. From it come their settings as one
//! type, the scheduler without a virtual call per packet, and what several workers share.
//!
//! A discipline is added here by one line: its variant, its settings, and how several workers share
//! a link with it, if they can.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::shared::Shared;
use super::shared_flows::SharedFlows;
use super::{
    Backlog, Discipline, DropSink, Meters, NodeAccount, Scheduler, Sharing, Treated, Wake,
};
use crate::audit::Promise;
use crate::packet::{Class, FlowKey, Packet};
use crate::settings::{Change, ChangeTime, Key, Section, SettingError, Settings, Value};
use crate::share::SharedLink;
use crate::units::{BitRate, Bytes, Nanos};

/// `kind = "own"`: a discipline that is not among those built in. The core does not know which
/// there are: the program that builds it does.
#[derive(Clone, Debug)]
pub struct OwnConfig {
    /// The name it was registered under.
    pub name: String,
    /// Its settings as a TOML table on one line, `{ limit = 50 }`, as the file has them.
    pub settings: String,
    /// Where it stands, `file:line`, for messages; empty if not in a file. Not part of a
    /// comparison.
    pub place: String,
}

impl PartialEq for OwnConfig {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.settings) == (&other.name, &other.settings)
    }
}

impl OwnConfig {
    /// An error about this discipline.
    #[must_use]
    pub fn error(&self, message: String) -> BuildError {
        BuildError::Own { place: self.place.clone(), name: self.name.clone(), message }
    }
}

/// `kind = "linux"`: a queueing discipline of the kernel, beside ours in the lab. The router never
/// has one: where a link does, the kernel forwards.
#[derive(Clone, Debug)]
pub struct LinuxConfig {
    /// What `tc` is told, a line each: the first is the root discipline, `htb default 20`; further
    /// ones begin with `class`, `qdisc` or `filter`.
    pub command: String,
    /// Where it stands, `file:line`, for messages; empty if not in a file. Not part of a
    /// comparison.
    pub place: String,
}

impl PartialEq for LinuxConfig {
    fn eq(&self, other: &Self) -> bool {
        self.command == other.command
    }
}

impl LinuxConfig {
    /// Its `kind` in files.
    pub const NAME: &'static str = "linux";

    /// An error about this discipline.
    #[must_use]
    pub fn error(&self, message: &str) -> BuildError {
        let (place, name) = (self.place.clone(), Self::NAME.into());
        BuildError::Own { place, name, message: message.into() }
    }
}

/// Why a discipline was not built.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BuildError {
    /// A value is not valid.
    Setting(SettingError),
    /// The discipline is unknown here, or it refused its settings.
    Own {
        /// Where it stands, `file:line`; empty if not in a file.
        place: String,
        /// Its name.
        name: String,
        /// What is wrong, and what would be valid.
        message: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(error) => error.fmt(f),
            Self::Own { place, name, message } => {
                let separator = if place.is_empty() { "" } else { ": " };
                write!(f, "{place}{separator}discipline {name:?}: {message}")
            }
        }
    }
}

impl core::error::Error for BuildError {}

impl From<SettingError> for BuildError {
    fn from(error: SettingError) -> Self {
        Self::Setting(error)
    }
}

/// Reads settings of any type, as the readers of files do.
pub trait ReadSettings {
    /// The settings; `None` after an error that was noted.
    fn read<S: Settings>(&mut self) -> Option<S>;
}

/// One arm for each variant of `Self`.
macro_rules! each_arm {
    ([$($variant:ident)+], $on:expr, $inner:ident => $call:expr) => {
        match $on { $(Self::$variant($inner) => $call,)+ }
    };
}

macro_rules! disciplines {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident: $config:ty $(, shared as $parts:ident: $by:ident)?;
    )+) => {
        /// The settings of a discipline.
        #[derive(Clone, Debug, PartialEq)]
        pub enum DisciplineConfig {
            $($(#[doc = $doc])+ $variant($config),)+
            /// One that the program running it brings along.
            Own(OwnConfig),
            /// One that the kernel has, in the lab.
            Linux(LinuxConfig),
        }

        /// The built-in disciplines without a virtual call per packet, and a boxed arm that lets a
        /// user's own in.
        // Which one it is, is asked several times for each packet: it is a number in memory.
        #[repr(u8)]
        pub enum AnyScheduler<P: Packet> {
            $(
                $(#[doc = $doc])+
                $variant(<$config as Discipline>::Queues<P>),
                $(
                    /// One worker's part of a link with this discipline that several share.
                    $parts(Box<$by<P, <$config as Discipline>::Queues<P>>>),
                )?
            )+
            /// A user's own.
            Boxed(Box<dyn Scheduler<P> + Send>),
        }

        impl DisciplineConfig {
            /// The built-in disciplines: `kind` in configuration files, and settings.
            pub const BUILT_IN: &'static [(&'static str, &'static Section)] =
                &[$((<$config>::NAME, <$config>::SECTION)),+];

            /// The `kind` in configuration files.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => <$config>::NAME,)+
                    Self::Own(_) => "own",
                    Self::Linux(_) => LinuxConfig::NAME,
                }
            }

            /// The declaration of its settings; `None` for one that is not built in.
            #[must_use]
            pub const fn section(&self) -> Option<&'static Section> {
                match self {
                    $(Self::$variant(_) => Some(<$config>::SECTION),)+
                    Self::Own(_) | Self::Linux(_) => None,
                }
            }

            /// The discipline of this kind with the settings that `from` reads; `None` if there is
            /// no such kind, or after an error.
            pub fn read(kind: &str, from: &mut impl ReadSettings) -> Option<Self> {
                match kind {
                    $(<$config as Discipline>::NAME => from.read().map(Self::$variant),)+
                    _not_built_in => None,
                }
            }

            /// The settings that have a meaning and a value; none of one that is not built in.
            #[must_use]
            pub fn entries(&self) -> Vec<(&'static Key, Value)> {
                match self {
                    $(Self::$variant(config) => config.entries(),)+
                    Self::Own(_) | Self::Linux(_) => Vec::new(),
                }
            }

            /// Changes a setting as [`Scheduler::set`] changes it in the scheduler. Of a user's own
            /// only the scheduler knows the settings: here every change is taken for valid.
            ///
            /// # Errors
            /// As [`Settings::set_live`]. Nothing changed.
            pub fn set_live(&mut self, change: &Change, classes: u16) -> Result<(), SettingError> {
                match self {
                    $(Self::$variant(config) => config.set_live(change, classes),)+
                    Self::Own(_) | Self::Linux(_) => Ok(()),
                }
            }

            /// Whether it has this setting at all, as it is, whatever the value. A user's own may
            /// have any.
            #[must_use]
            pub fn has(&self, change: &Change) -> bool {
                let Some(section) = self.section() else { return true };
                let known = section.key(change.key).filter(|key| key.change == ChangeTime::Live);
                known.is_some_and(|key| match self {
                    $(Self::$variant(config) => {
                        config.goes_with(key) && (change.class.is_none() || key.is_per_class())
                    })+
                    Self::Own(_) | Self::Linux(_) => true,
                })
            }

            /// Whether it measures a fair rate, which admission needs. A user's own may.
            #[must_use]
            pub const fn measures_fair_rate(&self) -> bool {
                match self {
                    $(Self::$variant(_) => <$config>::MEASURES_FAIR_RATE,)+
                    Self::Own(_) => true,
                    Self::Linux(_) => false,
                }
            }

            /// Upper bound of the bytes that it allocates for `classes` classes, with packets of
            /// `packet` bytes in memory. What a user's own takes only its author knows: 0.
            #[must_use]
            pub fn memory(&self, classes: u16, packet: u64) -> u64 {
                match self {
                    $(Self::$variant(config) => {
                        let mut config = config.clone();
                        config.for_classes(classes);
                        config.memory(packet)
                    })+
                    Self::Own(_) | Self::Linux(_) => 0,
                }
            }

            /// What it promises with so many classes, for the audit of its link. Of a user's own
            /// only its author knows: nothing.
            #[must_use]
            pub fn promise(&self, classes: u16) -> Promise {
                match self {
                    $(Self::$variant(config) => {
                        let mut config = config.clone();
                        config.for_classes(classes);
                        Discipline::promise(&config)
                    })+
                    Self::Own(_) | Self::Linux(_) => Promise::Nothing,
                }
            }

            /// The same with this seed for its lists of flows, which should be one that nobody
            /// outside knows. Disciplines without such a list do not change.
            #[must_use]
            pub fn seeded(&self, seed: u64) -> Self {
                let mut seeded = self.clone();
                match &mut seeded {
                    $(Self::$variant(config) => Discipline::seed(config, seed),)+
                    Self::Own(_) | Self::Linux(_) => {}
                }
                seeded
            }

            /// What keeps several workers from sharing a link with it, and why; `None`: nothing.
            #[must_use]
            pub fn for_one_worker(&self) -> Option<(&'static str, &'static str)> {
                match self {
                    $(Self::$variant(config) => config.for_one_worker(),)+
                    Self::Own(_) => Some(("kind = \"own\"", "it was made to have the link for \
                                                            itself")),
                    Self::Linux(_) => Some(("kind = \"linux\"", "it is the kernel's")),
                }
            }

            /// The scheduler, empty. `classes` is the number of classes of the router.
            ///
            /// # Errors
            /// A value out of its range. A user's own is always refused: only a program that knows
            /// it can build it; so is one of the kernel.
            pub fn build<P: Packet>(&self, classes: u16) -> Result<AnyScheduler<P>, BuildError> {
                Ok(match self {
                    $(Self::$variant(config) => {
                        let mut config = config.clone();
                        config.for_classes(classes);
                        AnyScheduler::$variant(config.build()?)
                    })+
                    Self::Own(own) => return Err(own.error("not among those built in".into())),
                    Self::Linux(linux) => return Err(linux.error(
                        "a queueing discipline of the kernel, to compare with: no router of \
                         Evenkeel can have it",
                    )),
                })
            }

            /// One worker's part of the scheduler of a link that several workers share, empty.
            ///
            /// # Errors
            /// As [`build`](Self::build); a discipline that cannot be shared gives the reason.
            ///
            /// # Panics
            /// The link has no such worker.
            pub fn build_part<P: Packet>(
                &self,
                classes: u16,
                link: Arc<SharedLink>,
                worker: usize,
            ) -> Result<AnyScheduler<P>, BuildError> {
                if let Some((what, why)) = self.for_one_worker() {
                    let message = alloc::format!("{what} works with workers = 1 only: {why}");
                    return Err(SettingError::Contradiction { key: "discipline", message }.into());
                }
                Ok(self.build(classes)?.shared(link, worker))
            }
        }

        impl<P: Packet> AnyScheduler<P> {
            /// One worker's part of the link, from the scheduler of a link for itself, empty. One
            /// that cannot be shared stays as it is.
            ///
            /// # Panics
            /// The link has no such worker.
            #[must_use]
            pub fn shared(self, link: Arc<SharedLink>, worker: usize) -> Self {
                match self {
                    $($(Self::$variant(queues) => {
                        Self::$parts(Box::new($by::new(queues, link, worker)))
                    })?)+
                    alone => alone,
                }
            }
        }

        disciplines! { @scheduler [$($variant $($parts)?)+ Boxed] }
    };
    (@scheduler $arms:tt) => {
        impl<P: Packet> Scheduler<P> for AnyScheduler<P> {
            #[inline(always)]
            fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut dyn DropSink<P>) -> Treated {
                each_arm!($arms, self, s => s.enqueue(now, packet, dropped))
            }
            #[inline(always)] // each is a few instructions, which a call would double
            fn bypass(&mut self, now: Nanos, packet: &dyn Packet) -> Option<Treated> {
                each_arm!($arms, self, s => s.bypass(now, packet))
            }
            fn bypasses(&self) -> bool {
                each_arm!($arms, self, s => s.bypasses())
            }
            fn bypasses_up_to(&self) -> Option<(Bytes, Treated)> {
                each_arm!($arms, self, s => s.bypasses_up_to())
            }
            fn bypassed(&mut self, bytes: Bytes) {
                each_arm!($arms, self, s => s.bypassed(bytes));
            }
            fn bypasses_untold(&self) -> bool {
                each_arm!($arms, self, s => s.bypasses_untold())
            }
            #[inline(always)]
            fn dequeue(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> Option<P> {
                each_arm!($arms, self, s => s.dequeue(now, dropped))
            }
            #[inline(always)]
            fn call(&mut self, now: Nanos, dropped: &mut dyn DropSink<P>) -> (usize, Option<P>) {
                each_arm!($arms, self, s => s.call(now, dropped))
            }
            #[inline(always)]
            fn take_in(
                &mut self,
                now: Nanos,
                packet: P,
                dropped: &mut dyn DropSink<P>,
            ) -> (Treated, u32) {
                each_arm!($arms, self, s => s.take_in(now, packet, dropped))
            }
            #[inline(never)] // once in a burst, and nothing but where a link is shared
            fn publish(&mut self) {
                each_arm!($arms, self, s => s.publish());
            }
            fn next_wake(&self, now: Nanos) -> Option<Nanos> {
                each_arm!($arms, self, s => s.next_wake(now))
            }
            fn tick(&mut self, now: Nanos) -> Option<Nanos> {
                each_arm!($arms, self, s => s.tick(now))
            }
            fn settle(&mut self, now: Nanos) {
                each_arm!($arms, self, s => s.settle(now));
            }
            fn peek_len(&self, now: Nanos) -> Option<Bytes> {
                each_arm!($arms, self, s => s.peek_len(now))
            }
            fn set(&mut self, now: Nanos, change: &Change) -> Result<Wake, SettingError> {
                each_arm!($arms, self, s => s.set(now, change))
            }
            fn set_rate(&mut self, rate: Option<BitRate>) {
                each_arm!($arms, self, s => s.set_rate(rate));
            }
            fn drain(&mut self, into: &mut dyn FnMut(P)) {
                each_arm!($arms, self, s => s.drain(into));
            }
            fn meters(&self) -> Meters {
                each_arm!($arms, self, s => s.meters())
            }
            fn backlog(&self) -> Backlog {
                each_arm!($arms, self, s => s.backlog())
            }
            #[inline(always)]
            fn busy_queues(&self) -> usize {
                each_arm!($arms, self, s => s.busy_queues())
            }
            fn class_backlog(&self, class: Class) -> Backlog {
                each_arm!($arms, self, s => s.class_backlog(class))
            }
            fn flow_backlog(&self, flow: &FlowKey, hash: u64) -> Bytes {
                each_arm!($arms, self, s => s.flow_backlog(flow, hash))
            }
            fn node_account(&self, place: u32) -> Option<NodeAccount> {
                each_arm!($arms, self, s => s.node_account(place))
            }
            fn sharing(&self, subscriber: u32) -> Option<Sharing> {
                each_arm!($arms, self, s => s.sharing(subscriber))
            }
            fn node_places(&self) -> u32 {
                each_arm!($arms, self, s => s.node_places())
            }
            #[inline(always)]
            fn looks_up_flows(&self) -> bool {
                each_arm!($arms, self, s => s.looks_up_flows())
            }
            #[inline(always)]
            fn prefetch(&self, hash: u64) {
                each_arm!($arms, self, s => s.prefetch(hash));
            }
            #[inline(always)]
            fn prefetch_place(&self, place: u32) {
                each_arm!($arms, self, s => s.prefetch_place(place));
            }
            fn prefetch_places(&self, places: &[u32]) {
                each_arm!($arms, self, s => s.prefetch_places(places));
            }
            #[inline(always)]
            fn last_place(&self) -> u32 {
                each_arm!($arms, self, s => s.last_place())
            }
            fn prefetch_bucket(&self, hash: u64) {
                each_arm!($arms, self, s => s.prefetch_bucket(hash));
            }
            fn reads_acks(&self) -> bool {
                each_arm!($arms, self, s => s.reads_acks())
            }
            fn name(&self) -> &'static str {
                each_arm!($arms, self, s => s.name())
            }
        }
    };
}

disciplines! {
    /// First in, first out.
    Fifo: super::fifo::FifoConfig, shared as FifoPart: Shared;
    /// Weighted fair queueing as ALTQ has it.
    WfqAltq: super::wfq_altq::WfqAltqConfig, shared as WfqAltqPart: Shared;
    /// LCT-UC.
    Lct: super::lct::LctConfig, shared as LctPart: Shared;
    /// Priority fair queueing.
    Pfq: super::pfq::PfqConfig, shared as PfqPart: SharedFlows;
    /// Priority deficit round robin.
    Pdrr: super::pdrr::PdrrConfig, shared as PdrrPart: SharedFlows;
    /// Approximate flow-aware networking.
    Afan: super::afan::AfanConfig, shared as AfanPart: SharedFlows;
    /// Strict priority.
    Priority: super::priority::PriorityConfig, shared as PriorityPart: Shared;
    /// Quick fair queueing.
    Qfq: super::qfq::QfqConfig, shared as QfqPart: Shared;
    /// Deficit round robin.
    Drr: super::drr::DrrConfig, shared as DrrPart: SharedFlows;
    /// CoDel.
    Codel: super::codel::CodelConfig, shared as CodelPart: Shared;
    /// FQ-CoDel.
    FqCodel: super::fq_codel::FqCodelConfig, shared as FqCodelPart: SharedFlows;
    /// A tree of subscribers.
    Tree: super::tree::TreeConfig;
}
