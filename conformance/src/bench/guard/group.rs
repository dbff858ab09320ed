//! Real cgroups for a Harness under test, in either version; removed when dropped.

use super::super::BenchError;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the kernel may take to let go of the processes that were killed.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);

/// The groups of one Harness: of memory, and of process numbers where they can be bounded.
#[derive(Debug)]
pub struct Groups {
    memory: PathBuf,
    pids: Option<PathBuf>,
    v2: bool,
}

impl Groups {
    /// Makes them with a limit in bytes and a bound of processes.
    ///
    /// # Errors
    /// Why no group can be made here: not root, or no writable hierarchy.
    pub fn make(name: &str, limit: u64, pids_max: Option<u64>) -> Result<Self, BenchError> {
        let name = format!("jr2-bench-{name}-{}", std::process::id());
        let v2_root = Path::new("/sys/fs/cgroup");
        let v2 = read(&v2_root.join("cgroup.controllers")).is_some_and(|c| c.split_whitespace().any(|c| c == "memory"));
        let groups = if v2 {
            let _ = std::fs::write(v2_root.join("cgroup.subtree_control"), "+memory +pids");
            let folder = v2_root.join(&name);
            Self { pids: pids_max.map(|_| folder.clone()), memory: folder, v2 }
        } else {
            let own = |controller: &str| Path::new("/sys/fs/cgroup").join(controller).join(own_path(controller));
            let pids = pids_max.map(|_| own("pids").join(&name));
            Self { memory: own("memory").join(&name), pids, v2 }
        };
        for folder in [Some(&groups.memory), groups.pids.as_ref()].into_iter().flatten() {
            match std::fs::create_dir(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(BenchError::io(folder.display().to_string())(error));
                }
                _ => {}
            }
        }
        let set = |folder: &Path, file: &str, value: u64| {
            std::fs::write(folder.join(file), value.to_string())
                .map_err(BenchError::io(format!("{}/{file}", folder.display())))
        };
        set(&groups.memory, if v2 { "memory.max" } else { "memory.limit_in_bytes" }, limit)?;
        if let (Some(folder), Some(max)) = (&groups.pids, pids_max) {
            set(folder, "pids.max", max)?;
        }
        Ok(groups)
    }

    /// Shell words that move the shell into the groups.
    pub fn enter(&self) -> String {
        let folders = [Some(&self.memory), self.pids.as_ref()];
        let enter = |folder: &PathBuf| format!("echo $$ > {}/cgroup.procs; ", folder.display());
        folders.into_iter().flatten().map(enter).collect::<Vec<_>>().concat()
    }

    /// Whether they are of cgroup v2.
    pub fn is_v2(&self) -> bool {
        self.v2
    }

    /// How many processes the kernel killed for memory.
    pub fn kernel_kills(&self) -> u64 {
        // v1 counts a kill in the group of the killed process alone, v2 in the groups above it too.
        let folders = if self.v2 { vec![self.memory.clone()] } else { self.folders() };
        let file = if self.v2 { "memory.events" } else { "memory.oom_control" };
        let count = |folder: &PathBuf| {
            let text = read(&folder.join(file))?;
            let (_, count) =
                text.lines().filter_map(|line| line.split_once(' ')).find(|(key, _)| *key == "oom_kill")?;
            count.trim().parse::<u64>().ok()
        };
        folders.iter().filter_map(count).sum()
    }

    fn folders(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        for folder in [Some(&self.memory), self.pids.as_ref()].into_iter().flatten() {
            let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
            all.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
            all.push(folder.clone());
        }
        all
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_LIMIT;
        loop {
            let folders = self.folders();
            for folder in &folders {
                for pid in read(&folder.join("cgroup.procs")).unwrap_or_default().lines() {
                    let pid = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
                    if let Some(pid) = pid {
                        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    }
                }
                let _ = std::fs::remove_dir(folder);
            }
            if !self.memory.exists() || Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// This process's path in a v1 hierarchy, without the slash.
fn own_path(controller: &str) -> String {
    let text = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        names.split(',').any(|name| name == controller).then(|| path.trim_start_matches('/').to_owned())
    });
    found.unwrap_or_default()
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
