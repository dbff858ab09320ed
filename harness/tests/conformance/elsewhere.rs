//! The suite against a Harness that somebody else started: everything on Unix sockets, processes left alone.

use jr2_conformance::suite::orchestrator::Listen;
use jr2_conformance::suite::{Halt, Options, Target, run};
use jr2_shared::harness::token_digest;
use serde_json::json;
use std::process::{Child, Command, Stdio};

/// Groups that are worth a second run this way: those that may not share a Harness, and one of each other kind.
const GROUPS: [&str; 7] = ["kept", "kills", "wire.02", "receipt.00", "drain", "restart.001", "surface.01"];

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_that_runs_elsewhere_is_judged_over_its_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let socket = |name: &str| format!("unix:{}", at(name).display());
    let model = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let provider = |id: &str| json!({"id": id, "baseUrl": format!("http://{model}/v1")});
    let child = Command::new(env!("CARGO_BIN_EXE_jr2-harness"))
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("JR2_LISTEN", socket("harness.sock"))
        .env("JR2_CUSTODIAN_URL", socket("custodian.sock"))
        .env("JR2_SANDBOX_TOKEN", "of their own")
        .env("JR2_HARNESS_TOKEN_SHA256", token_digest("their bearer"))
        .env("JR2_HARNESS_JSON", json!({"providers": [provider("suite"), provider("small")]}).to_string())
        .env("JR2_CONVERSATIONS_DIR", at("conversations"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _ended = Ended(child);
    let listening = async {
        while std::os::unix::net::UnixStream::connect(at("harness.sock")).is_err() {
            // Poll: until it listens.
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), listening).await.unwrap();
    let options = Options {
        custodian: Listen::Unix(at("custodian.sock")),
        model,
        filter: GROUPS.map(str::to_owned).to_vec(),
        folder: Some(at("work")),
        quick: true,
        ..Options::new(Target::Url(socket("harness.sock"), "their bearer".to_owned()))
    };
    let report = run(&options, |_| {}).await.unwrap();
    assert!(report.is_as_expected(), "{}", crate::unexpected(&report));
    let not_run = |group: &str| {
        let of_group = report.verdicts.iter().filter(|verdict| verdict.case.group() == group);
        of_group
            .filter(|verdict| matches!(&verdict.outcome, Err(Halt::NotRun(why)) if why == "needs --command"))
            .count()
    };
    assert_eq!(not_run("drain"), 6, "a process that is not ours is not ended");
    assert!(report.counts().passed >= 30, "{:?}", report.counts());
    assert!(at("work/kills.001").is_dir(), "the working tools were given the folder that was named");
}
