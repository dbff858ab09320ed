//! The sample repository: real git, one commit, one failing test.

use super::super::exit::{Exit, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command that fails in the sample.
pub const TEST: &str = "sh test.sh";
/// Samples, below the try's folder.
const FOLDER: &str = "samples";
/// The repository's own name.
const NAME: &str = "greeting";
/// The sample's files.
const FILES: [(&str, &str); 2] = [
    ("greet.sh", include_str!("../../../../examples/fix-test/repo/greet.sh")),
    ("test.sh", include_str!("../../../../examples/fix-test/repo/test.sh")),
];

/// Makes a sample for a new try; those of earlier ones go, unless they are kept.
pub fn make(dir: &Path, key: &str, keep: bool) -> Result<PathBuf, Failure> {
    let all = dir.join(FOLDER);
    if !keep && all.exists() {
        std::fs::remove_dir_all(&all).map_err(|e| failed(&all, &e))?;
    }
    let repo = all.join(key).join(NAME);
    std::fs::create_dir_all(&repo).map_err(|e| failed(&repo, &e))?;
    for (name, text) in FILES {
        let path = repo.join(name);
        std::fs::write(&path, text).map_err(|e| failed(&path, &e))?;
    }
    git(&repo, &["init", "--quiet", "--initial-branch=main"])?;
    git(&repo, &["add", "--all"])?;
    git(&repo, &["commit", "--quiet", "--message", "A greeting, and a test that fails"])?;
    Ok(repo)
}

/// A repository of the user's.
pub fn own(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| Failure::new(Exit::NotFound, format!("{}: {e}", path.display())))
}

/// The commit a Workspace starts from.
pub fn head(repo: &Path) -> Result<String, Failure> {
    git(repo, &["rev-parse", "--verify", "HEAD"])
        .map_err(|failure| failure.help(format!("{} must be a git repository with a commit", repo.display())))
}

/// Takes a branch away again, if it still is at this commit.
pub fn drop_branch(repo: &Path, branch: &str, commit: &str) -> Result<(), Failure> {
    git(repo, &["update-ref", "-d", &format!("refs/heads/{branch}"), commit]).map(drop)
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

/// git with no configuration but its own.
fn git(dir: &Path, args: &[&str]) -> Result<String, Failure> {
    let output = Command::new("git")
        .args(["-c", "user.name=jr2 try", "-c", "user.email=try@jr2.invalid", "-c", "commit.gpgSign=false"])
        .args(["-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .map_err(|e| Failure::failed(format!("git cannot be started: {e}")).help("install git"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::failed(format!("git {} in {}: {}", args[0], dir.display(), words.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
