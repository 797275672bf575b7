//! The macros that declare settings and words.

/// Declares a struct of settings. See [the module](mod@crate::settings).
///
/// ```text
/// settings! {
///     /// What it is: the text of the section in the reference.
///     #[derive(Copy)]
///     pub struct Name: "heading in a file" {
///         /// What it is for. `live` changes while packets flow, `reload` with the whole file,
///         /// `fixed` only with a restart; `stated` is of nothing that runs.
///         live key: Type = default, written Kind::Path, in min..=max, counting "packets",
///             absent "what none means", is required, with other ["word"], instead_of another;
///         /// A field that is called otherwise in files.
///         reload field as key: Type = default;
///     }
///     parts { field: AnotherSettings }        // its keys stand in this table
///     plain { /// Not a setting. seed: u64 = 0; }
///     check Self::consistent_with_itself
/// }
/// ```
/// Clauses are optional, in this order; `written` is for types that are written in several ways;
/// `between 0.0..=1.0` stands for `in` where numbers have decimals. A key that `is required` has
/// its default in a struct only. Every struct derives `Clone`, `Debug` and `PartialEq`.
#[macro_export]
macro_rules! settings {
    (@change live) => { $crate::settings::ChangeTime::Live };
    (@change reload) => { $crate::settings::ChangeTime::Reload };
    (@change fixed) => { $crate::settings::ChangeTime::Fixed };
    (@change stated) => { $crate::settings::ChangeTime::Untold };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:ident) => { stringify!($key) };
    (@kind $ty:ty, $kind:expr) => { $kind };
    (@kind $ty:ty) => { <$ty as $crate::settings::Held>::KIND };
    (@presence $name:ident $field:ident required) => { $crate::settings::Presence::Required };
    (@presence $name:ident $field:ident $absent:literal) => {
        $crate::settings::Presence::Optional($absent)
    };
    (@presence $name:ident $field:ident) => {
        $crate::settings::Presence::Made(|| {
            $crate::settings::Held::to_value(&<$name as Default>::default().$field)
        })
    };
    (@clause) => { None };
    (@clause $clause:expr) => { Some($clause) };
    (@part) => { None };
    (@part $first:expr $(, $next:expr)*) => { $first$(.or_else(|| $next))* };
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $vis:vis struct $name:ident: $heading:literal {
            $(
                $(#[doc = $doc:literal])+
                $how:ident $field:ident $(as $key:ident)?: $ty:ty = $default:expr
                    $(, written $kind:expr)?
                    $(, in $range:expr)?
                    $(, between $low:literal..=$high:literal)?
                    $(, counting $unit:literal)?
                    $(, absent $absent:literal)?
                    $(, is $required:ident)?
                    $(, with $other:ident [$($word:literal),+])?
                    $(, instead_of $rival:ident)?
                ;
            )*
        }
        $(parts { $($(#[doc = $part_doc:literal])+ $part:ident: $part_ty:ty),+ $(,)? })?
        $(plain { $($(#[doc = $plain_doc:literal])+ $plain:ident: $plain_ty:ty =
            $plain_default:expr;)+ })?
        $(check $check:expr)?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq $($(, $derive)+)?)]
        $vis struct $name {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("Default `", stringify!($default), "`",
                    $("; in `", stringify!($range), "`",)?
                    $("; in `", stringify!($low), "..=", stringify!($high), "`",)? ".")]
                pub $field: $ty,
            )*
            $($($(#[doc = $part_doc])+ pub $part: $part_ty,)+)?
            $($($(#[doc = $plain_doc])+ pub $plain: $plain_ty,)+)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    $($($part: <$part_ty>::default(),)+)?
                    $($($plain: $plain_default,)+)?
                }
            }
        }

        impl $crate::settings::Settings for $name {
            const SECTION: &'static $crate::settings::Section = &$crate::settings::Section {
                heading: $heading,
                doc: const { $crate::settings::Trimmed(concat!($($about),+)).text() },
                own: &[$($crate::settings::Key {
                    name: $crate::settings!(@key $field $($key)?),
                    kind: const {
                        const ONE: $crate::settings::Kind = $crate::settings!(@kind $ty $(, $kind)?)
                            $(.within(*($range).start() as u64, *($range).end() as u64))?
                            $(.between($low, $high))?
                            $(.counting($unit))?;
                        if <$ty as $crate::settings::Held>::PER_CLASS {
                            $crate::settings::Kind::ByClass(
                                &ONE,
                                $crate::settings!(@presence $name $field $($absent)? $($required)?),
                            )
                        } else {
                            ONE
                        }
                    },
                    presence: $crate::settings!(@presence $name $field $($absent)? $($required)?),
                    doc: const { $crate::settings::Trimmed(concat!($($doc),+)).text() },
                    change: $crate::settings!(@change $how),
                    with: $crate::settings!(@clause $((stringify!($other), &[$($word),+]))?),
                    instead_of: $crate::settings!(@clause $(stringify!($rival))?),
                },)*],
                parts: &[$($(<$part_ty as $crate::settings::Settings>::SECTION,)+)?],
            };

            fn get_of(
                &self,
                key: &str,
                class: Option<$crate::Class>,
            ) -> Option<$crate::settings::Value> {
                match key {
                    $($crate::settings!(@key $field $($key)?) => {
                        Some($crate::settings::Held::value_of(&self.$field, class))
                    })*
                    _ => $crate::settings!(@part $($(self.$part.get_of(key, class)),+)?),
                }
            }

            fn put(
                &mut self,
                key: &str,
                class: Option<$crate::Class>,
                value: &$crate::settings::Value,
            ) -> Option<bool> {
                match key {
                    $($crate::settings!(@key $field $($key)?) => {
                        let taken = $crate::settings::Held::take(&mut self.$field, class, value);
                        $(if taken {
                            self.$rival = Self::default().$rival;
                        })?
                        Some(taken)
                    })*
                    _ => $crate::settings!(@part $($(self.$part.put(key, class, value)),+)?),
                }
            }

            #[allow(unused_mut, reason = "there are tables without keys")]
            fn faults(&self) -> $crate::settings::Faults {
                let mut faults = $crate::settings::Faults::new();
                $(
                    let key = $crate::settings!(@key $field $($key)?);
                    let inside = $crate::settings::Held::faults(&self.$field).into_iter();
                    faults.extend(inside.map(|fault| fault.within(key)));
                )*
                $($(faults.extend($crate::settings::Settings::faults(&self.$part));)+)?
                $(faults.extend($check(self).err());)?
                faults
            }
        }

        // Within another table it is a table of its own.
        impl $crate::settings::Held for $name {
            const KIND: $crate::settings::Kind =
                $crate::settings::Kind::Table(<Self as $crate::settings::Settings>::SECTION);

            fn to_value(&self) -> $crate::settings::Value {
                $crate::settings::table_of(self)
            }

            fn from_value(value: &$crate::settings::Value) -> Option<Self> {
                $crate::settings::from_table(value)
            }

            fn faults(&self) -> $crate::settings::Faults {
                $crate::settings::Settings::faults(self)
            }
        }
    };
}

/// Declares an enum whose variants are words of a file. One variant is the `#[default]`.
#[macro_export]
macro_rules! words {
    (
        $(#[doc = $about:literal])+
        $vis:vis enum $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[default $($mark:tt)?])?
                $variant:ident = $word:literal,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        $vis enum $name {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("In files: `", $word, "`.")]
                $(#[default $($mark)?])?
                $variant,
            )+
        }

        impl $name {
            /// All of them.
            #[allow(dead_code, reason = "not every enum of words is walked through")]
            $vis const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The words of files, each with its meaning.
            $vis const WORDS: &'static [(&'static str, &'static str)] = &[
                $(($word, const { $crate::settings::Trimmed(concat!($($doc),+)).text() })),+
            ];

            /// The word in files.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// What a word in a file stands for.
            #[must_use]
            $vis fn from_name(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl $crate::settings::Held for $name {
            const KIND: $crate::settings::Kind = $crate::settings::Kind::Choice(Self::WORDS);

            fn to_value(&self) -> $crate::settings::Value {
                $crate::settings::Value::Word(self.name())
            }

            fn from_value(value: &$crate::settings::Value) -> Option<Self> {
                value.as_text().and_then(Self::from_name)
            }
        }
    };
}

/// Declares an enum whose variants are tables of settings: the key `kind` says which of them it is.
#[macro_export]
macro_rules! variants {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $vis:vis enum $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $variant:ident($settings:ty) = $word:literal,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq $($(, $derive)+)?)]
        $vis enum $name {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("In files: `kind = \"", $word, "\"`.")]
                $variant($settings),
            )+
        }

        impl $name {
            /// The kinds in files, each with its declaration.
            $vis const KINDS: &'static [(&'static str, &'static $crate::settings::Section)] =
                &[$(($word, <$settings as $crate::settings::Settings>::SECTION)),+];

            /// The kind in files.
            #[must_use]
            $vis const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $word,)+
                }
            }

            /// Whether every value lies in its range and all fit each other.
            ///
            /// # Errors
            /// For the first that does not.
            $vis fn check(&self) -> Result<(), $crate::settings::SettingError> {
                match self {
                    $(Self::$variant(settings) => $crate::settings::Settings::check(settings),)+
                }
            }
        }

        impl $crate::settings::Held for $name {
            const KIND: $crate::settings::Kind = $crate::settings::Kind::Variants(Self::KINDS);

            fn to_value(&self) -> $crate::settings::Value {
                match self {
                    $(Self::$variant(settings) =>
                        $crate::settings::table_of_kind($word, settings),)+
                }
            }

            fn from_value(value: &$crate::settings::Value) -> Option<Self> {
                match value.kind()? {
                    $($word => $crate::settings::from_table(value).map(Self::$variant),)+
                    _ => None,
                }
            }

            fn faults(&self) -> $crate::settings::Faults {
                match self {
                    $(Self::$variant(settings) =>
                        $crate::settings::Settings::faults(settings),)+
                }
            }
        }
    };
}

/// The text of a doc comment, without the space that it begins with.
#[doc(hidden)]
#[derive(Debug)]
pub struct Trimmed(pub &'static str);

impl Trimmed {
    /// The text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.0.trim_ascii()
    }
}
