//! Lock files that git left behind when it was killed with its Harness: nobody holds them, and every later commit would
//! fail on them.

use crate::workspace::name::CLONE_DIR;
use std::path::Path;

/// Folders of a repository that hold no such locks, or too many files to look at.
const PASSED_OVER: [&str; 3] = ["objects", "hooks", "lfs"];
/// Most entries looked at: refs of very large repositories stay below it.
const ENTRIES_MAX: usize = 200_000;

/// Removes git's lock files from every slot's clone and its worktrees. Only when no process of the Sandbox lives: the
/// caller has ended them all. Symbolic links are not followed, for an Agent made them.
pub fn remove_git_locks(work: &Path) -> usize {
    let mut removed = 0;
    let mut left = ENTRIES_MAX;
    for slot in std::fs::read_dir(work).into_iter().flatten().flatten() {
        if !slot.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        let clone = slot.path().join(CLONE_DIR);
        let mut folders = vec![clone.join(".git")];
        let plain = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir());
        if !plain(&clone) || !plain(&folders[0]) {
            continue;
        }
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                left = left.saturating_sub(1);
                let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else { continue };
                if left > 0 && kind.is_dir() && !PASSED_OVER.iter().any(|passed| name == *passed) {
                    folders.push(entry.path());
                } else if kind.is_file() && name.to_string_lossy().ends_with(".lock") {
                    removed += usize::from(std::fs::remove_file(entry.path()).is_ok());
                }
            }
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_clone_and_worktree_go_and_what_a_link_names_stays() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        let git = work.join("target").join(CLONE_DIR).join(".git");
        let outside = root.path().join("outside");
        for folder in [&git.join("worktrees/b"), &git.join("refs/heads"), &git.join("objects"), &outside] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let locks = ["index.lock", "worktrees/b/index.lock", "refs/heads/main.lock"].map(|name| git.join(name));
        let kept = [git.join("config"), git.join("objects/x.lock"), outside.join("y.lock")];
        for path in locks.iter().chain(&kept) {
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink(&outside, git.join("linked")).unwrap();
        assert_eq!(remove_git_locks(&work), 3);
        assert!(locks.iter().all(|path| !path.exists()) && kept.iter().all(|path| path.exists()));
    }
}
