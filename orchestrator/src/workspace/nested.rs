//! Repositories inside a worktree: folders with a `.git` of their own. git would run commands inside them, so they are never
//! looked into.

use std::path::{Path, PathBuf};

/// Most folders looked into; a larger worktree's deeper nested repositories are found by git, which then refuses.
const FOLDERS_MAX: usize = 200_000;
/// Most nested repositories named.
const NESTED_MAX: usize = 100;

/// The outermost nested repositories, relative to the worktree, in order. Symbolic links are not followed.
pub async fn nested_repositories(worktree: &Path) -> Vec<PathBuf> {
    let worktree = worktree.to_owned();
    // A panic in it was logged by the runtime; git still refuses what it cannot add.
    tokio::task::spawn_blocking(move || find(&worktree)).await.unwrap_or_default()
}

fn find(worktree: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        looked += 1;
        if looked > FOLDERS_MAX || found.len() >= NESTED_MAX {
            break;
        }
        for entry in std::fs::read_dir(worktree.join(&folder)).into_iter().flatten().flatten() {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_folder || entry.file_name() == ".git" {
                continue;
            }
            let path = folder.join(entry.file_name());
            if std::fs::symlink_metadata(entry.path().join(".git")).is_ok() {
                found.push(path);
            } else {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outermost_repositories_are_named_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        for path in [".git", "a/b/.git", "a/b/c/.git", "plain/x"] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        std::fs::create_dir_all(dir.path().join("file")).unwrap();
        std::fs::write(dir.path().join("file/.git"), "gitdir: /elsewhere").unwrap();
        std::os::unix::fs::symlink(dir.path().join("a"), dir.path().join("link")).unwrap();
        assert_eq!(find(dir.path()), [PathBuf::from("a/b"), PathBuf::from("file")]);
    }
}
