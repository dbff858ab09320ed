//! Teardown: what an Agent made survives, what it started does not.

use crate::rig::{Rig, client, commit, git, runs, worktree};
use jr2_orchestrator::workspace::SandboxProvider;
use std::process::{Child, Command, Stdio};

#[tokio::test]
async fn the_branch_is_fetched_and_everything_else_goes() {
    let rig = Rig::new();
    let provider = rig.provider();
    let spec = rig.spec("ws-a");
    let made = provider.provision(&spec).await.unwrap();
    let made_commit = commit(&worktree(&made), "fix.txt", "fixed\n");
    let url = provider.endpoint("ws-a").unwrap().url;
    let stray: i32 = client(&url).post("http://h/stray").send().await.unwrap().text().await.unwrap().parse().unwrap();
    assert!(runs(stray));
    let pid = rig.pid("ws-a");
    let before = git(&rig.source, &["status", "--porcelain=2", "--branch"]);
    assert_eq!(provider.teardown(&spec, "wrong-uid").await.unwrap(), []);
    assert!(runs(pid), "another Sandbox's uid removes nothing");
    let saved = provider.teardown(&spec, &made.uid).await.unwrap();
    assert_eq!(saved.len(), 1);
    assert_eq!((saved[0].branch.as_str(), &saved[0].commit), ("jr2/fix", &made_commit));
    assert_eq!(saved[0].repository, rig.source.to_string_lossy());
    assert_eq!(git(&rig.source, &["rev-parse", "refs/heads/jr2/fix"]), made_commit);
    assert_eq!(git(&rig.source, &["status", "--porcelain=2", "--branch"]), before, "the user's checkout is untouched");
    assert!(!runs(pid) && !runs(stray), "a process is left");
    assert!(!rig.state.join("workspaces/ws-a").exists());
    assert_eq!(provider.teardown(&spec, &made.uid).await.unwrap(), saved, "a repeat answers the same");
    provider.forget("ws-a", "wrong-uid");
    assert!(rig.record_path("ws-a").exists());
    provider.forget("ws-a", &made.uid);
    assert!(!rig.record_path("ws-a").exists(), "the row has the answer now");
    assert!(std::fs::read_dir(rig.state.join("scratch")).unwrap().next().is_none());
    // The same name again is a new Sandbox.
    let again = provider.provision(&spec).await.unwrap();
    assert_ne!(again.uid, made.uid);
    assert!(!worktree(&again).join("fix.txt").exists());
}

#[tokio::test]
async fn a_teardown_cut_after_saving_goes_on_removing() {
    let rig = Rig::new();
    let first = rig.provider();
    let spec = rig.spec("ws-a");
    let made = first.provision(&spec).await.unwrap();
    drop(first);
    let mut record = rig.record("ws-a");
    let saved = serde_json::json!([{"slot": "app", "repository": "/r", "branch": "b-2", "commit": "c"}]);
    record["stage"] = "gone".into();
    record["saved"] = saved.clone();
    std::fs::write(rig.record_path("ws-a"), record.to_string()).unwrap();
    // Half of the clone is gone already: asking it again would fail.
    std::fs::remove_dir_all(rig.state.join("workspaces/ws-a/work/app/default")).unwrap();
    let answer = rig.provider().teardown(&spec, &made.uid).await.unwrap();
    assert_eq!(serde_json::to_value(answer).unwrap(), saved);
    assert!(!rig.state.join("workspaces/ws-a").exists());
}

#[tokio::test]
async fn a_taken_name_is_never_moved() {
    let rig = Rig::new();
    let provider = rig.provider();
    let spec = rig.spec("ws-a");
    let made = provider.provision(&spec).await.unwrap();
    let made_commit = commit(&worktree(&made), "fix.txt", "fixed\n");
    git(&rig.source, &["branch", "jr2/fix"]);
    let taken = git(&rig.source, &["rev-parse", "jr2/fix"]);
    let saved = provider.teardown(&spec, &made.uid).await.unwrap();
    assert_eq!(saved[0].branch, "jr2/fix-2");
    assert_eq!(git(&rig.source, &["rev-parse", "jr2/fix-2"]), made_commit);
    assert_eq!(git(&rig.source, &["rev-parse", "jr2/fix"]), taken);
}

#[tokio::test]
async fn uncommitted_work_gets_a_branch_of_its_own_and_nothing_the_agent_configured_runs() {
    let rig = Rig::new();
    std::fs::write(rig.source.join(".gitignore"), "ignored\n").unwrap();
    commit(&rig.source, "b.txt", "b\n");
    let provider = rig.provider();
    let spec = rig.spec("ws-a");
    let made = provider.provision(&spec).await.unwrap();
    let tree = worktree(&made);
    let proof = rig.root().join("pwned");
    let evil = format!("touch {}; cat", proof.display());
    for (name, value) in [
        ("core.fsmonitor", evil.as_str()),
        ("filter.evil.clean", &evil),
        ("filter.evil.smudge", &evil),
        ("core.sshCommand", &evil),
        ("uploadpack.packObjectsHook", &evil),
        ("core.hooksPath", "hooks"),
    ] {
        git(&tree.parent().unwrap().join("default"), &["config", name, value]);
    }
    std::fs::write(tree.join(".gitattributes"), "* filter=evil\n").unwrap();
    std::fs::write(tree.join("a.txt"), "changed\n").unwrap();
    std::fs::remove_file(tree.join("b.txt")).unwrap();
    std::fs::write(tree.join("ignored"), "not mine").unwrap();
    std::fs::create_dir(tree.join("new dir")).unwrap();
    std::fs::write(tree.join("new dir/c.txt"), "new").unwrap();
    git(&tree, &["status"]);
    assert!(proof.exists(), "the trap works");
    std::fs::remove_file(&proof).unwrap();
    let saved = provider.teardown(&spec, &made.uid).await.unwrap();
    assert!(!proof.exists(), "an Agent's configuration was executed");
    let names: Vec<&str> = saved.iter().map(|s| s.branch.as_str()).collect();
    assert_eq!(names, ["jr2/fix", "jr2/fix-uncommitted"]);
    let changes = git(&rig.source, &["diff", "--name-status", "jr2/fix", "jr2/fix-uncommitted"]);
    assert_eq!(changes, "A\t.gitattributes\nM\ta.txt\nD\tb.txt\nA\tnew dir/c.txt");
    assert_eq!(git(&rig.source, &["show", "jr2/fix-uncommitted:a.txt"]), "changed");
    assert_eq!(git(&rig.source, &["log", "-1", "--format=%an", "jr2/fix-uncommitted"]), "jr2 agent");
}

#[tokio::test]
async fn a_nested_repository_is_left_out_and_keeps_its_workspace() {
    let rig = Rig::new();
    let provider = rig.provider();
    let spec = rig.spec("ws-a");
    let made = provider.provision(&spec).await.unwrap();
    let tree = worktree(&made);
    std::fs::write(tree.join("a.txt"), "changed\n").unwrap();
    for nested in ["empty", "deep/er"] {
        std::fs::create_dir_all(tree.join(nested)).unwrap();
        git(&tree.join(nested), &["init", "-q"]);
    }
    commit(&tree.join("deep/er"), "own.txt", "own\n");
    std::fs::write(tree.join("deep/beside.txt"), "beside\n").unwrap();
    let saved = provider.teardown(&spec, &made.uid).await.unwrap();
    let changes = git(&rig.source, &["diff", "--name-status", "jr2/fix", "jr2/fix-uncommitted"]);
    assert_eq!(changes, "M\ta.txt\nA\tdeep/beside.txt", "the rest is saved");
    let last = saved.last().unwrap();
    assert_eq!(last.left_out, ["deep/er", "empty"]);
    let dir = rig.state.join("workspaces/ws-a");
    assert_eq!(last.kept.as_deref(), dir.to_str());
    assert!(last.left_out_words().unwrap().contains("deep/er, empty"));
    assert!(tree.join("deep/er/own.txt").exists());
    assert_eq!(provider.teardown(&spec, &made.uid).await.unwrap(), saved, "a repeat answers the same");
    assert_eq!(provider.sweep(&[]).await, 0);
    assert!(tree.exists() && rig.record_path("ws-a").exists());
    for nested in ["empty", "deep/er"] {
        std::fs::remove_dir_all(tree.join(nested)).unwrap();
    }
    assert_eq!(provider.sweep(&[]).await, 1, "once nothing is left out, it goes");
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_branch_that_cannot_be_saved_keeps_its_workspace() {
    let rig = Rig::new();
    let provider = rig.provider();
    let spec = rig.spec("ws-a");
    let made = provider.provision(&spec).await.unwrap();
    commit(&worktree(&made), "fix.txt", "fixed\n");
    let away = rig.root().join("away");
    std::fs::rename(&rig.source, &away).unwrap();
    let error = provider.teardown(&spec, &made.uid).await.unwrap_err();
    assert_eq!(error.reason, "branch-not-saved");
    assert!(error.message.contains("kept at"), "{error}");
    assert!(worktree(&made).join("fix.txt").exists());
    assert_eq!(provider.sweep(&[]).await, 0, "a sweep keeps it too");
    assert!(worktree(&made).join("fix.txt").exists());
    std::fs::rename(&away, &rig.source).unwrap();
    assert_eq!(provider.teardown(&spec, &made.uid).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_worktree_swapped_for_a_link_is_not_followed() {
    let rig = Rig::new();
    let provider = rig.provider();
    let spec = rig.spec("ws-a");
    let made = provider.provision(&spec).await.unwrap();
    let secret = rig.root().join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("key"), "secret").unwrap();
    std::fs::remove_dir_all(worktree(&made)).unwrap();
    std::os::unix::fs::symlink(&secret, worktree(&made)).unwrap();
    let saved = provider.teardown(&spec, &made.uid).await.unwrap();
    assert_eq!(saved.len(), 1, "only the branch: {saved:?}");
    assert!(secret.join("key").exists(), "removal follows no link");
}

#[tokio::test]
async fn a_sweep_removes_what_no_run_has_and_saves_its_work() {
    let rig = Rig::new();
    let first = rig.provider();
    let kept = first.provision(&rig.spec("ws-live")).await.unwrap();
    let mut orphan = rig.spec("ws-orphan");
    orphan.branch = "orphan".into();
    let made = first.provision(&orphan).await.unwrap();
    let made_commit = commit(&worktree(&made), "fix.txt", "fixed\n");
    let pid = rig.pid("ws-orphan");
    drop(first);
    let second = rig.provider();
    assert_eq!(second.sweep(&["ws-live".to_owned()]).await, 1);
    assert_eq!(git(&rig.source, &["rev-parse", "refs/heads/orphan"]), made_commit);
    assert!(!runs(pid) && !rig.record_path("ws-orphan").exists());
    assert!(worktree(&kept).exists() && runs(rig.pid("ws-live")));
    assert_eq!(second.sweep(&["ws-live".to_owned()]).await, 0);
}

#[tokio::test]
async fn a_source_from_afar_is_saved_beside_the_state() {
    let rig = Rig::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut daemon = daemon(&rig, port);
    crate::rig::until("git daemon listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    let provider = rig.provider();
    let mut spec = rig.spec("ws-a");
    spec.repos[0].url = format!("git://127.0.0.1:{port}/source");
    let made = provider.provision(&spec).await.unwrap();
    let made_commit = commit(&worktree(&made), "fix.txt", "fixed\n");
    let saved = provider.teardown(&spec, &made.uid).await.unwrap();
    let kept = rig.state.join("branches/app.git");
    assert_eq!(saved[0].repository, kept.to_string_lossy());
    assert_eq!(git(&kept, &["rev-parse", "refs/heads/jr2/fix"]), made_commit);
    git(&kept, &["fsck", "--connectivity-only"]);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

fn daemon(rig: &Rig, port: u16) -> Child {
    let core = Command::new("git").arg("--exec-path").output().unwrap().stdout;
    Command::new(format!("{}/git-daemon", String::from_utf8_lossy(&core).trim()))
        .args(["--export-all", "--listen=127.0.0.1", &format!("--port={port}")])
        .arg(format!("--base-path={}", rig.root().display()))
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
