//! `write` and `edit`: whole files, replaced in one step so that a reader or a crash sees the old or the new one.

use super::Job;
use super::root::kind_name;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use serde::Deserialize;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Largest file that `edit` takes, in bytes: it is held in memory twice.
const EDIT_MAX_BYTES: i64 = 16 << 20;
/// Most line numbers named for an ambiguous text.
const PLACES_MAX: usize = 10;
/// Mode of a new file before the process's mask.
const NEW_FILE_MODE: u32 = 0o666;
/// Mode of a new folder before the process's mask.
const NEW_FOLDER_MODE: u32 = 0o777;
/// Mode bits an existing file keeps.
const KEPT_MODE_BITS: u32 = 0o7777;

#[derive(Debug, Deserialize)]
pub(super) struct Write {
    #[serde(alias = "file_path", alias = "filePath", alias = "file")]
    path: String,
    #[serde(alias = "text")]
    content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Edit {
    #[serde(alias = "file_path", alias = "filePath", alias = "file")]
    path: String,
    #[serde(rename = "oldText", alias = "old_text", alias = "old_string", alias = "oldString", alias = "old")]
    old: String,
    #[serde(rename = "newText", alias = "new_text", alias = "new_string", alias = "newString", alias = "new")]
    new: String,
    #[serde(rename = "replaceAll", alias = "replace_all", default)]
    all: bool,
}

pub(super) fn write(job: &Job, args: Write) -> Result<String, String> {
    let given = job.root.relative(&args.path)?;
    let found = job.root.follow(&given)?;
    let (relative, old) = match &found {
        Some((real, stat)) => (real.clone(), Some(stat)),
        None => (given.clone(), None),
    };
    replace(job, &relative, old, args.content.as_bytes())?;
    let lines = args.content.lines().count();
    let verb = if found.is_some() { "Replaced" } else { "Created" };
    Ok(format!("{verb} {}: {lines} lines, {} bytes.", given.display(), args.content.len()))
}

pub(super) fn edit(job: &Job, args: Edit) -> Result<String, String> {
    let given = job.root.relative(&args.path)?;
    let name = given.display();
    let (file, stat) = job.root.open_file(&given)?;
    if args.old.is_empty() {
        return Err("oldText is empty; use write to make a whole file.".to_owned());
    }
    if args.old == args.new {
        return Err("oldText and newText are the same; nothing was changed.".to_owned());
    }
    if stat.st_size > EDIT_MAX_BYTES {
        return Err(format!("{name} is larger than {} MiB; use bash.", EDIT_MAX_BYTES >> 20));
    }
    let mut text = Vec::new();
    file.take(EDIT_MAX_BYTES as u64 + 1).read_to_end(&mut text).map_err(|e| format!("{name}: {e}."))?;
    job.go_on()?;

    let (mut old, mut new) = (args.old, args.new);
    let mut places = find(&text, old.as_bytes());
    if places.is_empty() && !old.contains('\r') && old.contains('\n') {
        // A file with CR LF line ends, and a model that sees none of them.
        (old, new) = (old.replace('\n', "\r\n"), new.replace("\r\n", "\n").replace('\n', "\r\n"));
        places = find(&text, old.as_bytes());
    }
    let lines: Vec<String> = places.iter().take(PLACES_MAX).map(|at| line_of(&text, *at).to_string()).collect();
    let lines = lines.join(", ") + if places.len() > PLACES_MAX { ", …" } else { "" };
    match places.len() {
        0 => return Err(not_found(&name.to_string(), &text, &old)),
        n if n > 1 && !args.all => {
            return Err(format!(
                "oldText stands {n} times in {name}, at lines {lines}. Nothing was changed: add text around it until it is \
                 the only one, or set replaceAll."
            ));
        }
        _ => {}
    }
    let mut result = Vec::with_capacity(text.len());
    let mut from = 0;
    for at in &places {
        result.extend_from_slice(&text[from..*at]);
        result.extend_from_slice(new.as_bytes());
        from = at + old.len();
    }
    result.extend_from_slice(&text[from..]);
    let (relative, stat) = job.root.follow(&given)?.ok_or_else(|| format!("{name} is gone."))?;
    replace(job, &relative, Some(&stat), &result)?;
    let places = places.len();
    Ok(format!("Edited {name}: {places} {}, at lines {lines}.", if places == 1 { "place" } else { "places" }))
}

/// Where `old` stands, overlaps left out.
fn find(text: &[u8], old: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    while at + old.len() <= text.len() {
        let Some(next) = text[at..=text.len() - old.len()].iter().position(|b| *b == old[0]) else { break };
        at += next;
        if text[at..].starts_with(old) {
            places.push(at);
            at += old.len();
        } else {
            at += 1;
        }
    }
    places
}

fn line_of(text: &[u8], at: usize) -> usize {
    text[..at].split(|b| *b == b'\n').count()
}

/// Says where a text stands that differs only in white space: the usual slip.
fn not_found(name: &str, text: &[u8], old: &str) -> String {
    let text = String::from_utf8_lossy(text);
    let wanted: Vec<&str> = old.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let have: Vec<(usize, &str)> =
        text.lines().enumerate().map(|(n, l)| (n + 1, l.trim())).filter(|(_, l)| !l.is_empty()).collect();
    let near = (!wanted.is_empty())
        .then(|| have.windows(wanted.len()).find(|w| w.iter().map(|(_, l)| *l).eq(wanted.iter().copied())))
        .flatten();
    match near.and_then(|w| w.first()) {
        Some((line, _)) => format!(
            "oldText is not in {name}; a text that differs only in white space is at line {line}. Read it and copy it exactly."
        ),
        None => format!("oldText is not in {name}. Read the file again: it must match exactly, white space included."),
    }
}

/// Puts a new file in the place of `relative`, which holds no symbolic link when it exists.
fn replace(job: &Job, relative: &Path, old: Option<&Stat>, content: &[u8]) -> Result<(), String> {
    let explain = |error: Errno| job.root.explain(relative, error);
    if let Some(stat) = old {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            return Err(format!("{} is {}, not a file.", relative.display(), kind_name(kind)));
        }
    }
    let name = relative.file_name().ok_or_else(|| format!("{} names no file.", relative.display()))?;
    let folder = make_folders(job, relative.parent().unwrap_or(Path::new("")))?;
    let temporary = temporary_name()?;
    let (mut file, nameless) = new_file(&folder, &temporary).map_err(explain)?;
    let mut fill = || -> Result<(), String> {
        let io = |e: std::io::Error| format!("{} cannot be written: {e}.", relative.display());
        file.write_all(content).map_err(io)?;
        if let Some(stat) = old {
            // Only root may give a file away; for others it is theirs already, or a copy of their own.
            let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            let _ = rustix::fs::fchown(&file, Some(user), Some(group));
            rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & KEPT_MODE_BITS)).map_err(explain)?;
        }
        // Else a power cut after the rename could leave an empty file.
        file.sync_data().map_err(io)?;
        job.go_on()?;
        if nameless {
            let open = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(rustix::fs::CWD, &open, &folder, &temporary, AtFlags::SYMLINK_FOLLOW)
                .map_err(explain)?;
        }
        rustix::fs::renameat(&folder, &temporary, &folder, name).map_err(explain)
    };
    fill().inspect_err(|_| {
        let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
    })
}

/// A new file in a folder, and whether it has no name yet: then a kill in mid-write leaves nothing that a later
/// `git add` would find. File systems without such files get one under the temporary name.
fn new_file(folder: &OwnedFd, temporary: &str) -> Result<(File, bool), Errno> {
    let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(NEW_FILE_MODE));
    match rustix::fs::openat(folder, ".", flags | OFlags::TMPFILE, mode) {
        Ok(fd) => Ok((File::from(fd), true)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            rustix::fs::openat(folder, temporary, flags, mode).map(|fd| (File::from(fd), false))
        }
        Err(error) => Err(error),
    }
}

/// Opens a folder beneath the root, making what is missing.
fn make_folders(job: &Job, folder: &Path) -> Result<OwnedFd, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let mut path = PathBuf::from(".");
    let explain = |path: &Path, error: Errno| job.root.explain(path, error);
    let mut open = job.root.open_at(&path, flags).map_err(|e| explain(&path, e))?;
    for part in folder.components() {
        path.push(part);
        open = match (job.root.open_at(&path, flags), part) {
            (Ok(next), _) => next,
            (Err(Errno::NOENT), Component::Normal(name)) => {
                match rustix::fs::mkdirat(&open, name, Mode::from_raw_mode(NEW_FOLDER_MODE)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(explain(&path, error)),
                }
                job.root.open_at(&path, flags).map_err(|e| explain(&path, e))?
            }
            (Err(error), _) => return Err(explain(&path, error)),
        };
    }
    Ok(open)
}

fn temporary_name() -> Result<String, String> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(|e| format!("No random name: {e}."))?;
    Ok(format!(".jr2-{:016x}.tmp", u64::from_le_bytes(bytes)))
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
