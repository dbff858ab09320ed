//! The Sandbox's own memory cgroup: a limit the kernel keeps, a kill it counts, a group that goes with the Sandbox.

use crate::rig::{Rig, client, kill, runs, until};
use jr2_orchestrator::workspace::{LastEnd, LocalProvider, SandboxEvent, SandboxProvider, SandboxSpec};
use std::path::PathBuf;
use std::process::Command;

/// Small, so that it fills quickly, and enough for the stand-in.
const LIMIT: u64 = 96 << 20;

/// A rig with cgroups and a small Sandbox, and the Sandbox's group; `None` where this machine or user allows none.
async fn small(rig: &mut Rig) -> Option<(LocalProvider, SandboxSpec, String, PathBuf)> {
    rig.memory_cgroups = true;
    let mut spec = rig.spec("ws-a");
    spec.size.memory_bytes = LIMIT;
    let provider = rig.provider();
    let made = provider.provision(&spec).await.unwrap();
    match rig.record("ws-a")["cgroup"]["path"].as_str() {
        Some(path) => Some((provider, spec, made.uid, PathBuf::from(path))),
        None => {
            println!("skipped: no memory cgroup can be made here");
            None
        }
    }
}

async fn post(provider: &LocalProvider, path: &str) -> reqwest::Result<String> {
    let url = provider.endpoint("ws-a").expect("the Sandbox is up").url;
    client(&url).post(format!("http://harness{path}")).send().await?.text().await
}

async fn restarted(rig: &mut Rig) -> LastEnd {
    let SandboxEvent::HarnessRestarted { last_end, .. } = rig.event().await else { panic!("not restarted") };
    last_end
}

#[tokio::test]
async fn a_kernel_kill_is_said_and_another_kill_is_not_taken_for_one() {
    let mut rig = Rig::new();
    let Some((provider, spec, uid, group)) = small(&mut rig).await else { return };
    let procs = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
    assert!(procs.lines().any(|line| line == rig.pid("ws-a").to_string()), "the Harness is in its group: {procs}");
    let environment = std::fs::read_to_string(format!("/proc/{}/environ", rig.pid("ws-a"))).unwrap();
    assert!(environment.contains(&format!("JR2_MEMORY={LIMIT}")), "a limit that is kept is told");
    // SIGKILL alone says nothing, whoever sent it.
    kill(rig.pid("ws-a"));
    let end = restarted(&mut rig).await;
    assert_eq!((end.exit_code, end.oom, end.limit.as_deref()), (137, None, Some("96Mi")));
    assert!(post(&provider, "/hog").await.is_err());
    let end = restarted(&mut rig).await;
    assert_eq!((end.exit_code, end.oom, end.limit.as_deref()), (137, Some(true), Some("96Mi")));
    assert!(end.reason.contains("the kernel killed the Harness"), "{}", end.reason);
    assert_eq!(provider.last_end("ws-a"), Some(end));
    // What the kernel did to an earlier Harness says nothing of this one.
    kill(rig.pid("ws-a"));
    assert_eq!(restarted(&mut rig).await.oom, None);
    // An adopted Harness is no child of ours: how it ended is not known, and nothing is claimed.
    provider.release().await;
    let second = rig.provider();
    second.adopt(&spec, &uid).await.unwrap();
    assert!(post(&second, "/hog").await.is_err());
    assert_eq!(restarted(&mut rig).await.oom, None);
    second.teardown(&spec, &uid).await.unwrap();
    assert!(!group.exists(), "the group goes with the Sandbox");
}

#[tokio::test]
async fn a_process_that_left_everything_but_the_group_is_ended_with_the_sandbox() {
    let mut rig = Rig::new();
    let Some((provider, spec, uid, group)) = small(&mut rig).await else { return };
    // No session, no parent, no environment of the Sandbox.
    let out = Command::new("env").args(["-i", "setsid", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]).output();
    let stray: i32 = String::from_utf8_lossy(&out.unwrap().stdout).trim().parse().unwrap();
    std::fs::write(group.join("cgroup.procs"), stray.to_string()).unwrap();
    std::fs::create_dir(group.join("agent")).unwrap();
    provider.teardown(&spec, &uid).await.unwrap();
    until("the stray ends", || !runs(stray)).await;
    assert!(!group.exists());
}

#[tokio::test]
async fn a_group_nobody_needs_is_swept_and_a_lost_group_is_made_again() {
    let mut rig = Rig::new();
    let Some((provider, _, _, group)) = small(&mut rig).await else { return };
    let name = group.file_name().unwrap().to_str().unwrap().to_owned();
    let abandoned = group.with_file_name(name.replace("ws-a", "ws-z"));
    std::fs::create_dir(&abandoned).unwrap();
    assert_eq!(provider.sweep(&["ws-a".to_owned()]).await, 0);
    assert!(!abandoned.exists() && group.exists());
    // A machine that restarts forgets its groups.
    let pid = rig.pid("ws-a");
    std::fs::write(group.parent().unwrap().join("cgroup.procs"), pid.to_string()).unwrap();
    std::fs::remove_dir(&group).unwrap();
    kill(pid);
    assert_eq!(restarted(&mut rig).await.oom, None);
    let procs = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
    assert_eq!(procs.trim(), rig.pid("ws-a").to_string());
    assert_eq!(provider.sweep(&[]).await, 1);
    assert!(!group.exists());
}
