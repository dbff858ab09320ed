//! Making Sandboxes, and what is refused.

use crate::rig::{Rig, commit, git, worktree};
use jr2_orchestrator::workspace::{SandboxProvider, SandboxSpec};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

#[tokio::test]
async fn a_second_provision_finds_the_first() {
    let rig = Rig::new();
    let provider = rig.provider();
    let spec = rig.spec("ws-a");
    let (first, beside) = tokio::join!(provider.provision(&spec), provider.provision(&spec));
    let first = first.unwrap();
    assert_eq!(first, beside.unwrap());
    let pid = rig.pid("ws-a");
    std::fs::write(worktree(&first).join("mine.txt"), "kept").unwrap();
    assert_eq!(provider.provision(&spec).await.unwrap(), first);
    assert_eq!(rig.pid("ws-a"), pid);
    assert!(worktree(&first).join("mine.txt").exists());
    let other = SandboxSpec { branch: "other".into(), ..spec };
    assert_eq!(provider.provision(&other).await.unwrap_err().reason, "name-taken");
}

#[tokio::test]
async fn the_worktree_is_on_the_branch_and_shares_nothing_with_its_source() {
    let rig = Rig::new();
    let first = git(&rig.source, &["rev-parse", "HEAD"]);
    git(&rig.source, &["tag", "v1"]);
    commit(&rig.source, "a.txt", "two\n");
    let mut spec = rig.spec("ws-a");
    spec.repos[0].reference = Some("v1".into());
    spec.branch = "main".into();
    let made = rig.provider().provision(&spec).await.unwrap();
    let tree = worktree(&made);
    assert_eq!(tree, rig.state.join("workspaces/ws-a/work/app/main"));
    assert_eq!(git(&tree, &["rev-parse", "HEAD"]), first);
    assert_eq!(git(&tree, &["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");
    assert_eq!(git(&tree, &["config", "user.name"]), "t", "the command line wins, so the test's git sees its own");
    assert_eq!(git(&tree, &["config", "--local", "user.name"]), "jr2 agent");
    let clone = tree.parent().unwrap().join("default/.git");
    assert!(!clone.join("objects/info/alternates").exists());
    assert!(!clone.join("hooks").exists());
    for pack in walk(&clone.join("objects")) {
        assert_eq!(std::fs::metadata(&pack).unwrap().nlink(), 1, "{} is shared", pack.display());
    }
    let push =
        std::process::Command::new("git").current_dir(&tree).args(["push", "origin", "HEAD:evil"]).output().unwrap();
    assert!(!push.status.success(), "a push into the user's repository must fail");
}

#[tokio::test]
async fn folders_are_private_and_sockets_lie_outside_the_workspace() {
    let rig = Rig::with_state(&format!("{}/.jr2", "deep".repeat(40)));
    let provider = rig.provider();
    provider.provision(&rig.spec("ws-a")).await.unwrap();
    for path in [rig.state.clone(), rig.state.join("workspaces/ws-a"), rig.state.join("sandboxes")] {
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
    }
    assert_eq!(std::fs::metadata(rig.record_path("ws-a")).unwrap().mode() & 0o777, 0o600);
    let url = provider.endpoint("ws-a").unwrap().url;
    assert!(url.starts_with("unix:/tmp/jr2-"), "{url}");
}

#[tokio::test]
async fn what_cannot_work_is_refused_by_name() {
    let rig = Rig::new();
    let provider = rig.provider();
    let empty = rig.root().join("empty");
    std::fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "-q"]);
    let with = |change: &dyn Fn(&mut SandboxSpec)| {
        let mut spec = rig.spec("ws-bad");
        change(&mut spec);
        spec
    };
    let cases: [(&str, SandboxSpec); 11] = [
        ("branch-refused", with(&|s| s.branch = "default".into())),
        ("branch-refused", with(&|s| s.branch = "a..b".into())),
        ("branch-refused", with(&|s| s.branch = "-b".into())),
        ("url-refused", with(&|s| s.repos[0].url = "--upload-pack=evil".into())),
        ("url-refused", with(&|s| s.repos[0].url = "ext::sh -c evil".into())),
        ("url-refused", with(&|s| s.repos[0].url = "relative".into())),
        ("source-missing", with(&|s| s.repos[0].url = "/nowhere/at/all".into())),
        ("reference-missing", with(&|s| s.repos[0].reference = Some("no-such".into()))),
        ("repository-empty", with(&|s| s.repos[0].url = empty.to_string_lossy().into_owned())),
        ("slot-refused", with(&|s| s.repos[0].slot = "../up".into())),
        ("sandbox-refused", with(&|s| s.name = "a/b".into())),
    ];
    // One name: what no Agent has seen is made as it is asked for now.
    for (reason, spec) in cases {
        let error = provider.provision(&spec).await.unwrap_err();
        assert_eq!(error.reason, reason, "{error}");
        assert!(provider.endpoint(&spec.name).is_none());
    }
    let error =
        provider.provision(&with(&|s| s.repos[0].url = rig.root().to_string_lossy().into_owned())).await.unwrap_err();
    assert_eq!(error.reason, "clone-failed");
    assert!(error.message.contains("fatal: repository"), "git's words are kept: {error}");
}

#[tokio::test]
async fn a_provision_cut_anywhere_is_made_whole_by_the_next() {
    let rig = Rig::new();
    for n in 0..40 {
        commit(&rig.source, &format!("f{n}.txt"), &"text\n".repeat(500));
    }
    let spec = rig.spec("ws-a");
    let mut cuts = 0;
    for n in 0..12_u64 {
        let provider = rig.provider();
        let provision = provider.provision(&spec);
        cuts += u32::from(tokio::time::timeout(Duration::from_millis(n * 4), provision).await.is_err());
    }
    assert!(cuts > 0, "nothing was cut");
    let made = rig.provider().provision(&spec).await.unwrap();
    assert_eq!(git(&worktree(&made), &["status", "--porcelain"]), "");
    git(&worktree(&made), &["fsck", "--strict"]);
    let slots: Vec<String> = std::fs::read_dir(rig.state.join("workspaces/ws-a/work"))
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(slots, ["app"], "leftovers");
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            files.extend(walk(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files
}
