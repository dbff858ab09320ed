//! What a repository is called: its identity and its key, the same on every side (spec 3.6).

use sha2::{Digest, Sha256};

/// Longest repository URL in bytes: no forge and no file system writes longer ones.
pub const REPO_URL_MAX_BYTES: usize = 2_048;
/// Longest slug inside a key in characters (spec 3.6).
pub const REPO_KEY_SLUG_MAX_CHARS: usize = 40;
/// Hex characters of the identity's digest inside a key (spec 3.6).
const KEY_DIGEST_CHARS: usize = 8;

/// How a repository is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `https://`
    Https,
    /// `http://`
    Http,
    /// `ssh://`, `git+ssh://` and scp style
    Ssh,
    /// `git://`
    Git,
    /// An absolute path or `file://`
    Local,
}

impl Transport {
    fn default_port(self) -> Option<u16> {
        match self {
            Self::Https => Some(443),
            Self::Http => Some(80),
            Self::Ssh => Some(22),
            Self::Git => Some(9_418),
            Self::Local => None,
        }
    }
}

/// A repository URL that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoUrl {
    /// How it is reached.
    pub transport: Transport,
    /// Two URLs of one repository have one identity (spec 3.6 rule 2).
    pub identity: String,
    /// What git is told to dial: as written, `file://` as a plain path.
    pub dial: String,
    /// The same without a password: what may be written where an Agent can read it.
    pub shown: String,
}

impl RepoUrl {
    /// The repository's key: a plain directory name of at most 49 characters (spec 3.6 rule 3).
    pub fn key(&self) -> String {
        repo_key(&self.identity)
    }
}

/// Why a text names no repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepoUrlError {
    /// Nothing there.
    #[error("the repository is empty: write a URL or an absolute path")]
    Empty,
    /// Beyond [`REPO_URL_MAX_BYTES`].
    #[error("the repository URL is longer than {REPO_URL_MAX_BYTES} bytes")]
    TooLong,
    /// Would be read as an option by a command line.
    #[error("a repository must not start with `-`")]
    OptionLike,
    /// Control characters, or a space in a URL.
    #[error("the repository URL holds a space or a control character")]
    Unprintable,
    /// A scheme that is not allowed.
    #[error("`{0}` is no transport jr2 uses: write https, http, ssh, git or an absolute path")]
    Scheme(String),
    /// A relative path or a bare word.
    #[error("`{0}` is neither a URL nor an absolute path")]
    Relative(String),
    /// No usable host or port.
    #[error("the repository URL has no valid host")]
    Host,
    /// Nothing behind the host.
    #[error("the repository URL has no path")]
    Path,
}

/// Understands a repository URL: `https`, `http`, `ssh`, `git+ssh`, `git`, `file`, scp style, or an absolute path.
pub fn parse_repo_url(text: &str) -> Result<RepoUrl, RepoUrlError> {
    if text.is_empty() {
        return Err(RepoUrlError::Empty);
    }
    if text.len() > REPO_URL_MAX_BYTES {
        return Err(RepoUrlError::TooLong);
    }
    if text.starts_with('-') {
        return Err(RepoUrlError::OptionLike);
    }
    if text.chars().any(char::is_control) {
        return Err(RepoUrlError::Unprintable);
    }
    if text.starts_with('/') {
        return local(text);
    }
    match text.split_once("://") {
        Some((scheme, rest)) => with_scheme(text, scheme, rest),
        None => scp_style(text),
    }
}

/// The key of an identity (spec 3.6 rule 3).
pub fn repo_key(identity: &str) -> String {
    let last = identity.rsplit('/').next().unwrap_or_default();
    let digest = Sha256::digest(identity.as_bytes());
    let hex = crate::ids::hex(&digest);
    format!("{}-{}", slug(last, REPO_KEY_SLUG_MAX_CHARS, "repo"), &hex[..KEY_DIGEST_CHARS])
}

/// Lower-case ASCII letters and digits, everything else one `-`, at most `max` characters; `fallback` when nothing is left.
pub fn slug(text: &str, max: usize, fallback: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= max {
            break;
        }
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
    }
    let trimmed = out.trim_end_matches('-');
    if trimmed.is_empty() { fallback.to_owned() } else { trimmed.to_owned() }
}

fn local(path: &str) -> Result<RepoUrl, RepoUrlError> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    if parts.is_empty() {
        return Err(RepoUrlError::Path);
    }
    let dial = format!("/{}", parts.join("/"));
    let identity = format!("/{}", normal_path(&dial)?);
    Ok(RepoUrl { transport: Transport::Local, identity, shown: dial.clone(), dial })
}

fn with_scheme(text: &str, scheme: &str, rest: &str) -> Result<RepoUrl, RepoUrlError> {
    let transport = match scheme.to_ascii_lowercase().as_str() {
        "https" => Transport::Https,
        "http" => Transport::Http,
        "ssh" | "git+ssh" => Transport::Ssh,
        "git" => Transport::Git,
        "file" => {
            let path = rest.strip_prefix("localhost").unwrap_or(rest);
            return if path.starts_with('/') { local(path) } else { Err(RepoUrlError::Host) };
        }
        other => return Err(RepoUrlError::Scheme(other.chars().take(32).collect())),
    };
    if text.contains(' ') {
        return Err(RepoUrlError::Unprintable);
    }
    let (authority, path) = rest.split_once('/').ok_or(RepoUrlError::Path)?;
    let (user, host_port) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let (host, port) = split_port(host_port)?;
    let port = port.filter(|p| Some(*p) != transport.default_port());
    let port_text = port.map(|p| format!(":{p}")).unwrap_or_default();
    let identity = format!("{}{port_text}/{}", host.to_ascii_lowercase(), normal_path(path)?);
    // A person's name is needed to dial ssh; elsewhere it may be a token.
    let user = user.map(|u| u.split(':').next().unwrap_or_default()).filter(|_| transport == Transport::Ssh);
    let user_text = user.filter(|u| !u.is_empty()).map(|u| format!("{u}@")).unwrap_or_default();
    if user_text.starts_with('-') {
        return Err(RepoUrlError::Host);
    }
    let shown = format!("{scheme}://{user_text}{host_port}/{path}");
    Ok(RepoUrl { transport, identity, dial: text.to_owned(), shown })
}

fn scp_style(text: &str) -> Result<RepoUrl, RepoUrlError> {
    let relative = || RepoUrlError::Relative(text.chars().take(64).collect());
    let (before, path) = text.split_once(':').ok_or_else(relative)?;
    // `helper::address` would start a program; a slash before the colon is a path.
    if before.contains('/') || path.starts_with(':') {
        return Err(relative());
    }
    if text.contains(' ') {
        return Err(RepoUrlError::Unprintable);
    }
    let host = before.rsplit('@').next().unwrap_or_default();
    check_host(host)?;
    let identity = format!("{}/{}", host.to_ascii_lowercase(), normal_path(path)?);
    Ok(RepoUrl { transport: Transport::Ssh, identity, dial: text.to_owned(), shown: text.to_owned() })
}

fn split_port(host_port: &str) -> Result<(&str, Option<u16>), RepoUrlError> {
    let after_bracket = host_port.rfind(']').map_or(0, |i| i + 1);
    let (host, port) = match host_port[after_bracket..].rfind(':') {
        Some(i) => (&host_port[..after_bracket + i], &host_port[after_bracket + i + 1..]),
        None => (host_port, ""),
    };
    check_host(host)?;
    if port.is_empty() {
        return Ok((host, None));
    }
    port.parse().map(|p| (host, Some(p))).map_err(|_| RepoUrlError::Host)
}

fn check_host(host: &str) -> Result<(), RepoUrlError> {
    let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let valid = match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && !host.starts_with('-')
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        }
    };
    if valid { Ok(()) } else { Err(RepoUrlError::Host) }
}

/// `//` collapsed, outer `/` removed, one trailing `.git` removed; the case is kept.
fn normal_path(path: &str) -> Result<String, RepoUrlError> {
    let joined = path.split('/').filter(|p| !p.is_empty()).collect::<Vec<_>>().join("/");
    let bare = joined.strip_suffix(".git").unwrap_or(&joined).trim_end_matches('/');
    if bare.is_empty() { Err(RepoUrlError::Path) } else { Ok(bare.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(text: &str) -> String {
        parse_repo_url(text).unwrap().identity
    }

    #[test]
    fn spellings_of_one_repository_share_an_identity() {
        for text in [
            "https://github.com/Acme/App",
            "https://GitHub.com:443/Acme//App.git/",
            "https://user:secret@github.com/Acme/App.git",
            "ssh://git@github.com:22/Acme/App.git",
            "git+ssh://git@github.com/Acme/App",
            "git@github.com:Acme/App.git",
            "git://github.com:9418/Acme/App",
            "http://github.com:80/Acme/App",
        ] {
            assert_eq!(identity(text), "github.com/Acme/App", "{text}");
        }
        assert_eq!(identity("https://h:8443/a"), "h:8443/a");
        assert_eq!(identity("https://[::1]:8443/a"), "[::1]:8443/a");
    }

    #[test]
    fn local_paths_are_normalised() {
        for text in ["/srv/git/app.git", "file:///srv/git/app", "/srv//git/./x/../app/", "file://localhost/srv/git/app"]
        {
            assert_eq!(identity(text), "/srv/git/app", "{text}");
        }
        assert_eq!(parse_repo_url("file:///srv/my app").unwrap().dial, "/srv/my app");
        assert_eq!(identity("/srv/app/.git"), "/srv/app");
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = parse_repo_url("https://user:secret@h/a.git").unwrap();
        assert_eq!(url.shown, "https://h/a.git");
        assert!(url.dial.contains("secret"));
        assert_eq!(parse_repo_url("ssh://git:pw@h/a").unwrap().shown, "ssh://git@h/a");
    }

    #[test]
    fn what_could_run_a_program_is_refused() {
        for text in [
            "",
            "--upload-pack=evil",
            "ext::sh -c evil",
            "ext::evil",
            "foo://h/p",
            "relative/path",
            "./x:y",
            "word",
            "ssh://-oProxyCommand=evil/p",
            "git@-oProxyCommand=evil:p",
            "ssh://-l@h/p",
            "https://h",
            "https:///p",
            "https://h/",
            "https://h:99999/p",
            "https://h/a b",
            "/",
            "/a\nb",
            "file://other/p",
        ] {
            assert!(parse_repo_url(text).is_err(), "{text:?} was taken");
        }
        assert!(parse_repo_url(&format!("/{}", "a".repeat(REPO_URL_MAX_BYTES))).is_err());
    }

    #[test]
    fn keys_have_the_shape_of_spec_3_6() {
        assert_eq!(repo_key("github.com/Acme/My_App.js"), "my-app-js-3bc81ff3");
        assert!(repo_key("h/___").starts_with("repo-"));
        assert_eq!(repo_key(&format!("h/{}", "a".repeat(99))).len(), 49);
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_keys_stay_plain(text in "\\PC{0,60}") {
            if let Ok(url) = parse_repo_url(&text) {
                let key = url.key();
                prop_assert!(key.len() <= 49);
                prop_assert!(key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
                prop_assert!(!key.starts_with('-'));
            }
        }

        #[test]
        fn a_git_suffix_changes_nothing(path in "[a-zA-Z0-9]{1,8}(/[a-zA-Z0-9_]{1,8}){0,3}") {
            prop_assert_eq!(identity(&format!("https://h/{path}")), identity(&format!("https://h/{path}.git")));
        }
    }
}
