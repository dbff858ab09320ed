use crate::guard::Kill;
use crate::tools::isolate::support;
use crate::tools::testing::Bench;
use crate::tools::{ToolLimits, Toolbox};
use serde_json::json;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Polls with a deadline: the only kind of wait here.
async fn until(what: &str, mut test: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !test() {
        assert!(Instant::now() < deadline, "never came: {what}");
        // Poll: until the condition holds.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process runs; a zombie does not.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z')))
}

fn pid_in(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
}

/// Whether this kernel can keep what a test checks; says so when it cannot.
fn kernel_has(abi: u32) -> bool {
    let has = support().landlock >= abi;
    if !has {
        eprintln!("skipped: needs Landlock ABI {abi}, this kernel has {}", support().landlock);
    }
    has
}

/// Writes its own pid to `pid` from a session of its own, with an empty environment, as an orphan; then stays.
const ESCAPE: &str =
    "env -i setsid sh -c '(sh -c \"echo \\$\\$ > pid; exec sleep 1000\") & ' >/dev/null; until [ -s pid ]; do :; done";

#[tokio::test]
async fn output_and_exit_codes() {
    let bench = Bench::new();
    assert_eq!(bench.ok("bash", json!({"command": "echo a; echo b >&2; echo c"})).await, "a\nb\nc\n");
    assert_eq!(bench.ok("bash", json!({"command": "true"})).await, "(no output)");
    assert_eq!(bench.err("bash", json!({"command": "echo a; exit 3"})).await, "a\nCommand exited with code 3");
    assert_eq!(bench.ok("bash", json!({"command": "cat; pwd -P"})).await.trim(), bench.root().display().to_string());
    let text = bench.ok("bash", json!({"command": "head -c 3000000 /dev/urandom; echo end"})).await;
    assert!(text.ends_with("end\n") && text.contains(" left out …"));
    assert!(bench.err("bash", json!({"command": "x".repeat(140_000)})).await.contains("longer than 128 KiB"));
    assert!(bench.err("bash", json!({"command": "echo \0"})).await.contains("could not be started"));
}

#[tokio::test]
async fn signal_deaths_have_their_names() {
    let bench = Bench::new();
    let cases = [
        ("kill -9 $$", "Command killed by signal SIGKILL (exit 137)"),
        ("sh -c 'kill -9 $$'; exit $?", "Command killed by signal SIGKILL (exit 137)"),
        ("kill -TERM $$", "Command killed by signal SIGTERM (exit 143)"),
        ("kill -SEGV $$", "Command killed by signal SIGSEGV (exit 139)"),
        ("kill -40 $$", "Command was killed by a signal before it finished"),
    ];
    for (command, text) in cases {
        let got = bench.err("bash", json!({"command": command})).await;
        assert!(got.ends_with(text), "{command}: {got}");
    }
}

#[tokio::test]
async fn what_a_call_leaves_behind_dies_with_it() {
    let bench = Bench::new();
    let started = Instant::now();
    bench.ok("bash", json!({"command": "sleep 1000 & echo $! > held"})).await;
    assert!(!lives(&pid_in(&bench.path("held")).unwrap()));
    bench.ok("bash", json!({"command": ESCAPE})).await;
    assert!(!lives(&pid_in(&bench.path("pid")).unwrap()));
    assert!(started.elapsed() < Duration::from_mins(1));
}

#[tokio::test]
async fn a_timeout_kills_the_tree_and_shows_the_output() {
    let bench = Bench::new();
    let command = format!("echo begun; {ESCAPE}; sleep 1000");
    let text = bench.err("bash", json!({"command": command, "timeout": 1.5})).await;
    assert_eq!(text, "begun\nCommand timed out after 1.5 s and was killed");
    assert!(!lives(&pid_in(&bench.path("pid")).unwrap()));
    // The maximum holds whatever is asked.
    let limits = ToolLimits { bash_max: Duration::from_millis(100), ..ToolLimits::default() };
    let tools = Toolbox { limits, ..bench.tools };
    let got = tools.run("bash", &json!({"command": "sleep 9", "timeout": 1e300}), watch::channel(false).1).await;
    assert_eq!(got.text, "Command timed out after 0.1 s and was killed");
}

#[tokio::test]
async fn an_abort_kills_the_tree() {
    let bench = Bench::new();
    let (abort, heard) = watch::channel(false);
    let arguments = json!({"command": format!("trap '' TERM INT HUP; {ESCAPE}; sleep 1000")});
    let call = bench.tools.run("bash", &arguments, heard);
    let other = async {
        until("the escaped process", || pid_in(&bench.path("pid")).is_some()).await;
        abort.send(true).unwrap();
    };
    let (got, ()) = tokio::join!(call, other);
    assert_eq!(got.text, "The call was aborted.");
    assert!(!lives(&pid_in(&bench.path("pid")).unwrap()));
}

#[tokio::test]
async fn m_05_a_memory_kill_takes_the_tree_and_the_verdict_ends_the_result() {
    let bench = Bench::new();
    let calls = std::sync::Arc::clone(&bench.calls);
    let arguments = json!({"command": format!("echo begun; trap '' TERM INT HUP; {ESCAPE}; sleep 1000")});
    let call = bench.tools.run("bash", &arguments, watch::channel(false).1);
    let sizes = |peak: &str| Kill { id: peak.into(), at: String::new(), peak: peak.into(), limit: "2Gi".into() };
    let other = async {
        until("the escaped process", || pid_in(&bench.path("pid")).is_some()).await;
        calls.strike(&sizes("1.9Gi"));
        calls.strike(&sizes("1.8Gi"));
    };
    let (got, ()) = tokio::join!(call, other);
    let verdict = "begun\nkilled: memory limit (peak 1.9Gi of 2Gi); use fewer workers or a larger Size";
    assert_eq!((got.text.as_str(), got.kill.as_deref(), got.is_error), (verdict, Some("1.9Gi"), true), "M-6");
    assert!(!lives(&pid_in(&bench.path("pid")).unwrap()));
    assert_eq!(bench.run("bash", json!({"command": "echo next"})).await.kill, None);
}

#[tokio::test]
async fn m_06_the_verdict_stands_before_the_end_that_the_guard_s_own_kill_makes() {
    let bench = Bench::new();
    let calls = std::sync::Arc::clone(&bench.calls);
    let arguments = json!({"command": "echo $$ > pid; exec sleep 1000"});
    let call = bench.tools.run("bash", &arguments, watch::channel(false).1);
    let other = async {
        until("the command", || pid_in(&bench.path("pid")).is_some()).await;
        calls.strike(&Kill { id: "k".into(), at: String::new(), peak: "3Gi".into(), limit: "2Gi".into() });
        let pid = pid_in(&bench.path("pid")).unwrap().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // As the guard does right after it has fired.
        until("its end", || !lives(&pid_in(&bench.path("pid")).unwrap())).await;
    };
    let (got, ()) = tokio::join!(biased; call, other);
    assert_eq!(got.text, "killed: memory limit (peak 3Gi of 2Gi); use fewer workers or a larger Size");
}

#[tokio::test]
async fn a_dropped_call_kills_the_tree() {
    let bench = Bench::new();
    let arguments = json!({"command": format!("{ESCAPE}; sleep 1000")});
    tokio::select! {
        _ = bench.tools.run("bash", &arguments, watch::channel(false).1) => panic!("it cannot end"),
        () = until("the escaped process", || pid_in(&bench.path("pid")).is_some()) => {}
    }
    let pid = pid_in(&bench.path("pid")).unwrap();
    until("its end", || !lives(&pid)).await;
}

#[tokio::test]
async fn many_calls_at_once_keep_apart() {
    let bench = Bench::new();
    let arguments: Vec<_> = (0..8).map(|n| json!({"command": format!("sleep 1000 & echo {n}")})).collect();
    let calls = arguments.iter().map(|a| bench.tools.run("bash", a, watch::channel(false).1));
    for (n, got) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(got.text, format!("{n}\n"));
    }
}

#[tokio::test]
async fn the_environment_is_clean() {
    let bench = Bench::new();
    let text = bench.ok("bash", json!({"command": "env -0 | tr '\\0' '\\n' | cut -d= -f1 | sort | xargs"})).await;
    assert_eq!(text.trim(), "HOME LANG PATH PWD SHLVL TERM TMPDIR _");
    let text = bench
        .ok("bash", json!({"command": "cd; pwd -P; cat /proc/self/oom_score_adj; ls /proc/self/fd | wc -l"}))
        .await;
    let home = bench.path("../home").canonicalize().unwrap();
    // Standard input, output, errors, and the listing itself: nothing of the Harness.
    assert_eq!(text, format!("{}\n1000\n4\n", home.display()));
}

#[tokio::test]
async fn git_works_in_the_root() {
    let bench = Bench::new();
    let command = "git init -q && echo a > a && git add a && git commit -qm first && git log --format=%an";
    assert_eq!(bench.ok("bash", json!({"command": command})).await.trim(), "jr2 agent");
    let command = "git config user.name other && git commit -q --allow-empty -m second && git log -1 --format=%an";
    assert_eq!(bench.ok("bash", json!({"command": command})).await.trim(), "other");
}

#[tokio::test]
async fn files_outside_can_be_neither_read_nor_written() {
    if !kernel_has(1) {
        return;
    }
    let bench = Bench::new();
    let outside = bench.folder.path().join("secret");
    std::fs::write(&outside, "token").unwrap();
    let path = outside.display();
    for command in [
        format!("cat {path}"),
        format!("echo x > {path}"),
        format!("echo x >> {path}"),
        format!("rm {path}"),
        format!("mv {path} ."),
        format!("ln {path} hard && cat hard"),
        format!("ln -s {path} soft; cat soft"),
        format!("touch {}/new", bench.folder.path().display()),
        format!("ls {}", bench.folder.path().display()),
        "ls /root /home".to_owned(),
        "touch /etc/jr2-test".to_owned(),
    ] {
        let text = bench.err("bash", json!({"command": command})).await;
        assert!(text.contains("ermission denied") || text.contains("cross-device"), "{command}: {text}");
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "token");
    let command =
        "echo x > /dev/null && mktemp && echo x > ../other && python3 -c 'print(1)' 2>/dev/null || cat ../other";
    bench.ok("bash", json!({"command": command})).await;
}

#[tokio::test]
async fn a_toolchain_can_be_read_and_not_written() {
    if !kernel_has(1) {
        return;
    }
    let chain = tempfile::tempdir().unwrap();
    std::fs::write(chain.path().join("tool"), "#!/bin/sh\necho ran\n").unwrap();
    let bench = Bench::with(|surroundings| surroundings.toolchains.push(chain.path().into()));
    let path = chain.path().join("tool");
    assert_eq!(bench.ok("bash", json!({"command": format!("sh {}", path.display())})).await, "ran\n");
    assert!(bench.err("bash", json!({"command": format!("echo x > {}", path.display())})).await.contains("denied"));
}

/// kubernetes-sigs/agent-sandbox#1045, NVIDIA/OpenShell#538
#[tokio::test]
async fn m01_the_harness_can_be_neither_read_nor_signalled() {
    if !kernel_has(6) {
        return;
    }
    let bench = Bench::new();
    let pid = std::process::id();
    for command in [
        format!("cat /proc/{pid}/environ"),
        format!("cat /proc/{pid}/mem"),
        format!("cat /proc/{pid}/fd/0"),
        format!("cat /proc/{pid}/root/etc/hostname"),
        "cat /proc/$PPID/environ".to_owned(),
        format!("kill -CONT {pid}"),
        "kill -9 $PPID".to_owned(),
    ] {
        let text = bench.err("bash", json!({"command": command})).await;
        assert!(text.contains("ermission denied") || text.contains("not permitted"), "{command}: {text}");
    }
    let text = bench.err("bash", json!({"command": "ulimit -c 0; kill -9 $PPID; kill -9 -1; exit 3"})).await;
    assert!(text.ends_with("Command exited with code 3") || text.contains("SIGKILL"), "{text}");
}

#[tokio::test]
async fn denied_ports_cannot_be_dialled() {
    if !kernel_has(4) {
        return;
    }
    let (api_listener, other_listener) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (api, other) = (api_listener.local_addr().unwrap().port(), other_listener.local_addr().unwrap().port());
    let dial = |port: u16| json!({"command": format!("exec 7<>/dev/tcp/127.0.0.1/{port}")});
    let denied = Bench::with(|surroundings| surroundings.denied_ports.push(api));
    assert!(denied.err("bash", dial(api)).await.contains("Permission denied"));
    denied.ok("bash", dial(other)).await;
    let listed = Bench::with(|surroundings| surroundings.allowed_ports = Some(vec![other]));
    assert!(listed.err("bash", dial(api)).await.contains("Permission denied"));
    listed.ok("bash", dial(other)).await;
    Bench::new().ok("bash", dial(api)).await;
}
