//! Between files and structs of settings: what a table says is put into the struct that declares
//! its keys, and what a struct holds is written as a file has it.

use evenkeel_core::settings::{
    Change, KIND, Key, Kind, Section, SettingError, Settings, Value as Held,
};

use crate::diagnostic::Diagnostics;
use crate::read::{Fields, Item, Reader, Value, parse_toml, suggest};
use crate::tree::{Data, SpannedValue, single};

/// The settings that a table says, which was read by the declaration of `S`; the rest by default.
/// `classes` are the names of the classes, in order. `None` after an error that `reader` has noted.
pub fn settings_of<S: Settings>(
    reader: &mut Reader,
    fields: &Fields,
    classes: &[&str],
) -> Option<S> {
    let (settings, sound) = read_settings(reader, fields, classes);
    sound.then_some(settings)
}

/// As [`settings_of`], also where something is wrong, so that the rest can be looked at; whether
/// nothing was.
pub fn read_settings<S: Settings>(
    reader: &mut Reader,
    fields: &Fields,
    classes: &[&str],
) -> (S, bool) {
    let mut settings = S::default();
    let mut sound = true;
    let given: Vec<&Key> = S::SECTION.keys().filter(|key| fields.given(key.name)).collect();
    for key in &given {
        // A value of the wrong type has been told already.
        let Some(item) = fields.item(key.name) else { continue };
        sound &= put(reader, fields, &mut settings, key, item, classes);
        if let Some(rival) = key.instead_of.filter(|rival| key.name < *rival && fields.given(rival))
        {
            let message = format!("only one of `{}` and `{rival}` is possible", key.name);
            reader.fail(&item.at, fields.path_of(key.name), message);
            sound = false;
        }
    }
    for key in given {
        if let Some((other, words)) = key.with.filter(|_| !settings.applies(key)) {
            let message = format!("only together with {other} = \"{}\"", words.join("\" or \""));
            reader.fail_at(fields, key.name, message);
            sound = false;
        }
    }
    if sound {
        let faults = settings.faults();
        sound = faults.is_empty();
        faults.into_iter().for_each(|fault| note(reader, fields, fault));
    }
    (settings, sound)
}

/// Takes note of what does not fit, at the table and key that it is of.
fn note(reader: &mut Reader, fields: &Fields, fault: SettingError) {
    match fault {
        SettingError::Within { table, at, error } => match fields.nested(table, at) {
            // What stands there may be what could not be read, and has been told.
            Some(inner) if !inner.sound => {}
            Some(inner) => note(reader, inner, *error),
            None => reader.fail_at(fields, table, error.to_string()),
        },
        SettingError::Contradiction { key, message } if !key.is_empty() => {
            reader.fail_at(fields, key, message);
        }
        other => reader.fail(&fields.at, fields.path.clone(), other.to_string()),
    }
}

fn put<S: Settings>(
    reader: &mut Reader,
    fields: &Fields,
    settings: &mut S,
    key: &Key,
    item: &Item,
    classes: &[&str],
) -> bool {
    let path = fields.path_of(key.name);
    let Some(value) = held_by_class(reader, &path, &item.value, classes) else { return false };
    let taken = settings.put(key.name, None, &value) == Some(true);
    if !taken {
        reader.fail(&item.at, path, format!("expected {}", key.kind.expected()));
    }
    taken
}

/// As [`held`], with what stands in a table by class names. `None` after an unknown class.
fn held_by_class(reader: &mut Reader, path: &str, value: &Value, classes: &[&str]) -> Option<Held> {
    let Value::ByClass(items) = value else { return Some(held(value)) };
    let rest = items.iter().find(|(name, _)| name.is_none());
    let rest = rest.map_or(Held::Absent, |(_, item)| held(&item.value));
    let (mut own, mut sound) = (Vec::new(), true);
    for (name, item) in items {
        let Some(name) = name else { continue };
        let Some(at) = classes.iter().position(|class| class == name) else {
            let message = format!("no class {name:?}; {}", suggest(name, classes));
            reader.fail(&item.at, format!("{path}.{name}"), message);
            sound = false;
            continue;
        };
        if own.len() <= at {
            own.resize(at + 1, rest.clone());
        }
        own[at] = held(&item.value);
    }
    sound.then(|| Held::PerClass { rest: rest.into(), own })
}

/// A change of a setting of `section` as a command line says it: the value as in a file, a text
/// without its quotes. `classes` are the names of the classes.
///
/// # Errors
/// No such setting, or a value that is not of its type or range.
pub fn change_of(
    section: &'static Section,
    key: &str,
    text: &str,
    classes: &[&str],
) -> Result<Change, Diagnostics> {
    let (_, mut reader) = parse_toml("", "");
    let Some(known) = section.key(key) else {
        let names: Vec<_> = section.keys().map(|key| key.name).collect();
        reader.fail(
            &(0..0),
            "",
            format!("{} has no {key:?}; {}", section.name(), suggest(key, &names)),
        );
        return reader.finish(None);
    };
    let node = node(&known.kind, text.trim());
    let item = reader.value(&known.kind, &node, known.name);
    let value = item.and_then(|item| held_by_class(&mut reader, known.name, &item.value, classes));
    reader.finish(value.map(|value| Change { key: known.name, class: None, value }))
}

/// A text that does not stand in a TOML file, as the value that it would be there: texts without
/// their quotes.
#[must_use]
pub fn node(kind: &Kind, text: &str) -> SpannedValue {
    let plain = || SpannedValue { at: 0..0, data: Data::Text(text.to_owned()) };
    let is_text = match kind {
        Kind::Switch
        | Kind::Integer { .. }
        | Kind::Number { .. }
        | Kind::Table(_)
        | Kind::Variants(_) => false,
        Kind::List(_) => !text.starts_with('['),
        Kind::ByClass(_, _) if text.starts_with('{') => false,
        Kind::ByClass(of, _) => return node(of, text),
        _ => true,
    };
    if is_text { plain() } else { single(text).unwrap_or_else(|_not_toml| plain()) }
}

/// A value that was read, as settings hold it. Words keep their text; the reader has checked them.
#[must_use]
pub fn held(value: &Value) -> Held {
    match value {
        Value::Text(text) => Held::Text(text.clone()),
        Value::Switch(switch) => Held::Switch(*switch),
        Value::Integer(number) => Held::Integer(*number),
        Value::Number(number) => Held::Number(*number),
        Value::Time(time) => Held::Time(*time),
        Value::Rate(rate) => Held::Rate(*rate),
        Value::Size(size) => Held::Size(*size),
        Value::Prefix(prefix) => Held::Text(prefix.to_string()),
        Value::Ports(range) => Held::Text(format!("{}-{}", range.start(), range.end())),
        Value::List(items) => Held::List(items.iter().map(|item| held(&item.value)).collect()),
        Value::Table(fields) => {
            let kind = fields.kind.map(|kind| (KIND, Held::Text(kind.to_owned())));
            let entries = fields.entries().map(|(key, value)| (key, held(value)));
            Held::Table(kind.into_iter().chain(entries).collect())
        }
        Value::ByClass(items) => items.first().map_or(Held::Absent, |(_, item)| held(&item.value)),
        Value::Foreign(_) => Held::Absent,
    }
}

/// Settings with a meaning and a value, as `Settings::entries` gives them.
pub type Entries = Vec<(&'static Key, Held)>;

/// The settings that have a meaning and a value, as key and value on one line as a file has them.
/// `classes` are the names of the classes; one that each class has stands once, as a table.
pub fn entries<S: Settings>(settings: &S, classes: &[&str]) -> Vec<(&'static str, String)> {
    let entries = settings.entries().into_iter();
    entries.map(|(key, value)| (key.name, value.inline(classes))).collect()
}

/// The settings that have a meaning and a value, without quotes and one by one: `weight.voice`.
pub fn plain_entries<S: Settings>(settings: &S, classes: &[&str]) -> Vec<(String, String)> {
    plain_of(settings.entries(), classes)
}

/// These settings without quotes and one by one: `weight.voice`.
#[must_use]
pub fn plain_of(entries: Entries, classes: &[&str]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (key, value) in entries {
        if key.is_per_class() {
            let of = |(at, class): (usize, &&str)| {
                (format!("{}.{class}", key.name), value.of_class(at).plain(classes))
            };
            all.extend(classes.iter().enumerate().map(of));
        } else {
            all.push((key.name.to_owned(), value.plain(classes)));
        }
    }
    all
}

/// These settings as a table of a file.
#[must_use]
pub fn table_of(entries: Entries, classes: &[&str]) -> toml::Table {
    let mut table = toml::Table::new();
    for (key, value) in entries {
        // Every value is written as TOML, which reads it again.
        if let Ok(value) = value.inline(classes).parse::<toml::Value>() {
            table.insert(key.name.to_owned(), value);
        }
    }
    table
}

/// A value as people are told it: numbers by the names that they have.
#[must_use]
pub fn named(kind: &Kind, value: &Held) -> Held {
    mapped(kind, value, |kind, value| match (kind, value) {
        (Kind::Named { names, .. }, Held::Integer(number)) => {
            let known = names.iter().find(|(_, known)| u64::from(*known) == *number);
            known.map(|(name, _)| Held::Word(name))
        }
        _ => None,
    })
}

/// A value as people are told it, without what secrets in it are.
fn redacted(kind: &Kind, value: &Held) -> Held {
    let public = mapped(kind, value, |kind, value| match (kind, value) {
        (Kind::Secret(..), Held::Text(_)) => Some(Held::Word("a secret")),
        _ => None,
    });
    named(kind, &public)
}

/// A value in which `instead` takes the place of what it gives something for.
fn mapped(kind: &Kind, value: &Held, instead: fn(&Kind, &Held) -> Option<Held>) -> Held {
    if let Some(other) = instead(kind, value) {
        return other;
    }
    match (kind, value) {
        (Kind::List(of), Held::List(items)) => {
            Held::List(items.iter().map(|item| mapped(of, item, instead)).collect())
        }
        (Kind::Table(section), Held::Table(entries)) => {
            let of = |(name, value): &(&'static str, Held)| {
                let inner = |key: &Key| mapped(&key.kind, value, instead);
                (*name, section.key(name).map_or_else(|| value.clone(), inner))
            };
            Held::Table(entries.iter().map(of).collect())
        }
        (Kind::Variants(variants), Held::Table(_)) => {
            let known = variants.iter().find(|(kind, _)| value.kind() == Some(kind));
            let table = |section| mapped(&Kind::Table(section), value, instead);
            known.map_or(Held::Absent, |(_, section)| table(section))
        }
        (Kind::Tables { section, .. }, Held::List(items)) => {
            let of = |item: &Held| mapped(&Kind::Table(section), item, instead);
            Held::List(items.iter().map(of).collect())
        }
        _ => value.clone(),
    }
}

/// A setting that two have differently.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Its declaration.
    pub key: &'static Key,
    /// Its name; of one class `weight.voice`.
    pub name: String,
    /// What it was, without quotes; `none` if it was left out.
    pub was: String,
    /// What it becomes.
    pub is: String,
}

/// The settings that two have differently, in the order of their declaration. `classes`: the names
/// of the classes, which both have in common. What a secret is, is not told.
pub fn changes<S: Settings>(old: &S, new: &S, classes: &[&str]) -> Vec<Changed> {
    let of = |settings: &S, key: &Key| {
        let value = settings.applies(key).then(|| settings.get(key.name)).flatten();
        value.unwrap_or(Held::Absent)
    };
    let mut all = Vec::new();
    for key in S::SECTION.keys() {
        let (was, is) = (of(old, key), of(new, key));
        let mut differ = |name: String, was: &Held, is: &Held| {
            let (public, other) = (redacted(&key.kind, was), redacted(&key.kind, is));
            let is_secret = public != *was && was != is;
            let (was, mut is) = (public.plain(classes), other.plain(classes));
            if was == is && is_secret {
                is.push_str(" (another one)");
            }
            if was != is {
                all.push(Changed { key, name, was, is });
            }
        };
        if key.is_per_class() {
            for (at, class) in classes.iter().enumerate() {
                differ(format!("{}.{class}", key.name), was.of_class(at), is.of_class(at));
            }
        } else {
            differ(key.name.to_owned(), &was, &is);
        }
    }
    all
}
