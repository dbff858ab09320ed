//! The process-tree meter: no cgroup, no root.

use crate::{WANTED_MIB, Wanted, bench};
use jr2_conformance::bench::guard::{Hog, Outcome};

#[tokio::test(flavor = "multi_thread")]
async fn decision_14_without_a_cgroup_of_its_own_the_process_tree_is_measured() {
    let mut bench = bench("tree", Wanted { tree: true, ..Wanted::default() }).await.unwrap();
    assert_eq!(bench.rig.meter().await.unwrap(), "process-tree");
    for hog in [Hog::Ramp(400), Hog::Many] {
        let trial = bench.rig.hog(hog, WANTED_MIB).await.unwrap();
        assert_eq!(trial.outcome, Outcome::Won, "{trial:?}");
    }
    // Left its parent, its session and its environment, and grows there.
    let program = format!("{} hog_entry --exact --nocapture", std::env::current_exe().unwrap().display());
    let hidden =
        format!("setsid sh -c '({} &)'; sleep 1000", Hog::Ramp(400).command(&program, WANTED_MIB).replace('\'', ""));
    let hidden = hidden.replace("JR2_HOG=ramp-400 512", "JR2_HOG=\"ramp-400 512\"");
    let trial = bench.rig.call(&hidden).await.unwrap();
    assert_eq!(trial.outcome, Outcome::Won, "{trial:?}");
}
