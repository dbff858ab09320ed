//! What a Sandbox, a slot and a branch may be called.

use super::ProvisionError;
use jr2_shared::repo::slug;
use sha2::{Digest, Sha256};

/// Longest readable part of a Sandbox name in characters (spec K-14).
const NAME_MAX_CHARS: usize = 55;
/// Characters of the run in a Sandbox name (spec K-14).
const RUN_CHARS: usize = 8;
/// Base-36 characters of the hash; with the readable part the name stays a DNS label (63).
const HASH_CHARS: usize = 7;
/// Longest Sandbox or slot name in bytes: a DNS label.
const LABEL_MAX_BYTES: usize = 63;
/// Longest branch in bytes: its worktree is one directory, whose name may have 255, and suffixes must still fit.
const BRANCH_MAX_BYTES: usize = 200;
/// The branch name that is the clone's own directory (spec K-17).
pub(super) const CLONE_DIR: &str = "default";

/// The name of a Workspace's Sandbox: deterministic, so a restore finds it again (spec K-14, decision 42).
///
/// `actor` is the actor's path, `ordinal` counts the entries of its state.
pub fn sandbox_name(run: &str, actor: &str, ordinal: u64) -> String {
    let run_part = slug(run, RUN_CHARS, "run");
    let mut readable = format!("ws-{run_part}-{}", slug(actor, NAME_MAX_CHARS, "root"));
    readable.truncate(NAME_MAX_CHARS);
    let digest = Sha256::digest(format!("{run}/{actor}#{ordinal}").as_bytes());
    let mut value = digest.iter().take(8).fold(0_u64, |acc, b| acc << 8 | u64::from(*b));
    let mut hash = String::new();
    for _ in 0..HASH_CHARS {
        hash.push(char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[(value % 36) as usize]));
        value /= 36;
    }
    format!("{}-{hash}", readable.trim_end_matches('-'))
}

/// Refuses a name that is no plain directory name.
pub(super) fn check_label(what: &str, label: &str) -> Result<(), ProvisionError> {
    let plain = !label.is_empty()
        && label.len() <= LABEL_MAX_BYTES
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        && !label.starts_with('-');
    if plain {
        return Ok(());
    }
    let short: String = label.chars().take(LABEL_MAX_BYTES).collect();
    Err(ProvisionError {
        reason: format!("{what}-refused"),
        message: format!(
            "`{short}` is no valid {what} name: use at most {LABEL_MAX_BYTES} letters, digits, `-` and `_`"
        ),
    })
}

/// Refuses what no worktree can be on; git itself is asked for the rest (spec K-17).
pub(super) fn check_branch(branch: &str) -> Result<(), ProvisionError> {
    let why = if branch == CLONE_DIR {
        "`default` is the clone's own directory"
    } else if branch.is_empty() {
        "it is empty"
    } else if branch.len() > BRANCH_MAX_BYTES {
        "it is longer than 200 bytes"
    } else if branch.starts_with('-') || branch == "HEAD" || branch == "@" {
        "git would read it as something else"
    } else {
        return Ok(());
    };
    let short: String = branch.chars().take(64).collect();
    Err(ProvisionError {
        reason: "branch-refused".into(),
        message: format!("the branch `{short}` is refused: {why}. Choose another name"),
    })
}

/// The directory of a branch's worktree inside its slot (spec 5.6 step 4).
pub(super) fn worktree_dir(branch: &str) -> String {
    branch.replace('/', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_tell_entries_apart_and_stay_the_same() {
        let first = sandbox_name("abcdefghijklmnop", "root/fix test", 1);
        assert!(first.starts_with("ws-abcdefgh-root-fix-test-"), "{first}");
        assert_eq!(first, sandbox_name("abcdefghijklmnop", "root/fix test", 1));
        assert_ne!(first, sandbox_name("abcdefghijklmnop", "root/fix test", 2));
    }

    #[test]
    fn the_clones_directory_is_no_branch() {
        assert_eq!(check_branch("default").unwrap_err().reason, "branch-refused");
        assert!(check_branch("-x").is_err());
        assert!(check_branch("").is_err());
        assert!(check_branch(&"a".repeat(201)).is_err());
        assert!(check_branch("jr2/fix").is_ok());
    }

    proptest! {
        #[test]
        fn every_name_is_a_label(run in "\\PC{0,40}", actor in "\\PC{0,90}", n in 0_u64..9) {
            let name = sandbox_name(&run, &actor, n);
            prop_assert!(check_label("sandbox", &name).is_ok(), "{}", name);
        }
    }
}
