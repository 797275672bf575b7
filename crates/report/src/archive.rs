//! A result as one file that another machine can run again: a tar (POSIX ustar) of the results and
//! of all that they were made from.
//!
//! Its first entry, `manifest.json`, names every other in order, with length and SHA-256. So an
//! archive that is cut off or altered is refused with what is wrong, and nothing of it is left. The
//! same files give the same bytes.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType, Header};

const FORMAT: &str = "evenkeel-pack";
const VERSION: u32 = 1;
const MANIFEST: &str = "manifest.json";
/// A manifest of more bytes is none.
const LONGEST_MANIFEST: u64 = 64 << 20;
/// What ends every tar.
const END: usize = 1_024;

/// What an archive says of its results.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Told {
    /// The program that made the results, with its version.
    pub program: String,
    /// The commit it was built from.
    pub commit: String,
    /// The command that made them.
    pub command: Vec<String>,
    /// Where the scenario is in the archive.
    pub scenario: String,
    /// The folder of the results in the archive.
    pub results: String,
}

/// The first entry of an archive.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Manifest {
    format: String,
    version: u32,
    #[serde(flatten)]
    told: Told,
    files: Vec<Packed>,
}

/// A file of an archive.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Packed {
    path: String,
    bytes: u64,
    sha256: String,
}

/// An archive could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}", path = path.display())]
pub struct ArchiveError {
    /// The archive, or a file of it.
    pub path: PathBuf,
    /// What is wrong.
    pub what: String,
}

fn fail(path: &Path, what: impl Into<String>) -> ArchiveError {
    ArchiveError { path: path.to_owned(), what: what.into() }
}

/// The SHA-256 of a file, in hexadecimal, and its length.
///
/// # Errors
/// It cannot be read.
pub fn digest(path: &Path) -> io::Result<(String, u64)> {
    copy_on(File::open(path)?, &mut io::sink())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes `files` (name in the archive, and where it is) and what `told` says of them into `out`,
/// which is there when it is whole and not before. Gives the SHA-256 of the manifest, by which the
/// archive can be cited.
///
/// # Errors
/// What cannot be read or written.
pub fn pack(out: &Path, files: &[(String, PathBuf)], told: Told) -> Result<String, ArchiveError> {
    let mut packed = Vec::new();
    for (name, at) in files {
        let (sha256, bytes) =
            digest(at).map_err(|error| fail(at, format!("cannot read: {error}")))?;
        packed.push(Packed { path: name.clone(), bytes, sha256 });
    }
    let manifest = Manifest { format: FORMAT.into(), version: VERSION, told, files: packed };
    let text = serde_json::to_vec_pretty(&manifest).expect("a manifest is plain data");
    let unfinished = out.with_extension("unfinished");
    let written =
        write(&unfinished, &text, files, &manifest).and_then(|()| fs::rename(&unfinished, out));
    if let Err(error) = written {
        // What is left of it is no archive.
        let _ = fs::remove_file(&unfinished);
        return Err(fail(out, format!("cannot write: {error}")));
    }
    Ok(hex(&Sha256::digest(&text)))
}

fn write(
    out: &Path,
    manifest: &[u8],
    files: &[(String, PathBuf)],
    of: &Manifest,
) -> io::Result<()> {
    let mut tar = Builder::new(BufWriter::new(File::create(out)?));
    entry(&mut tar, MANIFEST, manifest.len() as u64, manifest)?;
    for ((name, at), packed) in files.iter().zip(&of.files) {
        let file = File::open(at)?;
        if file.metadata()?.len() != packed.bytes {
            let message = format!("{} changed meanwhile", at.display());
            return Err(io::Error::other(message));
        }
        entry(&mut tar, name, packed.bytes, file.take(packed.bytes))?;
    }
    tar.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn entry(tar: &mut Builder<impl Write>, name: &str, bytes: u64, from: impl Read) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_entry_type(EntryType::Regular);
    tar.append_data(&mut header, name, from)
}

/// Puts what an archive holds into `folder`, which must be empty or missing; where anything is
/// wrong with it, nothing.
///
/// # Errors
/// It is no archive of this kind, of a version that this program does not know, cut off, or
/// altered.
pub fn unpack(archive: &Path, folder: &Path) -> Result<Told, ArchiveError> {
    let there = folder.exists();
    if there && fs::read_dir(folder).is_ok_and(|mut inside| inside.next().is_some()) {
        return Err(fail(folder, "is there and not empty: give another folder with --out"));
    }
    let done = unpack_into(archive, folder);
    if done.is_err() {
        // Only what was made here goes.
        let _ = fs::remove_dir_all(folder);
        if there {
            let _ = fs::create_dir(folder);
        }
    }
    done
}

fn unpack_into(archive: &Path, folder: &Path) -> Result<Told, ArchiveError> {
    let wrong = |what: String| fail(archive, what);
    let cut = |what: &str| wrong(format!("cut off or not whole: {what}"));
    let unread = |error: io::Error| wrong(format!("cannot be read as a tar: {error}"));
    let mut file = File::open(archive).map_err(|error| wrong(format!("cannot read: {error}")))?;
    ends(&mut file).map_err(unread)?.then_some(()).ok_or_else(|| cut("it has no end"))?;
    let mut tar = Archive::new(BufReader::new(file));
    let mut entries = tar.entries().map_err(unread)?;
    let mut next = || entries.next().transpose().map_err(unread);

    let first = next()?.ok_or_else(|| cut("it is empty"))?;
    let named = first.path().is_ok_and(|path| path == Path::new(MANIFEST));
    if !named || first.size() > LONGEST_MANIFEST {
        return Err(wrong(format!("no archive of evenkeel: it does not begin with {MANIFEST}")));
    }
    let mut text = Vec::new();
    first.take(LONGEST_MANIFEST).read_to_end(&mut text).map_err(unread)?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("{MANIFEST} is altered: {error}")))?;
    if manifest.format != FORMAT || manifest.version != VERSION {
        let (format, version) = (&manifest.format, manifest.version);
        let known = format!("this program reads {FORMAT} version {VERSION}");
        return Err(wrong(format!("{format} version {version}; {known}")));
    }
    for packed in &manifest.files {
        let name = &packed.path;
        let inner = inside(name).ok_or_else(|| wrong(format!("{name:?} leads out of it")))?;
        let found = next()?.ok_or_else(|| cut(&format!("{name} is missing")))?;
        let same = found.path().is_ok_and(|path| path == inner)
            && found.header().entry_type() == EntryType::Regular
            && found.size() == packed.bytes;
        if !same {
            return Err(wrong(format!("altered: where {name} should be is something else")));
        }
        let to = folder.join(inner);
        let sum = copy(found, &to).map_err(|error| fail(&to, format!("cannot write: {error}")))?;
        if sum != packed.sha256 {
            return Err(wrong(format!("altered or cut off: {name} is not what the manifest says")));
        }
    }
    if next()?.is_some() {
        return Err(wrong("altered: it holds more than its manifest says".to_owned()));
    }
    Ok(manifest.told)
}

/// Whether a file ends as a tar does; it is at its beginning again then.
fn ends(file: &mut File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    if length < END as u64 || length % 512 != 0 {
        return Ok(false);
    }
    let mut end = [1; END];
    file.seek(SeekFrom::End(-(END as i64)))?;
    file.read_exact(&mut end)?;
    file.rewind()?;
    Ok(end == [0; END])
}

/// A name in an archive as a path below a folder; `None` if it leads elsewhere.
fn inside(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && !name.is_empty()).then_some(path)
}

/// Writes a new file and gives its SHA-256.
fn copy(from: impl Read, to: &Path) -> io::Result<String> {
    fs::create_dir_all(to.parent().unwrap_or(Path::new("")))?;
    let mut out = BufWriter::new(File::options().write(true).create_new(true).open(to)?);
    let (sum, _) = copy_on(from, &mut out)?;
    out.flush()?;
    Ok(sum)
}

/// Copies everything; its SHA-256 and length.
fn copy_on(mut from: impl Read, to: &mut impl Write) -> io::Result<(String, u64)> {
    let (mut sum, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok((hex(&sum.finalize()), bytes)),
            some => {
                sum.update(&buffer[..some]);
                to.write_all(&buffer[..some])?;
                bytes += some as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Told {
        let command = ["evenkeel", "sim", "a.toml"].map(str::to_owned);
        let (scenario, results) = ("inputs/a.toml".to_owned(), "results".to_owned());
        Told { command: command.into(), scenario, results, ..Told::default() }
    }

    /// An archive of two files in a folder of its own.
    fn packed() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&a, "name = \"a\"\n").unwrap();
        fs::write(&b, vec![7; 1_500]).unwrap();
        let out = folder.path().join("x.tar");
        let files = [("inputs/a.toml".to_owned(), a), ("results/deep/b".to_owned(), b)];
        pack(&out, &files, told()).unwrap();
        (folder, out)
    }

    /// What unpacking these bytes comes to, and what it leaves.
    fn opened(folder: &Path, bytes: &[u8]) -> (Result<Told, String>, bool) {
        let (archive, to) = (folder.join("y.tar"), folder.join("to"));
        fs::write(&archive, bytes).unwrap();
        let opened = unpack(&archive, &to).map_err(|error| error.to_string());
        let whole = fs::read(to.join("inputs/a.toml")).is_ok_and(|a| a == b"name = \"a\"\n")
            && fs::read(to.join("results/deep/b")).is_ok_and(|b| b == vec![7; 1_500]);
        let left = to.exists();
        let _ = fs::remove_dir_all(&to);
        assert_eq!(left, opened.is_ok(), "nothing is left of what was refused");
        (opened, whole)
    }

    #[test]
    fn what_was_packed_comes_out_and_the_same_files_give_the_same_bytes() {
        let (folder, out) = packed();
        let bytes = fs::read(&out).unwrap();
        let (manifest, whole) = opened(folder.path(), &bytes);
        assert!(whole);
        assert_eq!(manifest.unwrap().command, told().command);
        assert_eq!(bytes, fs::read(packed().1).unwrap());
        fs::create_dir(folder.path().join("full")).unwrap();
        fs::write(folder.path().join("full/x"), "mine").unwrap();
        let error = unpack(&out, &folder.path().join("full")).unwrap_err().to_string();
        assert!(error.contains("not empty"), "{error}");
        assert!(folder.path().join("full/x").exists());
    }

    #[test]
    fn an_archive_cut_at_any_length_is_refused() {
        let (folder, out) = packed();
        let bytes = fs::read(out).unwrap();
        for length in (0..bytes.len()).step_by(37).chain(bytes.len() - 3..bytes.len()) {
            let (opened, _) = opened(folder.path(), &bytes[..length]);
            let error = opened.expect_err("it is cut off");
            assert!(error.contains("cut off") || error.contains("read as a tar"), "{error}");
        }
    }

    #[test]
    fn whatever_byte_is_altered_what_comes_out_is_what_went_in_or_nothing() {
        let (folder, out) = packed();
        let bytes = fs::read(out).unwrap();
        let mut refused = 0;
        for at in (0..bytes.len()).step_by(13) {
            let mut altered = bytes.clone();
            altered[at] ^= 0x20;
            match opened(folder.path(), &altered) {
                (Ok(_), whole) => assert!(whole, "byte {at}"),
                (Err(_), _) => refused += 1,
            }
        }
        assert!(refused > 150, "{refused}");
    }

    #[test]
    fn a_name_that_leads_out_and_a_file_too_many_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "x").unwrap();
        for name in ["../a", "/a", "a/../../b", ""] {
            assert_eq!(inside(name), None, "{name}");
        }
        let out = folder.path().join("x.tar");
        pack(&out, &[("a".to_owned(), file)], told()).unwrap();
        let mut bytes = fs::read(&out).unwrap();
        let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes.truncate((last + 1).next_multiple_of(512));
        let mut more = Builder::new(bytes);
        entry(&mut more, "b", 1, &b"y"[..]).unwrap();
        let (opened, _) = opened(folder.path(), &more.into_inner().unwrap());
        assert!(opened.unwrap_err().contains("more than its manifest says"));
    }
}
