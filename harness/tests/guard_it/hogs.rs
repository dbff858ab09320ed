//! Each hog once: shot before the kernel had to, and said so. `jr2-conformance guard-trials` runs each many times.

use crate::{LIMIT_MIB, WANTED_MIB, Wanted, bench};
use jr2_conformance::bench::guard::{Hog, Outcome};

async fn is_shot(hog: Hog, wanted: Wanted) {
    let Some(mut bench) = bench(&hog.name(), wanted).await else { return };
    let trial = bench.rig.hog(hog, WANTED_MIB).await.unwrap();
    assert!(matches!(trial.outcome, Outcome::Won | Outcome::Spared), "{trial:?}\n{}", bench.rig.log());
    let verdict = trial.text.lines().last().unwrap();
    assert!(verdict.starts_with("killed: memory limit (peak "), "{verdict}");
    assert!(verdict.ends_with("Mi of 192Mi); use fewer workers or a larger Size"), "{verdict}");
    let kills = bench.kept(1).await;
    assert_eq!((kills.len(), &kills[0]["limit"]), (1, &"192Mi".into()), "{kills:?}");
    let log = bench.rig.log();
    let cleared = if wanted.shm_private { " and cleared /dev/shm" } else { "" };
    assert!(log.contains(&format!("{verdict} — killed the Agent's processes{cleared} (ADR-0061)")), "{log}");
    // It goes on: the next call runs and was not shot.
    let next = bench.rig.call("echo well").await.unwrap();
    assert_eq!((next.outcome, next.text.trim()), (Outcome::Quiet, "well"));
}

#[tokio::test(flavor = "multi_thread")]
async fn m_01_a_ramp_of_100_mib_a_second_is_shot() {
    is_shot(Hog::Ramp(100), Wanted::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m_02_a_ramp_as_fast_as_the_machine_is_shot() {
    is_shot(Hog::Ramp(0), Wanted::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m_02_one_memset_is_shot() {
    is_shot(Hog::Memset, Wanted::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m_01_many_small_processes_are_shot() {
    is_shot(Hog::Many, Wanted::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m_03_a_file_in_a_private_dev_shm_is_shot_and_cleared() {
    is_shot(Hog::Shm, Wanted { shm_private: true, ..Wanted::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m_01_a_fork_bomb_under_a_pids_limit_is_shot() {
    is_shot(Hog::Bomb, Wanted { pids_max: Some(400), ..Wanted::default() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mt_4_page_cache_beyond_the_limit_is_left_alone() {
    let Some(mut bench) = bench("cache", Wanted::default()).await else { return };
    let trial = bench.rig.hog(Hog::Cache, LIMIT_MIB * 3 / 2).await.unwrap();
    assert_eq!(trial.outcome, Outcome::Quiet, "{trial:?}");
    assert!(bench.rig.kills().await.unwrap().is_empty() && !bench.rig.log().contains("killed"));
}
