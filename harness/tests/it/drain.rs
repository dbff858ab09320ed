//! The end of a process on SIGTERM (spec H-3, H-17): what is refused, what settles, what dies, and how long it may take.

use crate::world::{Answer, DEADLINE, World, until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

fn pid_in(path: &Path) -> Option<Pid> {
    Pid::from_raw(std::fs::read_to_string(path).ok()?.trim().parse().ok()?)
}

fn lives(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

/// A Submission whose `bash` call runs; a second one waits behind it.
async fn busy(world: &World, command: &str) -> Pid {
    world.script(vec![Answer::Calls(vec![("c1", "bash", json!({ "command": command }).to_string())])]);
    world.admit(world.body("A")).await;
    world.admit(world.body("B")).await;
    let file = world.work().join("pid");
    until("the command runs", || pid_in(&file).is_some()).await;
    pid_in(&file).unwrap()
}

#[tokio::test]
async fn h_17_a_drain_takes_running_commands_with_it_within_the_grace() {
    let mut world = World::start().await;
    let orphan = "trap '' TERM INT HUP; (setsid sh -c 'echo $$ > pid; exec sleep 1000' &) ; sleep 1000";
    let pid = busy(&world, orphan).await;
    let begun = Instant::now();
    world.signal(Signal::TERM);
    assert_eq!(world.exit().await, Some(0), "{}", world.stderr());
    // Kubernetes waits 30 s before it kills.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert!(!lives(pid), "nothing outlives the drain");
    world.boot().await;
    let settlements = world.history().await["settlements"].clone();
    assert_eq!(settlements.as_array().unwrap().len(), 2, "the queued one too: {settlements}");
    for settled in settlements.as_array().unwrap() {
        assert_eq!(settled["error"]["type"], "harness_restarted");
    }
}

#[tokio::test]
async fn h_03_and_h_17_a_drain_that_lasts_refuses_and_a_second_signal_ends_it_at_once() {
    let mut world = World::start().await;
    // The process that would kill the command's tree is stopped, so the drain must wait for it.
    let supervisor = busy(&world, "echo $PPID > pid; exec sleep 1000").await;
    kill_process(supervisor, Signal::STOP).unwrap();
    world.signal(Signal::TERM);
    let draining =
        tokio::time::timeout(DEADLINE, async { while world.call("GET", &world.path(), None).await.0 != 503 {} });
    draining.await.unwrap();
    for (method, path, body) in [
        ("POST", world.path(), Some(world.body("late"))),
        ("GET", world.path(), None),
        ("PUT", "/agents".to_owned(), Some(json!({"live": []}))),
        ("GET", "/isolation".to_owned(), None),
        ("GET", "/nowhere".to_owned(), None),
    ] {
        let (status, error, headers) = world.call(method, &path, body).await;
        assert_eq!((status, headers["connection"].to_str().unwrap()), (503, "close"), "{method} {path}");
        assert_eq!(error["error"], "the Harness is draining");
    }
    assert_eq!(world.http.get("http://h/healthz").send().await.unwrap().status(), 204, "H-2");
    let begun = Instant::now();
    world.signal(Signal::TERM);
    assert_eq!(world.exit().await, Some(0), "{}", world.stderr());
    assert!(begun.elapsed() < Duration::from_secs(5), "at once: {:?}", begun.elapsed());
    kill_process(supervisor, Signal::CONT).unwrap();
    until("the tree dies with its Harness", || !lives(supervisor)).await;
    world.boot().await;
    assert_eq!(world.history().await["settlements"].as_array().unwrap().len(), 2, "settled by the next start");
}
