//! The discipline of a link and its knobs.

use evenkeel_core::queue::LIMIT_RANGE;
use evenkeel_core::schedule::afan::{Afan, AfanConfig};
use evenkeel_core::schedule::fifo::{Fifo, FifoConfig};
use evenkeel_core::schedule::lct::{Lct, LctConfig};
use evenkeel_core::schedule::pdrr::{Pdrr, PdrrConfig};
use evenkeel_core::schedule::pfq::{Pfq, PfqConfig};
use evenkeel_core::schedule::wfq_altq::{
    DEFAULT_QUEUES, DEFAULT_WEIGHT, DropRule, HashPolicy, QueueSelect, WfqAltq, WfqAltqConfig,
};
use evenkeel_core::schedule::{AnyScheduler, Knob, KnobError, MultiBacklog};
use evenkeel_core::{Class, Nanos, Packet, Weight};
use thiserror::Error;

use crate::change::ChangeError;
use crate::flow_aware;
use crate::tables;
use evenkeel_settings::read::{Fields, Item, Reader, Value, parse_toml, suggest};

/// `[link.discipline]`: per-class knobs resolved to vectors in the order of the classes, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub enum DisciplineConfig {
    /// First in, first out.
    Fifo(FifoConfig),
    /// Weighted fair queueing as ALTQ has it.
    WfqAltq(WfqAltqConfig),
    /// LCT-UC.
    Lct(LctConfig),
    /// Priority fair queueing.
    Pfq(PfqConfig),
    /// Priority deficit round robin.
    Pdrr(PdrrConfig),
    /// Approximate flow-aware networking.
    Afan(AfanConfig),
    /// One that the program running it brings along.
    Own(OwnConfig),
}

/// `kind = "own"`: a discipline that is not among those built in. This crate does not know which there are: who builds it does.
#[derive(Clone, Debug)]
pub struct OwnConfig {
    /// The name it was registered under.
    pub name: String,
    /// Its settings as a TOML table on one line, `{ limit = 50 }`, as the file has them.
    pub settings: String,
    /// Where it stands, `file:line`, for messages; empty if not in a file. Not part of a comparison.
    pub place: String,
}

impl PartialEq for OwnConfig {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.settings) == (&other.name, &other.settings)
    }
}

/// Why a discipline was not built.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum BuildError {
    /// The core refused a value.
    #[error("{0}")]
    Knob(#[from] KnobError),
    /// Nobody here knows the discipline, or it refused its settings.
    #[error("{place}{}discipline {name:?}: {message}", if place.is_empty() { "" } else { ": " })]
    Own {
        /// Where it stands, `file:line`; empty if not in a file.
        place: String,
        /// Its name.
        name: String,
        /// What is wrong, and what would be valid.
        message: String,
    },
}

impl OwnConfig {
    /// The settings as `T`. Keys that `T` does not know are refused if it says so (`#[serde(deny_unknown_fields)]`).
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        let refused = |error: toml::de::Error| format!("settings: {}", error.message().trim());
        let value = toml::de::ValueDeserializer::parse(&self.settings).map_err(refused)?;
        T::deserialize(value).map_err(refused)
    }

    /// An error about this discipline.
    #[must_use]
    pub fn error(&self, message: String) -> BuildError {
        BuildError::Own { place: self.place.clone(), name: self.name.clone(), message }
    }
}

impl DisciplineConfig {
    /// The kind in configuration files: `fifo`, `wfq-altq`, `lct`, `pfq`, `pdrr`, `afan`, `own`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fifo(_) => "fifo",
            Self::WfqAltq(_) => "wfq-altq",
            Self::Lct(_) => "lct",
            Self::Pfq(_) => "pfq",
            Self::Pdrr(_) => "pdrr",
            Self::Afan(_) => "afan",
            Self::Own(_) => "own",
        }
    }

    /// The same with this seed for its lists of flows, which should be one that nobody outside knows. Disciplines without such a list do not
    /// change.
    #[must_use]
    pub fn seeded(&self, seed: u64) -> Self {
        let mut seeded = self.clone();
        if let Self::Pfq(PfqConfig { flows, .. })
        | Self::Pdrr(PdrrConfig { flows, .. })
        | Self::Afan(AfanConfig { flows, .. }) = &mut seeded
        {
            flows.seed = seed;
        }
        seeded
    }

    /// The scheduler, empty. `classes` is the number of classes of the router.
    ///
    /// # Errors
    /// A value that the core refuses, or a discipline made for another number of classes; neither comes out of this
    /// crate's parser. One of the user's own is always refused: only a program that knows it can build it.
    pub fn build<P: Packet>(&self, classes: u16) -> Result<AnyScheduler<P>, BuildError> {
        Ok(match self {
            Self::Fifo(config) => AnyScheduler::Fifo(Fifo::new(*config)?),
            Self::WfqAltq(config) => {
                if config.select == QueueSelect::Class && config.queues < classes {
                    let class = Class(config.queues);
                    return Err(KnobError::NoSuchClass { class, classes: config.queues }.into());
                }
                AnyScheduler::WfqAltq(WfqAltq::new(config.clone())?)
            }
            Self::Lct(config) => {
                let known = u16::try_from(config.x_delay.len()).unwrap_or(u16::MAX);
                if known != classes {
                    let class = Class(known.min(classes));
                    return Err(KnobError::NoSuchClass { class, classes: known }.into());
                }
                AnyScheduler::Lct(Lct::new(config.clone())?)
            }
            Self::Pfq(config) => AnyScheduler::Pfq(Pfq::new(*config)?),
            Self::Pdrr(config) => AnyScheduler::Pdrr(Pdrr::new(*config)?),
            Self::Afan(config) => AnyScheduler::Afan(Afan::new(*config)?),
            Self::Own(own) => return Err(own.error("not among those built in".to_owned())),
        })
    }

    /// Changes this configuration as [`Scheduler::set`](evenkeel_core::schedule::Scheduler::set) changes the scheduler.
    /// The limit of a single class cannot be told here: it is refused as a class that does not exist. Of one of the user's own
    /// only the scheduler knows the knobs: here it has none.
    ///
    /// # Errors
    /// The discipline has no such knob, or there is no such class. Nothing changed.
    pub fn apply(&mut self, knob: Knob) -> Result<(), KnobError> {
        let no_such_knob = KnobError::NoSuchKnob { knob: knob.name(), discipline: self.name() };
        match (self, knob) {
            (Self::Fifo(config), Knob::QueueLimit(None | Some(Class(0)), limit)) => config.limit = limit,
            (Self::WfqAltq(config), Knob::QueueLimit(None, limit)) => match &mut config.drop {
                DropRule::TailPerQueue { limit: old } => *old = limit,
                DropRule::LongestHead { .. } => return Err(no_such_knob),
            },
            (Self::WfqAltq(config), Knob::HighWater(bytes)) => match &mut config.drop {
                DropRule::LongestHead { high_water } => *high_water = bytes,
                DropRule::TailPerQueue { .. } => return Err(no_such_knob),
            },
            (Self::WfqAltq(config), Knob::Weight(class, weight)) => {
                if class.0 >= config.queues {
                    return Err(KnobError::NoSuchClass { class, classes: config.queues });
                }
                if config.weights.len() <= class.index() {
                    config.weights.resize(class.index() + 1, DEFAULT_WEIGHT);
                }
                config.weights[class.index()] = weight;
            }
            (Self::Lct(config), Knob::QueueLimit(None, limit)) => config.limit = limit,
            (Self::Lct(config), Knob::XDelay(class, x)) => {
                let classes = u16::try_from(config.x_delay.len()).unwrap_or(u16::MAX);
                match config.x_delay.get_mut(class.index()) {
                    Some(old) => *old = x,
                    None => return Err(KnobError::NoSuchClass { class, classes }),
                }
            }
            (Self::Lct(config), Knob::Module2(on)) => config.module2 = on,
            (Self::Lct(config), Knob::MultiBacklog(policy)) => config.policy = policy,
            (Self::Lct(config), Knob::RearmEmpty(on)) => config.rearm_empty = on,
            (Self::Afan(config), Knob::QueueLimit(None, limit)) => config.limit = limit,
            (Self::Afan(config), Knob::Afd(afd)) => config.afd = afd,
            (Self::Afan(config), Knob::Window(window)) => config.window = window,
            (Self::Pdrr(config), Knob::AflLinger(linger)) => config.afl_linger = linger,
            (
                Self::Pfq(PfqConfig { quantum, .. })
                | Self::Pdrr(PdrrConfig { quantum, .. })
                | Self::Afan(AfanConfig { quantum, .. }),
                Knob::Quantum(wanted),
            ) => *quantum = wanted,
            (
                Self::Pfq(PfqConfig { flows, .. })
                | Self::Pdrr(PdrrConfig { flows, .. })
                | Self::Afan(AfanConfig { flows, .. }),
                Knob::StartLimit(wanted),
            ) => flows.start_limit = wanted,
            (
                Self::Pfq(PfqConfig { buffer, .. }) | Self::Pdrr(PdrrConfig { buffer, .. }),
                Knob::Buffer(wanted),
            ) => buffer.limit = wanted,
            (
                Self::Pfq(PfqConfig { buffer, .. }) | Self::Pdrr(PdrrConfig { buffer, .. }),
                Knob::Victim(wanted),
            ) => buffer.victim = wanted,
            (
                Self::Fifo(_) | Self::WfqAltq(_) | Self::Lct(_) | Self::Afan(_),
                Knob::QueueLimit(Some(class), _),
            ) => {
                return Err(KnobError::NoSuchClass { class, classes: 0 });
            }
            _ => return Err(no_such_knob),
        }
        Ok(())
    }

    /// Whether it measures a fair rate, which admission needs. Of one of the user's own that is not known; it may.
    #[must_use]
    pub fn measures_fair_rate(&self) -> bool {
        matches!(self, Self::Pfq(_) | Self::Pdrr(_) | Self::Afan(_) | Self::Own(_))
    }

    /// Whether the discipline has this knob at all, whatever its value. One of the user's own may have any.
    #[must_use]
    pub fn has(&self, knob: Knob) -> bool {
        matches!(self, Self::Own(_)) || !matches!(self.clone().apply(knob), Err(KnobError::NoSuchKnob { .. }))
    }
}

/// Reads a discipline from the text of a TOML inline table (`{ kind = "lct", limit = 50 }`) or of a table's body.
/// `classes` are the router's class names in order.
///
/// # Errors
/// Everything that is wrong with it, in one message.
pub fn parse_discipline(text: &str, classes: &[&str]) -> Result<DisciplineConfig, ChangeError> {
    let text = text.trim();
    let body =
        if text.starts_with('{') { format!("discipline = {text}") } else { format!("[discipline]\n{text}") };
    let (table, mut reader) = parse_toml(&body, "");
    let kind = evenkeel_core::settings::schema::Kind::Variants(tables::DISCIPLINES);
    let config = match table.get("discipline") {
        Some(node) => match reader.value(&kind, node, "discipline") {
            Some(Item { value: Value::Table(fields), .. }) => from_fields(&mut reader, &fields, classes),
            _ => None,
        },
        None => None,
    };
    crate::change::concluded(reader, config)
}

/// The discipline that a table says, which was read by its declaration.
pub(crate) fn from_fields(
    reader: &mut Reader,
    fields: &Fields,
    classes: &[&str],
) -> Option<DisciplineConfig> {
    match fields.kind? {
        "fifo" => Some(DisciplineConfig::Fifo(FifoConfig { limit: limit(fields)? })),
        "wfq-altq" => wfq_altq(reader, fields, classes).map(DisciplineConfig::WfqAltq),
        "lct" => lct(reader, fields, classes).map(DisciplineConfig::Lct),
        "pfq" => flow_aware::pfq(reader, fields).map(DisciplineConfig::Pfq),
        "pdrr" => flow_aware::pdrr(reader, fields).map(DisciplineConfig::Pdrr),
        "afan" => flow_aware::afan(fields).map(DisciplineConfig::Afan),
        "own" => own(reader, fields).map(DisciplineConfig::Own),
        _ => None,
    }
}

fn own(reader: &mut Reader, fields: &Fields) -> Option<OwnConfig> {
    let own = OwnConfig {
        name: fields.text("name")?.to_owned(),
        settings: fields.foreign("settings")?.data.inline(),
        place: reader.place(&fields.at),
    };
    if let Err(message) = own.read::<toml::Table>() {
        reader.fail(&fields.span("settings"), fields.path_of("settings"), message);
        return None;
    }
    Some(own)
}

fn limit(fields: &Fields) -> Option<u32> {
    let limit = u32::try_from(fields.integer("limit")?).ok()?;
    LIMIT_RANGE.contains(&limit).then_some(limit)
}

fn wfq_altq(reader: &mut Reader, fields: &Fields, classes: &[&str]) -> Option<WfqAltqConfig> {
    let select = match fields.text("select")? {
        "hash-destination" => QueueSelect::Hash(HashPolicy::Destination),
        "hash-source" => QueueSelect::Hash(HashPolicy::Source),
        "hash-source-port" => QueueSelect::Hash(HashPolicy::SourcePort),
        "hash-full" => QueueSelect::Hash(HashPolicy::Full),
        _ => QueueSelect::Class,
    };
    let mut needs = |key: &str, what: &str| {
        if fields.given(key) {
            reader.fail(&fields.span(key), fields.path_of(key), format!("only together with {what}"));
        }
    };
    let tail = fields.text("drop")? == "tail";
    let drop = if tail {
        needs("high_water", "drop = \"longest\"");
        DropRule::TailPerQueue { limit: limit(fields)? }
    } else {
        needs("limit", "drop = \"tail\"");
        DropRule::LongestHead { high_water: fields.size("high_water")? }
    };
    let (queues, weights) = if select == QueueSelect::Class {
        needs("queues", "one of the select = \"hash-…\"");
        let weights = by_class(reader, fields, "weight", classes, |value| match value {
            Value::Integer(weight) => u32::try_from(*weight).ok().map(Weight),
            _ => None,
        })?;
        (u16::try_from(classes.len()).ok()?, weights)
    } else {
        needs("weight", "select = \"class\"");
        let queues = fields.integer("queues").unwrap_or(u64::from(DEFAULT_QUEUES));
        (u16::try_from(queues).ok()?, Vec::new())
    };
    Some(WfqAltqConfig { queues, weights, select, drop })
}

fn lct(reader: &mut Reader, fields: &Fields, classes: &[&str]) -> Option<LctConfig> {
    let x_delay: Vec<Nanos> = by_class(reader, fields, "x_delay", classes, |value| match value {
        Value::Time(x) => Some(*x),
        _ => None,
    })?;
    Some(LctConfig {
        x_delay,
        limit: limit(fields)?,
        module2: fields.switch("module2")?,
        policy: multi_backlog(fields.text("multi_backlog")?),
        rearm_empty: fields.switch("rearm_empty")?,
        timer_tick: fields.time("timer_tick")?,
    })
}

/// The word of a configuration file, which its declaration has checked.
pub(crate) fn multi_backlog(word: &str) -> MultiBacklog {
    match word {
        "hold" => MultiBacklog::Hold,
        "earliest-due" => MultiBacklog::EarliestDue,
        "min-x" => MultiBacklog::MinX,
        "round-robin" => MultiBacklog::RoundRobin,
        _ => MultiBacklog::HoldWithModule2,
    }
}

/// Values by class name as a vector in the order of the classes.
pub(crate) fn by_class<T: Copy>(
    reader: &mut Reader,
    fields: &Fields,
    key: &str,
    classes: &[&str],
    convert: impl Fn(&Value) -> Option<T>,
) -> Option<Vec<T>> {
    let items = fields.by_class(key)?;
    let all = items.iter().find(|(name, _)| name.is_none()).and_then(|(_, item)| convert(&item.value))?;
    let mut values = vec![all; classes.len()];
    for (name, item) in items {
        let Some(name) = name else { continue };
        match classes.iter().position(|class| class == name) {
            Some(index) => values[index] = convert(&item.value)?,
            None => {
                let path = format!("{}.{name}", fields.path_of(key));
                reader.fail(&item.at, path, format!("no class {name:?}; {}", suggest(name, classes)));
            }
        }
    }
    Some(values)
}
