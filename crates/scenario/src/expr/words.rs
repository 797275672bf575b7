//! Names of the language of expectations, each with what it means.

/// An enumeration whose every variant has a name, a meaning in words, and perhaps a unit.
macro_rules! words {
    ($(#[doc = $of:literal])+ $kind:ident:
     $($(#[doc = $doc:literal])+ $variant:ident $name:literal $(, $unit:literal)?;)+) => {
        $(#[doc = $of])+
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum $kind {
            $(#[doc = concat!($($doc,)+ ".")] $variant,)+
        }

        impl $kind {
            /// All of them, in the order of the reference.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in expectations.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it is, in words.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_start(),)+ }
            }

            words! { @unit $kind $($variant $($unit)?;)+ }

            pub(super) fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.name() == name)
            }
        }
    };
    (@unit $kind:ident $($variant:ident $unit:literal;)+) => {
        /// The unit; empty for fractions and counts.
        #[must_use]
        pub const fn unit(self) -> &'static str {
            match self { $(Self::$variant => $unit,)+ }
        }
    };
    (@unit $kind:ident $($variant:ident;)+) => {};
}

pub(super) use words;
