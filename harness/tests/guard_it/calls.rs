//! What the calls hear, and who dies.

use crate::{WANTED_MIB, Wanted, bench};
use jr2_conformance::bench::guard::{Hog, Outcome};

/// Waits until a file is there and says something.
async fn content(path: &std::path::Path) -> String {
    let wait = async {
        loop {
            match std::fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                // Poll: until it is written.
                _ => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), wait).await.unwrap()
}

fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test(flavor = "multi_thread")]
async fn mt_5_every_running_call_has_the_verdict_a_later_one_none_and_whoever_left_is_dead() {
    let Some(mut bench) = bench("calls", Wanted::default()).await else { return };
    let work = bench.dir.path().join("rig/sandbox/work");
    // In a session of its own, twice forked, without its environment, deaf to a hangup.
    let hidden = "env -i /usr/bin/nohup /usr/bin/setsid /bin/sh -c '(echo $$ > hidden; exec sleep 1000) &' >/dev/null 2>&1; \
                  cat /proc/self/oom_score_adj > score; sleep 1000";
    let quiet = bench.rig.begin(hidden).await.unwrap();
    let pid = content(&work.join("hidden")).await;
    assert_eq!(content(&work.join("score")).await, "1000", "H-26");
    let shot = bench.rig.hog(Hog::Ramp(0), WANTED_MIB).await.unwrap();
    let other = bench.rig.result(quiet).await.unwrap().unwrap();
    assert_eq!(shot.text.lines().last(), other.lines().last(), "one verdict for both");
    assert!(other.starts_with("killed: memory limit (peak "), "{other}");
    assert!(shot.outcome != Outcome::Quiet && !lives(&pid), "{shot:?}");
    let later = bench.rig.call("echo later").await.unwrap();
    assert_eq!((later.outcome, later.text.trim()), (Outcome::Quiet, "later"));
    let kills = bench.kept(1).await;
    assert_eq!((kills.len(), kills[0]["told"].as_array().unwrap().len()), (1, 2), "{kills:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn m_07_two_spikes_are_two_kills() {
    let Some(mut bench) = bench("spikes", Wanted::default()).await else { return };
    for _ in 0..2 {
        bench.rig.hog(Hog::Memset, WANTED_MIB).await.unwrap();
    }
    assert_eq!(bench.kept(2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_a_kernel_kill_of_one_process_is_a_verdict_and_a_kept_kill() {
    let Some(mut bench) = bench("kernel", Wanted::default()).await else { return };
    // The buffers of sockets count for the kernel and not for the guard.
    let trial = bench.rig.hog(Hog::Sockets, WANTED_MIB).await.unwrap();
    assert_eq!(trial.outcome, Outcome::Spared, "{trial:?}");
    // The peak is the limit of the Agent's own group: 0.95 of the Size's in cgroup v1, 0.9 in v2.
    assert!(
        ["peak 182Mi of 192Mi", "peak 173Mi of 192Mi"].iter().any(|peak| trial.text.contains(peak)),
        "{}",
        trial.text
    );
    assert_eq!(bench.kept(1).await.len(), 1);
}
