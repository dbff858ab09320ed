//! What a call may leave behind, and that it leaves nothing: group D of the public faults.

use crate::guard::Kill;
use crate::tools::testing::Bench;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Every way a process may try to outlive its call; each writes its number to a file of its own and stays.
const STAY: &str = r#"
stay='echo $$ > $1.new; mv $1.new $1; exec sleep 1000'
sh -c "$stay" sh background &
nohup sh -c "$stay" sh nohup >/dev/null 2>&1 &
setsid sh -c "$stay" sh session &
(setsid sh -c '(setsid sh -c "$0" sh double &) &' "$stay" &) &
env -i PATH="$PATH" setsid -f sh -c "$stay" sh bare
sh -c "trap '' TERM INT HUP QUIT USR1; $stay" sh deaf &
sh -c "$stay" sh stopped & while [ ! -s stopped ]; do :; done; kill -STOP $(cat stopped)
(setsid sh -c "$stay" sh stopped_session &) ; while [ ! -s stopped_session ]; do :; done; kill -STOP $(cat stopped_session)
(cd / && sh -c "$stay" sh "$OLDPWD/elsewhere") &
nice -n 19 setsid sh -c "$stay" sh nice &
sh -c "$stay" sh disowned & disown
for name in background nohup session double bare deaf elsewhere nice disowned; do while [ ! -s $name ]; do :; done; done
"#;
const NAMES: [&str; 11] = [
    "background",
    "nohup",
    "session",
    "double",
    "bare",
    "deaf",
    "stopped",
    "stopped_session",
    "elsewhere",
    "nice",
    "disowned",
];

/// Whether a process is there and is no zombie.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z')))
}

/// Looked at once: the answer stands for the end of them all (letta-ai/letta-code#4497).
fn all_gone(bench: &Bench, how: &str) {
    for name in NAMES {
        let pid = std::fs::read_to_string(bench.path(name)).unwrap_or_else(|_| panic!("{how}: {name} never ran"));
        assert!(!lives(pid.trim()), "{how}: {name} lives on");
    }
}

async fn there(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < deadline, "never came: {}", path.display());
        // Poll: until it is there.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// openclaw/openclaw#104847, letta-ai/letta-code#4497, multica-ai/multica#5918
#[tokio::test]
async fn d05_d06_d09_nothing_outlives_a_call_however_it_ends() {
    let ended = Bench::new();
    ended.ok("bash", json!({ "command": STAY })).await;
    all_gone(&ended, "its end");

    let killed = Bench::new();
    killed.err("bash", json!({ "command": format!("{STAY}\nkill -9 $$") })).await;
    all_gone(&killed, "its shell's death");

    let late = Bench::new();
    let text = late.err("bash", json!({"command": format!("{STAY}\nsleep 1000"), "timeout": 4})).await;
    assert!(text.contains("timed out after 4 s"), "{text}");
    all_gone(&late, "its time limit");

    let aborted = Bench::new();
    let (abort, heard) = watch::channel(false);
    let arguments = json!({ "command": format!("{STAY}\ntouch ready; sleep 1000") });
    let call = aborted.tools.run("bash", &arguments, heard);
    let other = async {
        there(&aborted.path("ready")).await;
        abort.send_replace(true);
    };
    let (got, ()) = tokio::join!(call, other);
    assert_eq!(got.text, "The call was aborted.");
    all_gone(&aborted, "an abort");

    let guarded = Bench::new();
    let calls = std::sync::Arc::clone(&guarded.calls);
    let call = guarded.tools.run("bash", &arguments, watch::channel(false).1);
    let other = async {
        there(&guarded.path("ready")).await;
        calls.strike(&Kill { id: "k".into(), at: String::new(), peak: "2Gi".into(), limit: "2Gi".into() });
    };
    let (got, ()) = tokio::join!(call, other);
    assert!(got.text.contains("killed: memory limit"), "{}", got.text);
    all_gone(&guarded, "the memory guard");
}

/// openclaw/openclaw#120386
#[tokio::test]
async fn d07_each_call_is_a_session_and_a_process_group_of_its_own() {
    let bench = Bench::new();
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let text = bench.ok("bash", json!({"command": "cat /proc/$$/stat"})).await;
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let pid = text.split(' ').next().unwrap();
        let (group, session, terminal) = (fields[2], fields[3], fields[4]);
        assert_eq!((group, session, terminal), (pid, pid, "0"), "{text}");
        sessions.push(session.to_owned());
    }
    // From its stat: in a process namespace the leader of our own session may be outside, and its number is 0.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let own = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap().to_owned();
    assert!(sessions[0] != sessions[1] && !sessions.contains(&own));
}

/// Processes whose command line holds a word.
fn count(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| {
            String::from_utf8_lossy(&line).contains(word) && lives(&entry.file_name().to_string_lossy())
        })
    })
    .count()
}

/// Starts a bomb under a bound of processes, aborts it once it is big, and looks what is left.
async fn bomb(word: &str, code: &str, big: usize) {
    let bench = Bench::new();
    let (abort, heard) = watch::channel(false);
    // The kernel bounds no process of root, so root's bomb runs as somebody else; each as another one, for bombs at the
    // same time would share one user's bound.
    static NEXT_USER: AtomicU32 = AtomicU32::new(54_321);
    let user = NEXT_USER.fetch_add(1, Ordering::Relaxed);
    let root = rustix::process::geteuid().is_root();
    let other = if root { format!("setpriv --reuid {user} --regid {user} --clear-groups") } else { String::new() };
    let more = if other.is_empty() { count("") + 400 } else { 400 };
    let line = format!("ulimit -u {more}; {code}; sleep 1000 # {word}");
    let arguments = json!({ "command": format!("{other} bash -c '{line}' 2>/dev/null; sleep 1000") });
    let call = bench.tools.run("bash", &arguments, heard);
    let other = async {
        let deadline = Instant::now() + Duration::from_secs(20);
        while count(word) < big {
            assert!(Instant::now() < deadline, "{word}: only {} processes", count(word));
            // Poll: until it is big.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        abort.send_replace(true);
        Instant::now()
    };
    let (got, aborted) = tokio::join!(call, other);
    eprintln!("{word}: gone {:?} after the abort", aborted.elapsed());
    assert_eq!(got.text, "The call was aborted.");
    assert_eq!(count(word), 0, "{word} lives on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d06_an_abort_ends_a_fork_bomb_under_a_bound_of_processes() {
    bomb("jr2-test-tree", "bomb() { bomb | bomb & }; bomb", 150).await;
    // Each in a session of its own, so that no signal to a group reaches them.
    bomb(
        "jr2-test-sessions",
        r#"for n in $(seq 300); do setsid bash -c "sleep 1000; : jr2-test-sessions" & done"#,
        150,
    )
    .await;
}

/// A process that only ever is for an instant: it starts the next one and ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d06_an_abort_ends_a_process_that_hops_from_one_number_to_the_next() {
    bomb("jr2-test-hop", "hop() { (hop &) }; for n in 1 2 3 4 5; do (hop &); done", 5).await;
}

#[tokio::test]
async fn binary_output_and_terminal_sequences_are_made_visible() {
    let bench = Bench::new();
    let command = r"printf 'a\0b\377\376c\033[31mred\033]0;title\a\302\233d\r\nend\n'";
    let text = bench.ok("bash", json!({ "command": command })).await;
    assert_eq!(text, "a\u{fffd}b\u{fffd}\u{fffd}c\u{fffd}[31mred\u{fffd}]0;title\u{fffd}\u{fffd}d\nend\n");
    let text = bench.ok("bash", json!({"command": "head -c 200000 /dev/zero | tr '\\0' '\\033'"})).await;
    assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "no control character at all");
}

#[tokio::test]
async fn a_flood_keeps_its_head_and_its_tail_and_is_not_held_in_memory() {
    let bench = Bench::new();
    let text = bench.ok("bash", json!({"command": "echo first; yes | head -c 300000000; echo last"})).await;
    assert!(text.starts_with("first\ny\n") && text.ends_with("y\nlast\n"), "{}", text.len());
    assert!(text.len() < 40 << 10 && text.contains(" left out …"), "{}", text.len());
}
