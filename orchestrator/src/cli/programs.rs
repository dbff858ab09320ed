//! The programs beside `jr2`: found in its own folder, then on `PATH` (decision 50).

use super::exit::Failure;
use std::path::PathBuf;

/// A program of ours.
pub fn find(name: &str) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(name)).filter(|path| path.is_file());
    beside.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
    })
}

/// `jr2-harness`; when it is nowhere the first Workspace says so, for workflows without Agents need none.
pub fn harness() -> PathBuf {
    find("jr2-harness").unwrap_or_else(|| PathBuf::from("jr2-harness"))
}

/// A program that must be there.
pub fn required(name: &str) -> Result<PathBuf, Failure> {
    let missing = || {
        Failure::failed(format!("`{name}` is neither beside `jr2` nor on PATH"))
            .help("`cargo build --release` makes all of them in one folder")
    };
    find(name).ok_or_else(missing)
}
