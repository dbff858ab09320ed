//! `/dev/shm`: what lies in it is memory, and outlives the processes that put it there (spec M-3, H-18).

use std::path::Path;

/// Where shared memory lies.
pub const FOLDER: &str = "/dev/shm";
/// Most entries removed at once: the guard has other work too.
const ENTRIES_MAX: usize = 100_000;

/// Removes every entry and keeps the folder itself; answers how many stayed. Only for a folder that is private
/// (decision 45). Links are removed, never followed.
pub fn clear(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let mut stayed = 0;
    for entry in entries.flatten().take(ENTRIES_MAX) {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let path = entry.path();
        let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        stayed += usize::from(removed.is_err());
    }
    stayed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_03_the_entries_go_and_the_folder_stays_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (shm, outside) = (dir.path().join("shm"), dir.path().join("outside"));
        std::fs::create_dir_all(shm.join("a/b")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("mine"), "1").unwrap();
        std::fs::write(shm.join("sem.x"), "1").unwrap();
        std::fs::write(shm.join("a/b/c"), "1").unwrap();
        std::os::unix::fs::symlink(&outside, shm.join("link")).unwrap();
        std::os::unix::fs::symlink(&outside, shm.join("a/link")).unwrap();
        assert_eq!(clear(&shm), 0);
        assert_eq!(std::fs::read_dir(&shm).unwrap().count(), 0);
        assert!(outside.join("mine").exists());
        assert_eq!(clear(&dir.path().join("missing")), 0);
    }
}
