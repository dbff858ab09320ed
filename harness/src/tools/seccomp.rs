//! System calls that no Agent needs and an attacker does: refused with `EPERM`, never a kill, so that a program that tries
//! one goes on. The program is compiled once, before any fork; a child only hands it to the kernel.
//!
//! Other architectures' calls (32 bit, x32) are refused as a whole: the list would not match their numbers. `clone3` is
//! `ENOSYS`, because its flags lie in memory that a filter cannot read; C libraries then use `clone`, whose flags it can.

use seccompiler::{
    SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Calls refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    // What is mounted where.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Another process's memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The kernel itself, and its largest surfaces of attack.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_syslog,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Flags that make a namespace, one bit each: with a new user namespace comes every capability inside it.
const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];
/// The one more that only `unshare` knows: in `clone` its bit is part of the signal.
const NEW_TIME: u64 = 0x80;
/// Address families of sockets that stay: the rest is kernel code no task needs.
const FAMILIES: &[libc::c_int] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Terminal requests that type into somebody's terminal.
const TYPING: &[u64] = &[libc::TIOCSTI, 0x541C];
/// Execution domains that stay: Linux's own, and the question which one it is.
const DOMAINS: &[u64] = &[0, 0xffff_ffff];

/// Set in a call's number by the x32 ABI, which shares its architecture with the 64-bit one.
const X32: u32 = 0x4000_0000;
/// Where `struct seccomp_data` holds the call's number and the architecture.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// The architecture's name in `struct seccomp_data`, from `linux/audit.h`.
#[cfg(target_arch = "x86_64")]
const OWN: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const OWN: u32 = 0xC000_00B7;
#[cfg(target_arch = "riscv64")]
const OWN: u32 = 0xC000_00F3;

/// The compiled filter, or none where the kernel or this build has none.
pub(super) fn program() -> Option<&'static [sock_filter]> {
    static PROGRAM: OnceLock<Option<Vec<sock_filter>>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            if !kernel_filters() {
                return None;
            }
            compile().inspect_err(|error| tracing::error!("harness: no filter of system calls: {error}")).ok()
        })
        .as_deref()
}

/// Hands the filter to the kernel for the calling thread and all it will start.
///
/// # Safety
/// Between fork and exec only: it makes one system call on memory that lives as long as the process.
#[allow(unsafe_code)]
pub(super) unsafe fn enter(program: &'static [sock_filter]) -> libc::c_long {
    let filter = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel copies `len` instructions of the layout both crates share from a slice that is that long.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) }
}

fn kernel_filters() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one integer of this frame.
    #[allow(unsafe_code)]
    let known = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    known == 0
}

fn compile() -> Result<Vec<sock_filter>, Box<dyn std::error::Error>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let flag = |flag: u64| one(0, Op::MaskedEq(flag), flag);
    let namespaces = || NAMESPACES.iter().map(|bit| flag(*bit as u64));
    rules.insert(libc::SYS_clone, namespaces().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_unshare, namespaces().chain([flag(NEW_TIME)]).collect::<Result<_, _>>()?);
    let families = FAMILIES.iter().map(|family| *family as u64);
    rules.insert(libc::SYS_socket, vec![none_of(0, families)?]);
    rules.insert(libc::SYS_personality, vec![none_of(0, DOMAINS.iter().copied())?]);
    let typing = TYPING.iter().map(|request| one(1, Op::Eq, *request));
    rules.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refuse, TargetArch::try_from(std::env::consts::ARCH)?)?;
    let listed: Vec<sock_filter> = filter.try_into()?;
    Ok(prelude().into_iter().chain(listed).collect())
}

fn one(argument: u8, test: Op, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, Len::Dword, test, value)?])
}

fn none_of(argument: u8, values: impl Iterator<Item = u64>) -> Result<SeccompRule, seccompiler::BackendError> {
    let differs = values.map(|value| SeccompCondition::new(argument, Len::Dword, Op::Ne, value));
    SeccompRule::new(differs.collect::<Result<_, _>>()?)
}

/// What the crate's own program does not do: it kills on another architecture, and lets x32's numbers through.
fn prelude() -> Vec<sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let plain = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    // Goes on with the instruction behind the next one unless the test holds as `then` says.
    let skip_if = |code, k| sock_filter { code, jt: 1, jf: 0, k };
    let skip_unless = |code, k| sock_filter { code, jt: 0, jf: 1, k };
    let error = |errno: libc::c_int| plain(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32);
    vec![
        plain(LOAD, ARCHITECTURE),
        skip_if(IF_EQUAL, OWN),
        error(libc::EPERM),
        plain(LOAD, NUMBER),
        skip_unless(IF_AT_LEAST, X32),
        error(libc::EPERM),
        skip_unless(IF_EQUAL, libc::SYS_clone3 as u32),
        error(libc::ENOSYS),
    ]
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;
