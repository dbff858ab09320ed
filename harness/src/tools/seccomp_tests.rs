use super::*;
use crate::tools::testing::Bench;
use proptest::prelude::*;
use serde_json::json;

const ALLOW: u32 = 0x7fff_0000;
const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// Runs the program as the kernel does, on a call's number, architecture and arguments.
fn verdict(program: &[sock_filter], number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend_from_slice(&number.to_le_bytes());
    data.extend_from_slice(&architecture.to_le_bytes());
    data.extend_from_slice(&[0; 8]);
    data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
    let (mut at, mut word) = (0, 0u32);
    loop {
        let step = &program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
        match u32::from(step.code) {
            0x20 => {
                let from = step.k as usize;
                word = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
            }
            0x54 => word &= step.k,
            0x05 => at += step.k as usize,
            0x15 => at += jump(word == step.k),
            0x25 => at += jump(word > step.k),
            0x35 => at += jump(word >= step.k),
            0x06 => return step.k,
            other => panic!("no such instruction here: {other:#x}"),
        }
    }
}

fn call(number: libc::c_long, arguments: [u64; 6]) -> u32 {
    verdict(&compile().unwrap(), u32::try_from(number).unwrap(), OWN, arguments)
}

#[test]
fn the_listed_calls_are_refused_and_the_rest_pass() {
    for number in REFUSED {
        assert_eq!(call(*number, [0; 6]), EPERM, "{number}");
    }
    for number in [libc::SYS_read, libc::SYS_openat, libc::SYS_execve, libc::SYS_exit_group, libc::SYS_futex, 1_000] {
        assert_eq!(call(number, [u64::MAX; 6]), ALLOW, "{number}");
    }
    assert!(compile().unwrap().len() < 4_096, "the kernel's bound");
}

#[test]
fn other_architectures_and_x32_are_refused_whole_and_never_killed() {
    let program = compile().unwrap();
    for number in [0, 1, 60, 165] {
        // i386, and anything else.
        for architecture in [0x4000_0003, 0, u32::MAX, OWN ^ 1] {
            assert_eq!(verdict(&program, number, architecture, [0; 6]), EPERM);
        }
        assert_eq!(verdict(&program, number | X32, OWN, [0; 6]), EPERM);
    }
    assert_eq!(verdict(&program, u32::MAX, OWN, [0; 6]), EPERM);
}

#[test]
fn namespaces_are_refused_however_they_are_asked_for() {
    let first = |value: u64| [value, 0, 0, 0, 0, 0];
    // What `fork` and threads use.
    for flags in [0x11, 0x3d_0f00, 0x120_0011, 0x4111] {
        assert_eq!(call(libc::SYS_clone, first(flags)), ALLOW, "{flags:#x}");
        for bit in NAMESPACES {
            assert_eq!(call(libc::SYS_clone, first(flags | *bit as u64)), EPERM, "{bit:#x}");
        }
    }
    for bit in NAMESPACES.iter().map(|bit| *bit as u64).chain([NEW_TIME]) {
        assert_eq!(call(libc::SYS_unshare, first(bit | 0x400)), EPERM, "{bit:#x}");
    }
    assert_eq!(call(libc::SYS_unshare, first(0x400)), ALLOW, "a file table of its own is no namespace");
    assert_eq!(call(libc::SYS_clone3, [0; 6]), ENOSYS);
}

#[test]
fn arguments_decide_for_sockets_terminals_and_domains() {
    let first = |value: u64| [value, 2, 0, 0, 0, 0];
    for family in 0..64 {
        let kept = FAMILIES.iter().any(|one| *one as u64 == family);
        assert_eq!(call(libc::SYS_socket, first(family)), if kept { ALLOW } else { EPERM }, "{family}");
    }
    for (request, expected) in [(0x5412, EPERM), (0x541C, EPERM), (0x5401, ALLOW), (0x5413, ALLOW)] {
        assert_eq!(call(libc::SYS_ioctl, [0, request, 0, 0, 0, 0]), expected, "{request:#x}");
    }
    for (domain, expected) in [(0, ALLOW), (0xffff_ffff, ALLOW), (0x0040_0000, EPERM), (8, EPERM)] {
        assert_eq!(call(libc::SYS_personality, first(domain)), expected, "{domain:#x}");
    }
}

proptest! {
    /// The upper half of an argument is no way round: the kernel looks at the lower one only.
    #[test]
    fn the_upper_half_of_an_argument_changes_nothing(high in any::<u32>(), low in any::<u32>()) {
        let wide = u64::from(high) << 32 | u64::from(low);
        for number in [libc::SYS_clone, libc::SYS_unshare, libc::SYS_socket, libc::SYS_personality] {
            prop_assert_eq!(call(number, [wide; 6]), call(number, [u64::from(low); 6]));
        }
    }
}

/// Makes every refused call when it runs as a command of a Sandbox, and does nothing else.
#[test]
#[allow(unsafe_code)]
fn attempt() {
    if std::env::var_os("JR2_TEST_ATTEMPT").is_none() {
        return;
    }
    let report = |name: &str, number: libc::c_long, arguments: [libc::c_long; 3]| {
        // SAFETY: whatever these do without a filter, they get no pointer of ours.
        let result = unsafe { libc::syscall(number, arguments[0], arguments[1], arguments[2], 0, 0, 0) };
        eprintln!("{name} {number} {result} {}", std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    };
    // `vhangup` and `reboot` without arguments do no harm where nothing holds either.
    for number in REFUSED {
        report("refused", *number, [0; 3]);
    }
    report("unshare", libc::SYS_unshare, [libc::c_long::from(libc::CLONE_NEWUSER), 0, 0]);
    report("clone", libc::SYS_clone, [libc::c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD), 0, 0]);
    report("socket", libc::SYS_socket, [libc::c_long::from(libc::AF_ALG), libc::c_long::from(libc::SOCK_SEQPACKET), 0]);
    report("personality", libc::SYS_personality, [0x0040_0000, 0, 0]);
    report("typing", libc::SYS_ioctl, [0, libc::TIOCSTI as libc::c_long, 0]);
    #[cfg(target_arch = "x86_64")]
    report("x32", libc::SYS_getpid | 0x4000_0000, [0; 3]);
    report("clone3", libc::SYS_clone3, [0; 3]);
    let kept = std::process::Command::new("sh").arg("-c").arg("exit 7").status();
    eprintln!("fork {:?}", kept.ok().and_then(|status| status.code()));
    eprintln!("thread {:?}", std::thread::spawn(|| 8).join().ok());
}

#[tokio::test]
async fn an_agent_s_command_that_tries_each_forbidden_call_gets_eperm_and_lives() {
    if program().is_none() {
        eprintln!("skipped: this kernel has no seccomp filters");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let bench = Bench::with(|surroundings| surroundings.toolchains.push(own.parent().unwrap().into()));
    let name = "tools::seccomp::tests::attempt";
    let command = format!("JR2_TEST_ATTEMPT=1 {} --exact {name} --nocapture", own.display());
    let text = bench.ok("bash", json!({ "command": command })).await;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let tries: Vec<&Vec<&str>> =
        lines.iter().filter(|line| line.len() == 4 && line[2].parse::<i64>().is_ok()).collect();
    let more = if cfg!(target_arch = "x86_64") { 7 } else { 6 };
    assert_eq!(tries.len(), REFUSED.len() + more, "{text}");
    for line in tries {
        let errno = if line[0] == "clone3" { libc::ENOSYS } else { libc::EPERM };
        assert_eq!((line[2], line[3]), ("-1", errno.to_string().as_str()), "{line:?}");
    }
    assert!(text.contains("fork Some(7)") && text.contains("thread Some(8)"), "{text}");
}

#[tokio::test]
async fn no_command_gains_rights_or_leaves_a_core_file() {
    let bench = Bench::new();
    let text = bench.ok("bash", json!({"command": "cat /proc/self/status; ulimit -Hc; ulimit -Sn; ulimit -Hu"})).await;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    assert_eq!(field("NoNewPrivs:"), Some("1"));
    if program().is_some() {
        assert_eq!(field("Seccomp:"), Some("2"));
    }
    let tail: Vec<&str> = text.lines().rev().take(3).collect();
    assert_eq!(tail[2], "0", "core files");
    assert!(tail[1].parse::<u64>().unwrap() <= 65_536, "{tail:?}");
    assert!(tail[0].parse::<u64>().unwrap() > 1, "{tail:?}");
}
