//! git as a program: a closed environment, bounded output, a time-out; and the clone of a slot.

use super::name::{CLONE_DIR, check_branch, worktree_dir};
use super::{ProvisionError, RepoBinding};
use jr2_shared::repo::{RepoUrl, Transport, parse_repo_url};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// Longest time one git command may take: the budget the specification gives Repos (spec 5.5).
pub const GIT_TIMEOUT: Duration = Duration::from_mins(25);
/// Most bytes read from one git command's output: listings of very large repositories stay below it.
const STDOUT_MAX_BYTES: usize = 64 << 20;
/// Most bytes of git's own words kept for an error: the last ones say why.
const WORDS_MAX_BYTES: usize = 2_048;
/// Transports git may use, its own helpers included.
const PROTOCOLS: &str = "file:git:http:https:ssh";
/// Variables a clone from afar may inherit: where the user's keys and proxies are.
const USER_VARIABLES: [&str; 13] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
/// Settings no configuration file may change: nothing of a repository or of the user's machine is executed.
const FIXED_SETTINGS: [&str; 5] =
    ["core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false", "commit.gpgSign=false"];

/// Who commits inside a Sandbox.
pub const AGENT_NAME: &str = "jr2 agent";
/// The address beside it; `.invalid` can never receive mail (RFC 2606).
pub const AGENT_EMAIL: &str = "agent@jr2.invalid";
/// Where a push to a local source goes: nowhere. The branch is fetched when the Workspace ends (decision 47).
const NO_PUSH: &str = "jr2-no-push://the-branch-is-fetched-when-the-workspace-ends";

/// Why a git command gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// git is not there or could not be started.
    #[error("git could not be started: {0}. Install git and see that it is on PATH")]
    Start(std::io::Error),
    /// It ran too long and was ended.
    #[error("git {what} took longer than {} s and was ended", .after.as_secs())]
    TimedOut {
        /// The subcommand.
        what: String,
        /// The limit.
        after: Duration,
    },
    /// It said no.
    #[error("git {what} failed: {words}")]
    Failed {
        /// The subcommand.
        what: String,
        /// git's own last words.
        words: String,
    },
    /// Reading or writing failed.
    #[error("git {what}: {error}")]
    Io {
        /// The subcommand.
        what: String,
        /// What happened.
        error: std::io::Error,
    },
}

/// Whose configuration a command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// None but jr2's own and the repository's.
    Sealed,
    /// The user's, for their credentials: only for talking to a remote.
    User,
}

/// Runs git.
#[derive(Clone, Debug)]
pub struct Git {
    /// jr2's own global configuration, see [`Git::configuration`].
    pub config: PathBuf,
    /// Longest time of one command.
    pub timeout: Duration,
}

impl Git {
    /// The text of the global configuration file that sealed commands read. Ownership is not asked: a repository that is
    /// mounted from elsewhere is common, and nothing in it is executed.
    pub fn configuration() -> String {
        format!(
            "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n[user]\n\tname = {AGENT_NAME}\n\temail = {AGENT_EMAIL}\n"
        )
    }

    /// Runs one command in `dir`; the answer is its output without the last line end.
    pub async fn text<S: AsRef<OsStr>>(&self, dir: &Path, args: &[S]) -> Result<String, GitError> {
        let out = self.run(dir, Trust::Sealed, args, &[], None).await?;
        Ok(String::from_utf8_lossy(&out).trim_end().to_owned())
    }

    /// Runs one command with everything said: trust, extra variables, standard input.
    pub async fn run<S: AsRef<OsStr>>(
        &self,
        dir: &Path,
        trust: Trust,
        args: &[S],
        variables: &[(&str, OsString)],
        stdin: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, GitError> {
        let what = args.first().map(|a| a.as_ref().to_string_lossy().into_owned()).unwrap_or_default();
        let io = |error| GitError::Io { what: what.clone(), error };
        let mut command = tokio::process::Command::new("git");
        command.current_dir(dir).env_clear().envs(self.environment(trust)).envs(variables.iter().cloned());
        for setting in FIXED_SETTINGS {
            command.arg("-c").arg(setting);
        }
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.kill_on_drop(true).process_group(0);
        let mut child = command.spawn().map_err(GitError::Start)?;
        let group = child.id();
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let work = async {
            let feed = async {
                if let (Some(mut pipe), Some(bytes)) = (input, stdin) {
                    // A command that stops reading says why on its error output.
                    let _ = pipe.write_all(&bytes).await;
                }
            };
            let ((), out, words) = tokio::join!(feed, read_bounded(output), read_tail(errors));
            (child.wait().await, out, words)
        };
        let Ok((status, out, words)) = tokio::time::timeout(self.timeout, work).await else {
            end_group(group);
            return Err(GitError::TimedOut { what, after: self.timeout });
        };
        if status.map_err(io)?.success() {
            return out.map_err(io);
        }
        Err(GitError::Failed { what, words })
    }

    fn environment(&self, trust: Trust) -> Vec<(OsString, OsString)> {
        let mut set: Vec<(OsString, OsString)> = Vec::new();
        let mut inherit = |name: &str| {
            if let Some(value) = std::env::var_os(name) {
                set.push((name.into(), value));
            }
        };
        inherit("PATH");
        if trust == Trust::User {
            USER_VARIABLES.into_iter().for_each(inherit);
        } else {
            set.push(("HOME".into(), "/nonexistent".into()));
            set.push(("GIT_CONFIG_GLOBAL".into(), self.config.clone().into()));
        }
        for (name, value) in [
            ("LC_ALL", "C.UTF-8"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ASKPASS", "/bin/false"),
            ("SSH_ASKPASS_REQUIRE", "never"),
            ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
            ("GIT_ALLOW_PROTOCOL", PROTOCOLS),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
        ] {
            set.push((name.into(), value.into()));
        }
        set
    }
}

fn end_group(leader: Option<u32>) {
    let Some(pid) = leader.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) else { return };
    let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
}

async fn read_bounded(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let Some(pipe) = pipe else { return Ok(out) };
    let mut bounded = pipe.take(STDOUT_MAX_BYTES as u64 + 1);
    bounded.read_to_end(&mut out).await?;
    if out.len() > STDOUT_MAX_BYTES {
        return Err(std::io::Error::other("the output is larger than 64 MiB"));
    }
    Ok(out)
}

async fn read_tail(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut tail: Vec<u8> = Vec::new();
    let Some(mut pipe) = pipe else { return String::new() };
    let mut chunk = [0_u8; 4_096];
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        tail.extend_from_slice(&chunk[..n]);
        if tail.len() > 2 * WORDS_MAX_BYTES {
            tail.drain(..tail.len() - WORDS_MAX_BYTES);
        }
    }
    let start = tail.len().saturating_sub(WORDS_MAX_BYTES);
    String::from_utf8_lossy(&tail[start..]).trim().to_owned()
}

/// A slot that was understood: its source, and where it lies.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The binding as the workflow gave it.
    pub binding: RepoBinding,
    /// Its source.
    pub url: RepoUrl,
    /// `work/<slot>`.
    pub dir: PathBuf,
    /// The branch of its worktree.
    pub branch: String,
}

impl Slot {
    /// Understands a binding, or says what is wrong with it.
    pub fn new(binding: &RepoBinding, work: &Path, branch: &str) -> Result<Self, ProvisionError> {
        super::name::check_label("slot", &binding.slot)?;
        let url = parse_repo_url(&binding.url)
            .map_err(|e| refused("url-refused", format!("slot `{}`: {e}", binding.slot)))?;
        if binding.reference.as_deref().is_some_and(|r| r.is_empty() || r.starts_with('-') || r.len() > 255) {
            return Err(refused(
                "reference-refused",
                format!("slot `{}`: the reference is no branch, tag or commit", binding.slot),
            ));
        }
        Ok(Self { binding: binding.clone(), url, dir: work.join(&binding.slot), branch: branch.to_owned() })
    }

    /// The clone.
    pub fn clone_dir(&self) -> PathBuf {
        self.dir.join(CLONE_DIR)
    }

    /// The worktree: where an Agent works.
    pub fn worktree(&self) -> PathBuf {
        self.dir.join(worktree_dir(&self.branch))
    }
}

/// Refuses a branch that git refuses (spec K-17).
pub async fn check_branch_name(git: &Git, dir: &Path, branch: &str) -> Result<(), ProvisionError> {
    check_branch(branch)?;
    match git.text(dir, &["check-ref-format", &format!("refs/heads/{branch}")]).await {
        Ok(_) => Ok(()),
        Err(GitError::Failed { .. }) => {
            Err(refused("branch-refused", format!("`{branch}` is no branch name git accepts. Choose another name")))
        }
        Err(other) => Err(refused("git-failed", other.to_string())),
    }
}

/// Makes a slot's clone and worktree. A slot is built under another name and renamed when it is whole, so a process that
/// died in the middle leaves nothing that looks finished. `partial` must not exist.
pub async fn make_slot(git: &Git, slot: &Slot, partial: &Path) -> Result<(), ProvisionError> {
    if tokio::fs::symlink_metadata(&slot.dir).await.is_err() {
        build(git, slot, partial).await?;
        tokio::fs::rename(partial, &slot.dir)
            .await
            .map_err(|e| refused("clone-failed", format!("slot `{}`: {e}", slot.binding.slot)))?;
    }
    // The worktree's two link files hold absolute paths: they are written anew for the final place.
    let worktree = slot.worktree();
    git.text(&slot.clone_dir(), &[OsStr::new("worktree"), OsStr::new("repair"), worktree.as_os_str()])
        .await
        .map_err(|e| clone_failed(slot, &e))?;
    Ok(())
}

async fn build(git: &Git, slot: &Slot, partial: &Path) -> Result<(), ProvisionError> {
    if slot.url.transport == Transport::Local && tokio::fs::metadata(&slot.url.dial).await.is_err() {
        return Err(refused(
            "source-missing",
            format!("slot `{}`: there is no repository at {}", slot.binding.slot, slot.url.shown),
        ));
    }
    tokio::fs::create_dir_all(partial)
        .await
        .map_err(|e| refused("clone-failed", format!("slot `{}`: {e}", slot.binding.slot)))?;
    let clone = partial.join(CLONE_DIR);
    let failed = |e: &GitError| clone_failed(slot, e);
    clone_source(git, slot, partial, &clone).await.map_err(|e| failed(&e))?;
    let start = start_commit(git, slot, &clone).await?;
    configure(git, slot, &clone, &start).await.map_err(|e| failed(&e))?;
    let worktree = partial.join(worktree_dir(&slot.branch));
    let args: [&OsStr; 8] = [
        "worktree".as_ref(),
        "add".as_ref(),
        "--quiet".as_ref(),
        "-b".as_ref(),
        slot.branch.as_ref(),
        "--".as_ref(),
        worktree.as_os_str(),
        start.as_ref(),
    ];
    git.text(&clone, &args).await.map_err(|e| failed(&e))?;
    Ok(())
}

async fn clone_source(git: &Git, slot: &Slot, dir: &Path, clone: &Path) -> Result<(), GitError> {
    let mut args: Vec<&OsStr> =
        ["clone", "--quiet", "--no-checkout", "--template=", "--origin=origin", "--no-recurse-submodules"]
            .iter()
            .map(OsStr::new)
            .collect();
    let trust = if slot.url.transport == Transport::Local {
        // Through the wire protocol: no file is shared with the source, not even by alternates it uses itself.
        args.push("--no-local".as_ref());
        Trust::Sealed
    } else {
        Trust::User
    };
    args.extend(["--".as_ref(), OsStr::new(&slot.url.dial), clone.as_os_str()]);
    git.run(dir, trust, &args, &[], None).await.map(drop)
}

/// Where the branch starts (spec 5.6 step 4), as a commit.
async fn start_commit(git: &Git, slot: &Slot, clone: &Path) -> Result<String, ProvisionError> {
    let candidates = match &slot.binding.reference {
        Some(reference) => vec![format!("refs/remotes/origin/{reference}"), reference.clone()],
        None => vec!["refs/remotes/origin/HEAD".to_owned(), "HEAD".to_owned()],
    };
    for candidate in &candidates {
        let revision = format!("{candidate}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &revision];
        if let Ok(commit) = git.text(clone, &args).await {
            return Ok(commit);
        }
    }
    let source = &slot.url.shown;
    Err(match &slot.binding.reference {
        Some(reference) => {
            let name = &slot.binding.slot;
            refused("reference-missing", format!("slot `{name}`: {source} has no branch, tag or commit `{reference}`"))
        }
        None => refused(
            "repository-empty",
            format!("slot `{}`: {source} has no commit to start from. Make a first commit there", slot.binding.slot),
        ),
    })
}

async fn configure(git: &Git, slot: &Slot, clone: &Path, start: &str) -> Result<(), GitError> {
    // Every branch name is free for the worktree: the clone itself stands on no branch.
    git.text(clone, &["update-ref", "--no-deref", "HEAD", start]).await?;
    let heads = git.text(clone, &["for-each-ref", "--format=%(refname)", "refs/heads"]).await?;
    for head in heads.lines() {
        git.text(clone, &["update-ref", "-d", head]).await?;
    }
    let mut settings =
        vec![("user.name", AGENT_NAME), ("user.email", AGENT_EMAIL), ("remote.origin.url", slot.url.shown.as_str())];
    if slot.url.transport == Transport::Local {
        settings.push(("remote.origin.pushurl", NO_PUSH));
    }
    for (name, value) in settings {
        git.text(clone, &["config", name, value]).await?;
    }
    Ok(())
}

fn clone_failed(slot: &Slot, error: &GitError) -> ProvisionError {
    let reason = if matches!(error, GitError::Start(_)) { "git-missing" } else { "clone-failed" };
    // git repeats the URL it dialled; a password in it is not repeated by us.
    let words = error.to_string().replace(&slot.url.dial, &slot.url.shown);
    refused(reason, format!("slot `{}`: {words}", slot.binding.slot))
}

pub(super) fn refused(reason: &str, message: String) -> ProvisionError {
    ProvisionError { reason: reason.to_owned(), message }
}
