//! What the kernel keeps from a command (decision 46): a Landlock ruleset and a filter of system calls, made once, entered
//! by each child.
//!
//! A command may write beneath the Sandbox, its scratch folders and the root; read and execute the system's folders and
//! the toolchains; nothing else. Processes outside its own fence it can neither signal nor look into (`/proc/PID/environ`
//! included), and TCP connections are held to [`Surroundings`]. What an older kernel cannot forbid stays open, and
//! [`support`] says so; `docs/isolation.md` lists it all. Not covered: UDP, listening, and, before ABI 9, connecting to Unix sockets by path.

use super::limits::{self, Limits};
use super::{Surroundings, seccomp};
use jr2_shared::isolation::Isolation;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};
use seccompiler::sock_filter;
use std::io;
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
/// Devices that may be read and written. `/dev/shm` is there because semaphores of common languages live in it. No
/// terminals: the rule for a new one would open those of the user too, to be read and typed on.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/shm"];

/// What a command enters before it runs.
#[derive(Debug)]
pub struct Fence {
    /// None where the kernel has no Landlock.
    ruleset: Option<OwnedFd>,
    limits: Limits,
}

/// A fence as a freshly forked child sees it: numbers, and memory that is never freed.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    ruleset: Option<RawFd>,
    filter: Option<&'static [sock_filter]>,
    limits: Limits,
}

impl Entry {
    /// Enters: the calling process and all it starts never get out.
    ///
    /// # Safety
    /// Between fork and exec only; it makes only system calls.
    #[allow(unsafe_code)]
    pub unsafe fn enter(&self) -> io::Result<()> {
        let check = |result: libc::c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        // SAFETY: system calls on values, on this frame's memory and on memory that is never freed.
        unsafe {
            for bound in self.limits.bounds {
                check(libc::setrlimit(bound.resource, &raw const bound.value).into())?;
            }
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            if let Some(ruleset) = self.ruleset {
                check(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0))?;
            }
            // Last, so that it need not let its own making through.
            if let Some(filter) = self.filter {
                check(seccomp::enter(filter))?;
            }
        }
        Ok(())
    }
}

impl Fence {
    /// Makes the ruleset of a root in its surroundings.
    ///
    /// # Errors
    /// A sentence when the kernel refuses a rule that it should know.
    pub fn build(surroundings: &Surroundings, root: &Path) -> Result<Self, String> {
        build(surroundings, root)
            .map(|ruleset| Self { ruleset, limits: Limits::now() })
            .map_err(|e| format!("No isolation could be made: {e}."))
    }

    /// What a child needs to enter it; the descriptor is valid as long as the fence.
    pub(super) fn entry(&self) -> Entry {
        Entry {
            ruleset: self.ruleset.as_ref().map(|fd| fd.as_raw_fd()),
            filter: seccomp::program(),
            limits: self.limits,
        }
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

/// What this kernel keeps from commands.
pub fn support() -> Isolation {
    const VERSION: libc::c_uint = 1;
    // SAFETY: the version query takes a null attribute of size 0 and touches no memory of ours.
    #[allow(unsafe_code)]
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION) };
    let mut isolation = Isolation {
        landlock: u32::try_from(abi).unwrap_or(0),
        system_calls: seccomp::program().is_some(),
        // Every command enters it or does not start.
        no_new_privileges: true,
        ..Isolation::default()
    };
    limits::describe(&mut isolation);
    isolation
}

/// Writes one log line: call it once, when the Harness starts.
pub fn log_support() {
    let found = support();
    let (active, open) = (found.active().join(", "), found.open().join(", "));
    if found.files() && found.tcp() && found.signals() && found.system_calls {
        tracing::info!(landlock = found.landlock, active, open, "isolation of commands");
    } else {
        tracing::warn!(landlock = found.landlock, active, open, "isolation of commands is partial on this kernel");
    }
}
