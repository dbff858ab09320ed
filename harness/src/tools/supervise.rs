//! The process between the Harness and a command: whatever the command starts dies with its call.
//!
//! After the fork the child forks once more. The grandchild enters the fence and becomes the command. The child stays: it
//! adopts every orphan of the command (subreaper), so nothing escapes by a new session or a double fork, and it lies
//! outside the fence, so nothing in it can be signalled from inside. It kills the whole tree when the command ends, when
//! the Harness closes its end of the lifeline, and when the Harness dies, which closes it too. Then it ends as the
//! command did. It only makes system calls: after a fork in a process with threads nothing else is safe.

#![allow(unsafe_code)]

use super::isolate::Entry;
use std::io;
use std::os::fd::RawFd;

/// `oom_score_adj` of a command: the kernel takes it before the Harness (spec H-26).
const OOM_SCORE: &[u8] = b"1000";
/// Where the supervisor holds the lifeline, so that everything above can be closed.
const LIFELINE: RawFd = 3;
/// Capabilities a command of root keeps, by number: chown, dac_override, fowner, fsetid, kill, setgid, setuid,
/// net_bind_service.
const CAPABILITIES_KEPT: u64 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10;
/// Milliseconds between two rounds of killing, and most rounds: 10 s in all, then what cannot die is left behind.
const KILL_ROUND_MS: libc::c_int = 20;
const KILL_ROUNDS_MAX: u32 = 500;

/// What the child needs; plain numbers, because nothing may be allocated there.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// Read end of the lifeline.
    pub lifeline: RawFd,
    /// The fence.
    pub fence: Entry,
    /// `cgroup.procs` of the group that commands run in.
    pub door: Option<RawFd>,
}

/// Runs between fork and exec: returns in the process that becomes the command, never in the supervisor.
///
/// # Safety
/// Only for `pre_exec`: the calling process must be a fresh fork with one thread.
pub(super) unsafe fn split(plan: Plan) -> io::Result<()> {
    // SAFETY: only system calls on values and on buffers of this frame.
    unsafe {
        check(libc::setsid())?;
        check(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        let mut wanted: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut wanted);
        libc::sigaddset(&raw mut wanted, libc::SIGCHLD);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const wanted, &raw mut before))?;
        let command = libc::fork();
        check(command)?;
        if command != 0 {
            supervise(command, plan.lifeline, &wanted);
        }
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()))?;
        check(libc::setsid())?;
        // If the supervisor dies first, so does the shell.
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if score >= 0 {
            // A kernel that refuses it only loses a preference.
            libc::write(score, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
            libc::close(score);
        }
        if let Some(door) = plan.door {
            // Outside of its group the kernel's kill would reach further than the command: rather no command.
            check(libc::write(door, c"0".as_ptr().cast(), 1) as libc::c_int)?;
        }
        // Files the Harness itself was started with may lack the close-on-exec mark.
        libc::syscall(libc::SYS_close_range, LIFELINE, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        drop_capabilities()?;
        plan.fence.enter()
    }
}

/// Takes from a command that runs as root what would reach around the fence: reading other processes' memory, making
/// device nodes, mounting. Without root there is nothing to take.
///
/// # Safety
/// As [`split`].
unsafe fn drop_capabilities() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let kept = |bit: libc::c_ulong| CAPABILITIES_KEPT & (1 << bit) != 0;
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: only system calls on values and on buffers of this frame, in the layout of version 3.
    unsafe {
        for bit in (0..=63).filter(|bit| !kept(*bit)) {
            // Fails past the last capability, and without the right to; then `capset` below is all there is to do.
            libc::prctl(libc::PR_CAPBSET_DROP, bit, 0, 0, 0);
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        check(libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) as libc::c_int)?;
        for (word, data) in data.iter_mut().enumerate() {
            let mask = (CAPABILITIES_KEPT >> (32 * word)) as u32;
            data.effective &= mask;
            data.permitted &= mask;
            data.inheritable = 0;
        }
        check(libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) as libc::c_int)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The supervisor's life.
///
/// # Safety
/// As [`split`].
unsafe fn supervise(command: libc::pid_t, lifeline: RawFd, child_signal: &libc::sigset_t) -> ! {
    // SAFETY: only system calls on values and on buffers of this frame.
    unsafe {
        libc::dup2(lifeline, LIFELINE);
        // Everything else goes: the command's pipes, the spawn's own error pipe, the Harness's files.
        for fd in 0..LIFELINE {
            libc::close(fd);
        }
        if libc::syscall(libc::SYS_close_range, LIFELINE + 1, libc::c_uint::MAX, 0) < 0 {
            for fd in LIFELINE + 1..1024 {
                libc::close(fd);
            }
        }
        let signals = libc::signalfd(-1, child_signal, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        let mut end: Option<libc::c_int> = None;
        let mut rounds = 0;
        loop {
            // Reap: orphans by the way, the command for its end.
            loop {
                let mut status = 0;
                let pid = libc::waitpid(-1, &raw mut status, libc::WNOHANG);
                if pid == command {
                    end = Some(status);
                    rounds = rounds.max(1);
                } else if pid < 0 {
                    finish(end);
                } else if pid == 0 {
                    break;
                }
            }
            if rounds > 0 {
                kill_children(command, end.is_some());
                rounds += 1;
                if rounds > KILL_ROUNDS_MAX {
                    finish(end);
                }
            }
            let mut wait = [
                libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
                libc::pollfd { fd: if rounds > 0 { -1 } else { LIFELINE }, events: libc::POLLIN, revents: 0 },
            ];
            libc::poll(wait.as_mut_ptr(), 2, if rounds > 0 { KILL_ROUND_MS } else { -1 });
            if wait[1].revents != 0 {
                rounds = 1;
            }
            let mut sink = [0u8; 1024];
            while libc::read(signals, sink.as_mut_ptr().cast(), sink.len()) > 0 {}
        }
    }
}

/// Kills the command's session and every direct child; grandchildren become children and go in the next round.
///
/// # Safety
/// As [`split`].
unsafe fn kill_children(command: libc::pid_t, reaped: bool) {
    // SAFETY: only system calls on values and on buffers of this frame.
    unsafe {
        if !reaped {
            // Not after its end: the number may be another's by then.
            libc::kill(-command, libc::SIGKILL);
        }
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list < 0 {
            return;
        }
        let (mut buffer, mut pid) = ([0u8; 4096], 0 as libc::pid_t);
        loop {
            let got = libc::read(list, buffer.as_mut_ptr().cast(), buffer.len());
            let Ok(got @ 1..) = usize::try_from(got) else { break };
            for byte in &buffer[..got] {
                if byte.is_ascii_digit() {
                    pid = pid.wrapping_mul(10).wrapping_add(libc::pid_t::from(byte - b'0'));
                } else if pid > 1 {
                    libc::kill(pid, libc::SIGKILL);
                    pid = 0;
                }
            }
        }
        if pid > 1 {
            libc::kill(pid, libc::SIGKILL);
        }
        libc::close(list);
    }
}

/// Ends as the command ended.
///
/// # Safety
/// As [`split`].
unsafe fn finish(end: Option<libc::c_int>) -> ! {
    // SAFETY: only system calls on values and on buffers of this frame.
    unsafe {
        match end {
            Some(status) if libc::WIFEXITED(status) => libc::_exit(libc::WEXITSTATUS(status)),
            Some(status) if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                // The command may have left a core; a second one of ours helps nobody.
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::signal(signal, libc::SIG_DFL);
                libc::kill(libc::getpid(), signal);
            }
            _ => {}
        }
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::_exit(libc::EXIT_FAILURE)
    }
}

#[cfg(test)]
#[path = "supervise_tests.rs"]
mod tests;
