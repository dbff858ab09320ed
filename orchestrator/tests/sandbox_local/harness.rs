//! The Harness process: watched, restarted, adopted, and never given a secret.

use crate::rig::{Call, Rig, commit, git, kill, runs, through_harness, until, worktree};
use jr2_orchestrator::workspace::{INSTANCE_HARNESS, LocalProvider, SandboxEvent, SandboxProvider};
use jr2_orchestrator::workspace::{ProviderBinding, ProviderKey};
use std::process::Command;

async fn answers(provider: &LocalProvider, name: &str) {
    let call =
        Call { method: "GET".into(), path: "/agents/x/surface".into(), bearer: "sandbox".into(), ..Call::default() };
    assert_eq!(through_harness(provider, name, &call).await.text().await.unwrap(), name);
}

#[tokio::test]
async fn a_killed_harness_is_started_again_and_said() {
    let mut rig = Rig::new();
    let provider = rig.provider();
    let made = provider.provision(&rig.spec("ws-a")).await.unwrap();
    let first = rig.pid("ws-a");
    std::fs::write(worktree(&made).join("half-done.txt"), "x").unwrap();
    kill(first);
    let SandboxEvent::HarnessRestarted { name, last_end } = rig.event().await else { panic!("not restarted") };
    assert_eq!((name.as_str(), last_end.exit_code, last_end.oom), ("ws-a", 137, None));
    assert_ne!(rig.pid("ws-a"), first);
    assert_eq!(provider.last_end("ws-a"), Some(last_end.clone()));
    assert_eq!(provider.last_end("ws-a"), Some(last_end.clone()), "reading does not clear it");
    assert!(last_end.at > 0 && last_end.limit.is_none(), "{last_end:?}: nothing enforces a limit here");
    assert!(worktree(&made).join("half-done.txt").exists());
    answers(&provider, "ws-a").await;
    provider.release().await;
    assert_eq!(rig.provider().last_end("ws-a"), Some(last_end), "it survives the Orchestrator");
}

#[tokio::test]
async fn a_harness_that_never_answers_fails_the_provision_with_its_last_words() {
    let rig = Rig::new();
    rig.script("echo no model today; exit 3");
    let error = rig.provider().provision(&rig.spec("ws-a")).await.unwrap_err();
    assert_eq!(error.reason, "harness-not-ready");
    assert!(error.message.contains("code 3") && error.message.contains("no model today"), "{error}");
    rig.script("exec sleep 600");
    let mut options = rig.options();
    options.limits.ready = std::time::Duration::from_millis(150);
    let error = LocalProvider::new(options).unwrap().provision(&rig.spec("ws-b")).await.unwrap_err();
    assert_eq!(error.reason, "harness-not-ready");
    assert!(!runs(rig.pid("ws-b")));
    std::fs::remove_file(&rig.harness).unwrap();
    let error = rig.provider().provision(&rig.spec("ws-c")).await.unwrap_err();
    assert!(error.message.contains("is jr2-harness installed"), "{error}");
}

#[tokio::test]
async fn a_crash_loop_loses_the_sandbox_once() {
    let mut rig = Rig::new();
    let provider = rig.provider();
    provider.provision(&rig.spec("ws-a")).await.unwrap();
    std::fs::write(rig.state.join("workspaces/ws-a/tmp/crash"), "").unwrap();
    kill(rig.pid("ws-a"));
    let SandboxEvent::Lost { name, reason, message } = rig.event().await else { panic!("not lost") };
    assert_eq!((name.as_str(), reason.as_str()), ("ws-a", "harness-not-ready"));
    assert!(message.contains("told to crash"), "{message}");
    assert!(provider.endpoint("ws-a").is_none());
    assert!(rig.events.try_recv().is_err());
}

/// What a lost Sandbox left: its directory, sockets, log and record.
fn leftovers(rig: &Rig, name: &str, sockets: &std::path::Path) -> Vec<std::path::PathBuf> {
    let all = [
        rig.state.join("workspaces").join(name),
        sockets.to_owned(),
        rig.state.join(format!("logs/{name}.log")),
        rig.record_path(name),
    ];
    all.into_iter().filter(|path| path.exists()).collect()
}

fn sockets(provider: &LocalProvider, name: &str) -> std::path::PathBuf {
    let url = provider.endpoint(name).unwrap().url;
    std::path::Path::new(url.strip_prefix("unix:").unwrap()).parent().unwrap().to_owned()
}

#[tokio::test]
async fn after_a_crash_loop_the_work_is_saved_and_nothing_is_left() {
    let mut rig = Rig::new();
    let provider = rig.provider();
    let made = provider.provision(&rig.spec("ws-a")).await.unwrap();
    let sockets = sockets(&provider, "ws-a");
    let head = commit(&worktree(&made), "fix.txt", "fixed\n");
    std::fs::write(worktree(&made).join("half-done.txt"), "x").unwrap();
    std::fs::write(rig.state.join("workspaces/ws-a/tmp/crash"), "").unwrap();
    kill(rig.pid("ws-a"));
    let SandboxEvent::Lost { message, .. } = rig.event().await else { panic!("not lost") };
    let source = rig.source.display();
    assert!(message.contains(&format!("branch jr2/fix is saved in {source}")), "{message}");
    assert!(message.contains(&format!("branch jr2/fix-uncommitted is saved in {source}")), "{message}");
    assert_eq!(git(&rig.source, &["rev-parse", "jr2/fix"]), head);
    assert_eq!(leftovers(&rig, "ws-a", &sockets), [] as [std::path::PathBuf; 0]);
    assert_eq!(provider.teardown(&rig.spec("ws-a"), &made.uid).await.unwrap(), []);
}

#[tokio::test]
async fn a_crash_loop_whose_work_cannot_be_saved_says_where_it_is() {
    let mut rig = Rig::new();
    let provider = rig.provider();
    let made = provider.provision(&rig.spec("ws-a")).await.unwrap();
    std::fs::remove_dir_all(&rig.source).unwrap();
    std::fs::write(rig.state.join("workspaces/ws-a/tmp/crash"), "").unwrap();
    kill(rig.pid("ws-a"));
    let SandboxEvent::Lost { message, .. } = rig.event().await else { panic!("not lost") };
    let kept = format!("the Workspace is kept at {}", rig.state.join("workspaces/ws-a").display());
    assert!(message.contains("could not be saved") && message.contains(&kept), "{message}");
    assert!(worktree(&made).exists());
}

#[tokio::test]
async fn a_deleted_sandbox_leaves_no_socket_log_or_record() {
    let mut rig = Rig::new();
    let provider = rig.provider();
    provider.provision(&rig.spec("ws-a")).await.unwrap();
    let sockets = sockets(&provider, "ws-a");
    std::fs::remove_dir_all(rig.state.join("workspaces/ws-a")).unwrap();
    assert!(matches!(rig.event().await, SandboxEvent::Lost { .. }));
    assert_eq!(leftovers(&rig, "ws-a", &sockets), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn one_that_dies_too_often_is_given_up() {
    let mut rig = Rig::new();
    let mut options = rig.options();
    options.limits.restarts.deaths = 2;
    let provider = LocalProvider::new(options).unwrap();
    provider.provision(&rig.spec("ws-a")).await.unwrap();
    for _ in 0..2 {
        kill(rig.pid("ws-a"));
        assert!(matches!(rig.event().await, SandboxEvent::HarnessRestarted { .. }));
    }
    kill(rig.pid("ws-a"));
    assert!(matches!(rig.event().await, SandboxEvent::Lost { .. }));
}

#[tokio::test]
async fn a_new_orchestrator_adopts_the_running_harness() {
    let mut rig = Rig::new();
    let spec = rig.spec("ws-a");
    let first = rig.provider();
    let made = first.provision(&spec).await.unwrap();
    let pid = rig.pid("ws-a");
    let endpoint = first.endpoint("ws-a");
    drop(first);
    let second = rig.provider();
    second.adopt(&spec, &made.uid).await.unwrap();
    assert_eq!(rig.pid("ws-a"), pid);
    assert_eq!(second.endpoint("ws-a"), endpoint);
    answers(&second, "ws-a").await;
    assert!(rig.events.try_recv().is_err(), "nothing happened to it");
    // It is not this provider's child, and is watched all the same.
    kill(pid);
    let SandboxEvent::HarnessRestarted { last_end, .. } = rig.event().await else { panic!("not restarted") };
    assert_eq!((last_end.exit_code, last_end.oom), (-1, None));
    let restarted = rig.pid("ws-a");
    second.release().await;
    assert!(runs(restarted), "letting go kills nothing");
    assert!(second.endpoint("ws-a").is_none());
    // The pid was never written down: the Orchestrator died right after the start.
    let mut record = rig.record("ws-a");
    record.as_object_mut().unwrap().remove("process");
    std::fs::write(rig.record_path("ws-a"), record.to_string()).unwrap();
    let third = rig.provider();
    third.adopt(&spec, &made.uid).await.unwrap();
    assert_eq!(rig.pid("ws-a"), restarted);
    answers(&third, "ws-a").await;
}

#[tokio::test]
async fn a_harness_that_died_meanwhile_is_started_at_adoption() {
    let mut rig = Rig::new();
    let spec = rig.spec("ws-a");
    let first = rig.provider();
    let made = first.provision(&spec).await.unwrap();
    first.release().await;
    kill(rig.pid("ws-a"));
    // Its number now belongs to somebody else.
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let mut record = rig.record("ws-a");
    record["process"]["pid"] = stranger.id().into();
    // Both may have begun in one tick of the clock here; a number comes back only after thousands of other processes.
    let began = record["process"]["startTime"].as_u64().unwrap();
    record["process"]["startTime"] = (began - 1).into();
    std::fs::write(rig.record_path("ws-a"), record.to_string()).unwrap();
    let second = rig.provider();
    second.adopt(&spec, &made.uid).await.unwrap();
    let SandboxEvent::HarnessRestarted { last_end, .. } = rig.event().await else { panic!("not restarted") };
    assert_eq!((last_end.exit_code, last_end.oom), (-1, None));
    assert_eq!(second.last_end("ws-a"), Some(last_end), "an end nobody saw is recorded too");
    answers(&second, "ws-a").await;
    second.teardown(&spec, &made.uid).await.unwrap();
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was killed");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn a_lost_directory_is_said_once() {
    let mut rig = Rig::new();
    let spec = rig.spec("ws-a");
    let provider = rig.provider();
    let made = provider.provision(&spec).await.unwrap();
    let pid = rig.pid("ws-a");
    std::fs::remove_dir_all(rig.state.join("workspaces/ws-a")).unwrap();
    let SandboxEvent::Lost { reason, message, .. } = rig.event().await else { panic!("not lost") };
    assert_eq!(reason, "Deleted");
    assert!(message.contains("workspaces/ws-a"));
    until("the Harness ends", || !runs(pid)).await;
    assert!(provider.endpoint("ws-a").is_none());
    assert!(rig.events.try_recv().is_err());
    drop(provider);
    let second = rig.provider();
    second.adopt(&spec, &made.uid).await.unwrap();
    assert!(
        matches!(rig.event().await, SandboxEvent::Lost { .. }),
        "a restart says it again, for it may not have been saved"
    );
    assert_eq!(second.teardown(&spec, &made.uid).await.unwrap(), []);
    second.adopt(&spec, "another-uid").await.unwrap();
    assert!(matches!(rig.event().await, SandboxEvent::Lost { .. }));
}

#[tokio::test]
async fn the_harness_inherits_an_allow_list_and_no_secret() {
    let mut rig = Rig::new();
    let provider = serde_json::from_value(serde_json::json!({"id": "p", "baseUrl": "http://127.0.0.1:1/v1"})).unwrap();
    rig.providers = vec![ProviderBinding { provider, key: ProviderKey::Value("sk-very-secret".into()) }];
    rig.provider().provision(&rig.spec("ws-a")).await.unwrap();
    let environment = std::fs::read(format!("/proc/{}/environ", rig.pid("ws-a"))).unwrap();
    let text = String::from_utf8_lossy(&environment).into_owned();
    let names: Vec<&str> = text.split('\0').filter_map(|l| Some(l.split_once('=')?.0)).collect();
    // The last four are the script's shell's own.
    let allowed =
        ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "HOME", "TMPDIR", "RUSTUP_HOME", "PWD", "OLDPWD", "SHLVL", "_"];
    for name in &names {
        assert!(name.starts_with("JR2_") || allowed.contains(name), "{name} was inherited");
    }
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the parent has more than it gives");
    assert!(names.contains(&"PATH") && names.contains(&"JR2_SANDBOX_TOKEN"));
    assert!(!text.contains("sk-very-secret"));
    assert!(text.contains("jr2-held-p") && text.contains("\"/providers/p\""));
    let bearer = rig.record("ws-a")["harnessToken"].as_str().unwrap().to_owned();
    assert!(!text.contains(&bearer), "only its digest is said");
    assert!(!names.contains(&"JR2_MENU_ONLY"));
}

#[tokio::test]
async fn the_instance_harness_is_one_process_that_outlives_the_orchestrator() {
    let rig = Rig::new();
    let first = rig.provider();
    let endpoint = first.instance_harness().await.unwrap();
    assert_eq!(first.instance_harness().await.unwrap(), endpoint);
    let pid = rig.pid(INSTANCE_HARNESS);
    let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(environment.contains("JR2_MENU_ONLY=1"));
    assert!(environment.contains("instance-harness/conversations"));
    answers(&first, INSTANCE_HARNESS).await;
    assert_eq!(first.sweep(&[]).await, 0, "it is no run's");
    drop(first);
    let second = rig.provider();
    assert_eq!(second.instance_harness().await.unwrap(), endpoint);
    assert_eq!(rig.pid(INSTANCE_HARNESS), pid);
    // An Orchestrator of one command leaves none behind, and the next one gets a new one.
    second.end_instance_harness().await;
    assert!(!runs(pid));
    second.instance_harness().await.unwrap();
    assert_ne!(rig.pid(INSTANCE_HARNESS), pid);
}
