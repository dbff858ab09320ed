//! Processes under measurement: started with nothing of ours in their environment but what they need, killed hard, weighed.

use super::BenchError;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Pause between two looks at a starting process: well under what is measured.
const LOOK: Duration = Duration::from_millis(1);

/// Memory of a process in KiB, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Resident now.
    pub rss_kib: u64,
    /// The most that ever was resident.
    pub peak_kib: u64,
}

/// A started process; killed when dropped.
pub(crate) struct Started {
    child: Child,
    /// From the start of the process to its first good `/healthz`.
    pub(crate) up: Duration,
}

impl Started {
    /// Starts a server and waits for its `/healthz`.
    pub(crate) async fn wait_healthy(mut command: Command, url: &str, deadline: Duration) -> Result<Self, BenchError> {
        crate::tls::install();
        let client = reqwest::Client::builder().no_proxy().build()?;
        let begun = Instant::now();
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).spawn().map_err(BenchError::io(program.clone()))?;
        let mut started = Self { child, up: Duration::ZERO };
        while begun.elapsed() < deadline {
            if client.get(format!("{url}/healthz")).send().await.is_ok_and(|answer| answer.status().is_success()) {
                started.up = begun.elapsed();
                return Ok(started);
            }
            if let Ok(Some(status)) = started.child.try_wait() {
                return Err(BenchError::Unexpected(format!("{program} ended at its start: {status}")));
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(BenchError::Deadline(deadline, format!("{program} does not answer {url}/healthz")))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, once it has.
    pub(super) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn memory(&self) -> Result<Memory, BenchError> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(BenchError::io(path))?;
        Ok(Memory { rss_kib: field(&text, "VmRSS:"), peak_kib: field(&text, "VmHWM:") })
    }

    /// `kill -9`, and waits until the process is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A local address nobody listens on.
pub(crate) fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(BenchError::io("a free port"))?;
    listener.local_addr().map_err(BenchError::io("a free port"))
}

/// A log file of a process, for when it misbehaves.
pub(crate) fn log_to(folder: &Path, name: &str) -> Result<Stdio, BenchError> {
    let path = folder.join(name);
    let file = std::fs::File::options().create(true).append(true).open(&path);
    file.map(Stdio::from).map_err(BenchError::io(path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernel_s_status() {
        let text = "Name:\tjr2\nVmHWM:\t  20480 kB\nVmRSS:\t  10240 kB\n";
        assert_eq!((field(text, "VmRSS:"), field(text, "VmHWM:"), field(text, "VmX:")), (10240, 20480, 0));
    }

    #[tokio::test]
    async fn a_process_that_ends_at_its_start_is_said_so() {
        let ended = Started::wait_healthy(Command::new("false"), "http://127.0.0.1:1", Duration::from_secs(10)).await;
        assert!(ended.err().unwrap().to_string().contains("ended at its start"));
    }
}
