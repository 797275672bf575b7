//! Disciplines that are not among those built in.

use std::fmt;

use evenkeel_config::{
    BuildError, DisciplineConfig, OwnConfig, OwnError, RouterConfig, own_settings,
};
use evenkeel_core::schedule::{AnyScheduler, Scheduler};
use evenkeel_settings::read::suggest;

use crate::memory;
use crate::pipeline::QueuedPacket;

/// What a discipline of one's own is built from.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    classes: &'a [&'a str],
    config: &'a OwnConfig,
}

impl Setup<'_> {
    /// The names of the router's classes; their places are the numbers that packets carry.
    #[must_use]
    pub fn classes(&self) -> &[&str] {
        self.classes
    }

    /// The number of a class.
    ///
    /// # Errors
    /// There is none of this name; says which there are.
    pub fn class(&self, name: &str) -> Result<usize, OwnError> {
        let place = self.classes.iter().position(|class| *class == name);
        place.ok_or_else(|| format!("no class {name:?}; {}", suggest(name, self.classes)).into())
    }

    /// The `settings` of the file as `T`.
    ///
    /// # Errors
    /// What does not fit.
    pub fn settings<T: serde::de::DeserializeOwned>(&self) -> Result<T, OwnError> {
        own_settings(self.config)
    }
}

/// A discipline as a router runs it.
pub type Boxed = Box<dyn Scheduler<QueuedPacket> + Send>;

/// Makes a discipline, empty; or says in words what is wrong with its settings.
pub type Build = fn(&Setup<'_>) -> Result<Boxed, OwnError>;

/// The disciplines of `kind = "own"` that this program knows, by name. None to begin with.
#[derive(Clone, Default)]
pub struct Disciplines {
    known: Vec<(&'static str, Build)>,
}

impl fmt::Debug for Disciplines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Disciplines {
    /// With one more. Of two with one name, the later is used.
    #[must_use]
    pub fn with(mut self, name: &'static str, build: Build) -> Self {
        self.known.retain(|(known, _)| *known != name);
        self.known.push((name, build));
        self
    }

    /// The names, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.known.iter().map(|(name, _)| *name)
    }

    /// The scheduler that `config` describes, empty, for a router with these classes.
    ///
    /// # Errors
    /// A value that the core refuses, an unknown name, or what the discipline says of its settings.
    pub fn build(
        &self,
        config: &DisciplineConfig,
        classes: &[&str],
    ) -> Result<AnyScheduler<QueuedPacket>, BuildError> {
        let DisciplineConfig::Own(own) = config else {
            return config.build(u16::try_from(classes.len()).unwrap_or(u16::MAX));
        };
        let Some((_, build)) = self.known.iter().find(|(name, _)| *name == own.name) else {
            let names: Vec<_> = self.names().collect();
            let message =
                format!("this program brings none of that name; {}", suggest(&own.name, &names));
            return Err(own.error(message));
        };
        let built = build(&Setup { classes, config: own });
        built.map(AnyScheduler::Boxed).map_err(|error| own.error(error.to_string()))
    }

    /// Whether every discipline of a router can be built: for refusing a file before anything runs.
    ///
    /// # Errors
    /// As [`Disciplines::build`], for the first that cannot.
    pub fn check(&self, config: &RouterConfig) -> Result<(), BuildError> {
        let classes = config.class_names();
        config.links.iter().try_for_each(|link| {
            // What there is no memory for is refused by those who want to have it.
            let bytes = memory::discipline(&link.discipline, classes.len());
            memory::reserve(bytes)
                .map_or(Ok(()), |()| self.build(&link.discipline, &classes).map(drop))
        })
    }
}
