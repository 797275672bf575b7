//! `ctl running` and `ctl save`: the configuration that runs, as a file.

use std::fmt::Write as _;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use evenkeel_config::RouterConfig;
use evenkeel_control::Running;
use serde_json::json;

use crate::changes::undone;
use crate::check::{absolute, has_key};
use crate::failure::{Failure, Outcome};
use crate::out::{print, print_json};

/// Mode of a file that was not there, and of one that keys of tunnels are in: the group of its
/// folder, which a router without privileges is of, reads it.
const USUAL: u32 = 0o644;
const SECRET: u32 = 0o640;

pub(super) fn print_running(running: &Running, json: bool) -> Outcome {
    if json {
        return print_json(&json!(running));
    }
    let mut text = String::new();
    if let Some(file) = &running.file {
        let _ = writeln!(text, "# What runs: {file}");
    } else {
        text += "# What runs, which came from no file.\n";
    }
    for change in &running.live {
        let _ = writeln!(text, "# changed since: {change}");
    }
    if let Some(left) = running.undone_in_ms {
        let _ = writeln!(text, "# {}", undone(left));
    }
    print(&format!("{text}{}", running.text))
}

/// Writes what runs into `file`, or into the file that the router starts from.
pub(super) fn save(running: &Running, file: Option<&Path>, json: bool) -> Outcome {
    let start = running.start_file.as_deref().map(Path::new);
    let Some(file) = file.or(start) else {
        let text = "the router was not started from a file: name one (evenkeel ctl save FILE)";
        return Err(Failure::input(text));
    };
    if running.undone_in_ms.is_some() {
        let text = "a change waits to be confirmed (`evenkeel ctl confirm`) or undone: what runs \
                    may not stay";
        return Err(Failure::input(text));
    }
    let file = absolute(file);
    let wanted = RouterConfig::parse(&running.text, "what runs")?;
    let before = RouterConfig::load(&file).ok();
    let same = before.as_ref() == Some(&wanted);
    let kept = if same { None } else { write(&file, &running.text, has_key(&wanted))? };
    if json {
        return print_json(&json!({ "ok": true, "file": file, "written": !same, "before": kept }));
    }
    let file = file.display();
    print(&match kept {
        _ if same => format!("{file} says what runs already: it was left as it is\n"),
        Some(kept) => format!("{file} written; what was in it is in {}\n", kept.display()),
        None => format!("{file} written\n"),
    })
}

/// Writes a file so that there is the old one or the new one at any time, with the owner and mode
/// that it had. What was in it is in the file that is returned.
pub(crate) fn write(file: &Path, text: &str, secret: bool) -> Result<Option<PathBuf>, Failure> {
    // What a link points to is written, not the link.
    let file = &fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let failed = |error: io::Error| {
        let code = if error.kind() == ErrorKind::PermissionDenied { 3 } else { 1 };
        Failure::new(code, format!("cannot write {}: {error}", file.display()))
    };
    let before = match fs::metadata(file) {
        Ok(before) if !before.is_file() => {
            return Err(Failure::input(format!("{} is not a file", file.display())));
        }
        Ok(before) => Some(before),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let folder = file.parent().unwrap_or_else(|| Path::new("/"));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    new.write_all(text.as_bytes()).map_err(failed)?;
    let group = fs::metadata(folder).map_err(failed)?.gid();
    take_owner_and_mode(new.as_file(), before.as_ref(), group, secret).map_err(failed)?;
    new.as_file().sync_all().map_err(failed)?;
    let kept = before.is_some().then(|| beside(file));
    if let Some(kept) = &kept {
        let _ = fs::remove_file(kept);
        fs::hard_link(file, kept).map_err(failed)?;
    }
    new.persist(file).map_err(|error| failed(error.error))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    Ok(kept)
}

/// As the file had them; `group` and what is usual where there was none.
fn take_owner_and_mode(
    new: &File,
    before: Option<&Metadata>,
    group: u32,
    secret: bool,
) -> io::Result<()> {
    let usual = if secret { SECRET } else { USUAL };
    let mode = before.map_or(usual, |before| before.mode() & 0o7777);
    // Keys that were not in it before may not be for everybody.
    let mode = if secret { mode & !0o007 } else { mode };
    if let Some(before) = before {
        let own = new.metadata()?;
        if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
            fchown(new, Some(before.uid()), Some(before.gid()))?;
        }
    } else if new.metadata()?.gid() != group {
        // Who may not give files away keeps them for itself.
        let _ = fchown(new, None, Some(group));
    }
    new.set_permissions(Permissions::from_mode(mode))
}

/// Where what was in a file stays.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("~");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_mode_and_what_was_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("router.toml");
        fs::write(&file, "# mine\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o664)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let kept = write(&link, "new\n", false).unwrap_or_else(|error| panic!("{}", error.text));
        assert_eq!(fs::read_to_string(&file).unwrap(), "new\n");
        assert_eq!(fs::read_to_string(kept.unwrap()).unwrap(), "# mine\n");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o664);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(write(&file, "keys\n", true).is_ok_and(|kept| kept.is_some()));
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o660);
        // Nothing else is left in the folder.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let refused = write(folder.path(), "new", false).unwrap_err();
        assert_eq!(refused.code, 2);
        let missing = folder.path().join("none/router.toml");
        let refused = write(&missing, "new", false).unwrap_err();
        assert!(refused.text.contains("none/router.toml"), "{}", refused.text);
        let fresh = folder.path().join("fresh.toml");
        assert!(write(&fresh, "keys", true).is_ok_and(|kept| kept.is_none()));
        assert_eq!(fs::metadata(&fresh).unwrap().mode() & 0o777, SECRET);
    }
}
