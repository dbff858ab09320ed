//! What the kernel keeps from a command (decision 46): a Landlock ruleset, made once, entered by each child.
//!
//! A command may write beneath the Sandbox, its scratch folders and the root; read and execute the system's folders and
//! the toolchains; nothing else. Processes outside its own fence it can neither signal nor look into (`/proc/PID/environ`
//! included), and TCP connections are held to [`Surroundings`]. What an older kernel cannot forbid stays open, and
//! [`support`] says so. Not covered: UDP, listening, and, before ABI 9, connecting to Unix sockets by path.

use super::Surroundings;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// The newest rights we handle; an older kernel handles what it knows.
const ABI_WANTED: ABI = ABI::V9;
/// Folders of the system that may be read and executed, where they exist.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/proc",
    "/sys",
    "/nix",
    "/gnu",
    // Where `/etc/resolv.conf` points on many systems.
    "/run/systemd/resolve",
];
/// Devices that may be read and written. `/dev/shm` is there because semaphores of common languages live in it.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];

/// A ruleset to enter, or none where the kernel has no Landlock.
#[derive(Debug)]
pub struct Fence {
    ruleset: Option<OwnedFd>,
}

impl Fence {
    /// Makes the ruleset of a root in its surroundings.
    ///
    /// # Errors
    /// A sentence when the kernel refuses a rule that it should know.
    pub fn build(surroundings: &Surroundings, root: &Path) -> Result<Self, String> {
        build(surroundings, root)
            .map(|ruleset| Self { ruleset })
            .map_err(|e| format!("No isolation could be made: {e}."))
    }

    /// The ruleset's descriptor, valid as long as the fence.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.ruleset.as_ref().map(|fd| fd.as_raw_fd())
    }
}

fn build(surroundings: &Surroundings, root: &Path) -> Result<Option<OwnedFd>, Box<dyn std::error::Error>> {
    let everything = AccessFs::from_all(ABI_WANTED);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)?
        .scope(Scope::from_all(ABI_WANTED))?;
    let ports = open_ports(surroundings);
    if ports.is_some() {
        ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?;
    }
    let mut ruleset = ruleset.create()?;
    let owned = [Some(root.to_owned()), surroundings.sandbox.clone(), Some(surroundings.home())];
    let owned = owned.into_iter().flatten().chain([surroundings.temporary()]).map(|path| (path, everything));
    let readable = SYSTEM.iter().map(PathBuf::from).chain(surroundings.toolchains.iter().cloned());
    let readable = readable.map(|path| (path, AccessFs::from_read(ABI_WANTED)));
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::ReadDir;
    let shared = device | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    let devices = DEVICES.iter().map(|path| (PathBuf::from(path), if *path == "/dev/shm" { shared } else { device }));
    let paths: Vec<(PathBuf, BitFlags<AccessFs>)> = owned.chain(readable).chain(devices).collect();
    for (path, access) in paths {
        // A folder that is not there needs no rule.
        if let Ok(fd) = PathFd::new(&path) {
            ruleset = ruleset.add_rule(PathBeneath::new(fd, access))?;
        }
    }
    for port in ports.into_iter().flatten() {
        ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    Ok(ruleset.into())
}

/// The ports a command may connect to; `None` = no limit. Landlock allows port by port, so a denied port costs a rule
/// for each of the others: some tens of milliseconds a call, which leaves a test suite's own random ports usable.
fn open_ports(surroundings: &Surroundings) -> Option<Vec<u16>> {
    let denied = |port: &u16| surroundings.denied_ports.contains(port);
    match &surroundings.allowed_ports {
        Some(allowed) => Some(allowed.iter().copied().filter(|port| !denied(port)).collect()),
        None if surroundings.denied_ports.is_empty() => None,
        None => Some((1..=u16::MAX).filter(|port| !denied(port)).collect()),
    }
}

/// What this kernel can forbid, for the log at start and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Landlock's version; 0 = none.
    pub abi: u32,
}

impl Support {
    /// Whether files outside the Sandbox are kept from commands.
    pub fn files(self) -> bool {
        self.abi >= 1
    }

    /// Whether TCP ports are.
    pub fn tcp(self) -> bool {
        self.abi >= 4
    }

    /// Whether signals to the Harness are.
    pub fn signals(self) -> bool {
        self.abi >= 6
    }

    /// Whether Unix sockets by path are.
    pub fn sockets(self) -> bool {
        self.abi >= 9
    }
}

/// Asks the kernel.
pub fn support() -> Support {
    const VERSION: libc::c_uint = 1;
    // SAFETY: the version query takes a null attribute of size 0 and touches no memory of ours.
    #[allow(unsafe_code)]
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION) };
    Support { abi: u32::try_from(abi).unwrap_or(0) }
}

/// Writes one log line: call it once, when the Harness starts.
pub fn log_support() {
    let support = support();
    let (abi, files, tcp) = (support.abi, support.files(), support.tcp());
    let (signals, sockets) = (support.signals(), support.sockets());
    if files && tcp && signals {
        tracing::info!(abi, files, tcp, signals, sockets, "isolation of commands");
    } else {
        tracing::warn!(abi, files, tcp, signals, sockets, "isolation of commands is partial on this kernel");
    }
}
