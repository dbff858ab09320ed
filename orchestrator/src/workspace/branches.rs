//! The Agent's work survives its Workspace: branches, and what was not committed, are fetched out of the clone
//! (decision 47).
//!
//! The clone was in an Agent's hands, so no git command runs on it but `upload-pack`, which serves untrusted repositories.
//! Everything else happens in a scratch repository of our own that only borrows the worktree's files.

use super::SavedBranch;
use super::git::{AGENT_EMAIL, AGENT_NAME, Git, GitError, Slot, Trust};
use jr2_shared::repo::Transport;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Most names tried for a branch before the Workspace is kept instead: `b`, `b-2` … `b-99`.
const NAMES_MAX: usize = 99;
/// Times a name lost to somebody else is chosen anew.
const RACES_MAX: usize = 5;
/// What the branch of uncommitted work ends with.
const UNCOMMITTED_SUFFIX: &str = "-uncommitted";
/// Where the scratch repository keeps the Workspace's branch.
const SCRATCH_REF: &str = "refs/jr2/branch";
/// File mode of a nested repository in git's listings.
const GITLINK_MODE: &[u8] = b"160000 ";

/// Why a branch could not be saved; its Workspace is kept.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// git said no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A folder could not be read or made.
    #[error("{path}: {error}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
    /// A folder of the Workspace was replaced by something else.
    #[error("{0} is no plain folder any more")]
    NotAFolder(PathBuf),
    /// Every candidate name is taken.
    #[error("every name from `{0}` to `{0}-{NAMES_MAX}` is taken in {1}")]
    NamesTaken(String, PathBuf),
}

/// Saves one slot's branch and, when its worktree holds changes, a second branch with them. Repeating it changes nothing.
///
/// `scratch` is removed before and after; `kept` holds one bare repository a slot for sources that are not local.
pub async fn save_slot(git: &Git, slot: &Slot, scratch: &Path, kept: &Path) -> Result<Vec<SavedBranch>, SaveError> {
    for dir in [slot.dir.clone(), slot.clone_dir(), slot.clone_dir().join(".git")] {
        plain_folder(&dir)?;
    }
    let destination = destination(git, slot, kept).await?;
    remove(scratch).await?;
    let saved = save_through(git, slot, scratch, &destination).await;
    remove(scratch).await?;
    saved
}

async fn save_through(
    git: &Git,
    slot: &Slot,
    scratch: &Path,
    destination: &Path,
) -> Result<Vec<SavedBranch>, SaveError> {
    init_bare(git, scratch).await?;
    borrow_objects(git, scratch, destination).await?;
    let refspec = format!("+refs/heads/{}:{SCRATCH_REF}", slot.branch);
    let clone = slot.clone_dir();
    let mut fetch = fetch_arguments();
    fetch.extend(["--update-shallow".as_ref(), "--".as_ref(), clone.as_os_str(), refspec.as_ref()]);
    git.text(scratch, &fetch).await?;
    let commit = git.text(scratch, &["rev-parse", "--verify", SCRATCH_REF]).await?;
    let mut saved = vec![publish(git, slot, scratch, destination, &slot.branch, &commit).await?];
    // A worktree the Agent removed has nothing left to save.
    if plain_folder(&slot.worktree()).is_ok() {
        let nested = super::nested::nested_repositories(&slot.worktree()).await;
        if let Some(extra) = commit_worktree(git, slot, scratch, &commit, &nested).await? {
            let name = format!("{}{UNCOMMITTED_SUFFIX}", slot.branch);
            saved.push(publish(git, slot, scratch, destination, &name, &extra).await?);
        }
        if let Some(last) = saved.last_mut() {
            last.left_out = nested.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        }
    }
    Ok(saved)
}

async fn destination(git: &Git, slot: &Slot, kept: &Path) -> Result<PathBuf, SaveError> {
    if slot.url.transport == Transport::Local {
        return Ok(PathBuf::from(&slot.url.dial));
    }
    let path = kept.join(format!("{}.git", slot.binding.slot));
    if tokio::fs::symlink_metadata(path.join("HEAD")).await.is_err() {
        init_bare(git, &path).await?;
    }
    Ok(path)
}

async fn init_bare(git: &Git, path: &Path) -> Result<(), SaveError> {
    tokio::fs::create_dir_all(path).await.map_err(|error| SaveError::Io { path: path.into(), error })?;
    git.text(path, &["init", "--bare", "--quiet", "--template=", "."]).await?;
    Ok(())
}

/// Lets the scratch repository see the destination's objects, so that only new ones are copied.
async fn borrow_objects(git: &Git, scratch: &Path, destination: &Path) -> Result<(), SaveError> {
    let objects = git.text(destination, &["rev-parse", "--path-format=absolute", "--git-path", "objects"]).await?;
    let path = scratch.join("objects/info");
    let write = async {
        tokio::fs::create_dir_all(&path).await?;
        tokio::fs::write(path.join("alternates"), format!("{objects}\n")).await
    };
    write.await.map_err(|error| SaveError::Io { path: path.clone(), error })
}

/// The worktree's files as a commit on top of `parent`, or `None` when they are the same. Deterministic: a repeat makes the
/// same commit.
async fn commit_worktree(
    git: &Git,
    slot: &Slot,
    scratch: &Path,
    parent: &str,
    nested: &[PathBuf],
) -> Result<Option<String>, SaveError> {
    let worktree = slot.worktree();
    let when = git.text(scratch, &["log", "-1", "--format=%ct +0000", parent]).await?;
    let mut variables: Vec<(&str, OsString)> = vec![
        ("GIT_DIR", scratch.into()),
        ("GIT_WORK_TREE", worktree.clone().into()),
        ("GIT_INDEX_FILE", scratch.join("jr2-index").into()),
    ];
    for who in ["AUTHOR", "COMMITTER"] {
        let (name, email, date) = match who {
            "AUTHOR" => ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"),
            _ => ("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE"),
        };
        variables.extend([(name, AGENT_NAME.into()), (email, AGENT_EMAIL.into()), (date, OsString::from(&when))]);
    }
    let run =
        async |args: &[&str], stdin: Option<Vec<u8>>| git.run(&worktree, Trust::Sealed, args, &variables, stdin).await;
    run(&["read-tree", parent], None).await?;
    let listing = run(&["ls-files", "--stage", "-z"], None).await?;
    // A nested repository is never looked into: git would run a command inside it.
    let paths = without(&listing, nested);
    run(&["add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"], Some(paths)).await?;
    let trimmed = |out: Vec<u8>| String::from_utf8_lossy(&out).trim().to_owned();
    let tree = trimmed(run(&["write-tree"], None).await?);
    let before = git.text(scratch, &["rev-parse", "--verify", &format!("{parent}^{{tree}}")]).await?;
    if tree == before {
        return Ok(None);
    }
    let message = format!("Uncommitted work of the Workspace on {}", slot.branch);
    Ok(Some(trimmed(run(&["commit-tree", &tree, "-p", parent, "-m", &message], None).await?)))
}

/// Everything, less the nested repositories of an index listing and those found in the worktree, as NUL-separated
/// pathspecs.
fn without(listing: &[u8], nested: &[PathBuf]) -> Vec<u8> {
    let links = listing.split(|b| *b == 0).filter(|e| e.starts_with(GITLINK_MODE));
    let links = links.filter_map(|entry| Some(&entry[entry.iter().position(|b| *b == b'\t')? + 1..]));
    let found = nested.iter().map(|path| path.as_os_str().as_encoded_bytes());
    let mut out = b".".to_vec();
    for path in links.chain(found) {
        out.extend_from_slice(b"\0:(top,exclude,literal)");
        out.extend_from_slice(path);
    }
    out
}

/// Brings a commit of the scratch repository into the destination and gives it a name there. Objects and one new ref: no
/// existing ref, no index and no file of the user's repository is touched.
async fn publish(
    git: &Git,
    slot: &Slot,
    scratch: &Path,
    destination: &Path,
    branch: &str,
    commit: &str,
) -> Result<SavedBranch, SaveError> {
    git.text(scratch, &["update-ref", "refs/jr2/publish", commit]).await?;
    let mut fetch = fetch_arguments();
    fetch.extend(["--".as_ref(), scratch.as_os_str(), "refs/jr2/publish".as_ref()]);
    git.text(destination, &fetch).await?;
    let taken = || SaveError::NamesTaken(branch.to_owned(), destination.to_owned());
    let zero = "0".repeat(commit.len());
    for race in 0..RACES_MAX {
        let listing = git
            .text(destination, &["for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads"])
            .await?;
        let heads: Vec<(&str, &str)> = listing.lines().filter_map(|l| l.split_once(' ')).collect();
        let choice = choose_name(&heads, branch, commit).ok_or_else(taken)?;
        let name = match &choice {
            Choice::There(name) | Choice::Free(name) => name.clone(),
        };
        if let Choice::Free(name) = &choice {
            let made = git.text(destination, &["update-ref", &format!("refs/heads/{name}"), commit, &zero]).await;
            match made {
                Ok(_) => {}
                Err(_) if race + 1 < RACES_MAX => continue,
                Err(error) => return Err(error.into()),
            }
        }
        return Ok(SavedBranch {
            slot: slot.binding.slot.clone(),
            repository: destination.to_string_lossy().into_owned(),
            branch: name,
            commit: commit.to_owned(),
            left_out: Vec::new(),
            kept: None,
        });
    }
    Err(taken())
}

fn fetch_arguments() -> Vec<&'static OsStr> {
    ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance"]
        .iter()
        .map(OsStr::new)
        .collect()
}

/// Which name a commit gets.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// A branch of this name already is at the commit.
    There(String),
    /// Nobody has this name.
    Free(String),
}

/// The first of `b`, `b-2`, `b-3` … that is free or already at the commit. git keeps refs as paths: where `a` exists there
/// is no room for `a/b`, and the name is tried with `-` for `/`.
fn choose_name(heads: &[(&str, &str)], branch: &str, commit: &str) -> Option<Choice> {
    let flat = branch.replace('/', "-");
    let numbered = |base: &str| {
        let base = base.to_owned();
        (1..=NAMES_MAX).map(move |n| if n == 1 { base.clone() } else { format!("{base}-{n}") })
    };
    for name in numbered(branch).chain(numbered(&flat)) {
        if let Some((at, _)) = heads.iter().find(|(_, head)| *head == name) {
            if *at == commit {
                return Some(Choice::There(name));
            }
            continue;
        }
        let blocked = heads.iter().any(|(_, head)| inside(head, &name) || inside(&name, head));
        if !blocked {
            return Some(Choice::Free(name));
        }
    }
    None
}

fn inside(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn plain_folder(path: &Path) -> Result<(), SaveError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(SaveError::NotAFolder(path.into())),
        Err(error) => Err(SaveError::Io { path: path.into(), error }),
    }
}

async fn remove(path: &Path) -> Result<(), SaveError> {
    match tokio::fs::remove_dir_all(path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(SaveError::Io { path: path.into(), error }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(name: &str) -> Choice {
        Choice::Free(name.into())
    }

    #[test]
    fn a_name_is_reused_only_for_the_same_commit() {
        assert_eq!(choose_name(&[], "jr2/x", "c1"), Some(free("jr2/x")));
        assert_eq!(choose_name(&[("c1", "jr2/x")], "jr2/x", "c1"), Some(Choice::There("jr2/x".into())));
        assert_eq!(choose_name(&[("c0", "jr2/x")], "jr2/x", "c1"), Some(free("jr2/x-2")));
        let heads = [("c0", "jr2/x"), ("c1", "jr2/x-2")];
        assert_eq!(choose_name(&heads, "jr2/x", "c1"), Some(Choice::There("jr2/x-2".into())));
    }

    #[test]
    fn refs_that_stand_in_each_others_way_are_avoided() {
        assert_eq!(choose_name(&[("c0", "jr2")], "jr2/x", "c1"), Some(free("jr2-x")));
        assert_eq!(choose_name(&[("c0", "x/y")], "x", "c1"), Some(free("x-2")));
    }

    #[test]
    fn nested_repositories_are_left_out() {
        let listing = b"100644 aaaa 0\ta.txt\x00160000 bbbb 0\tsub dir\x00";
        assert_eq!(without(listing, &[]), b".\0:(top,exclude,literal)sub dir");
        let expected = b".\0:(top,exclude,literal)sub dir\0:(top,exclude,literal)new/one";
        assert_eq!(without(listing, &["new/one".into()]), expected);
    }
}
