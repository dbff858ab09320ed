//! Every workflow file that ships is one that `jr2 check` finds nothing against, not even a warning.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use jr2_orchestrator::workflow::load_file;
use std::path::Path;

#[test]
fn shipped_workflows_check_clean() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for file in ["examples/fix-test/workflow.yaml", "conformance/src/bench/common-work.yaml"] {
        let loaded = load_file(&root.join(file)).unwrap_or_else(|problems| panic!("{}", problems.plain()));
        assert!(!loaded.workflow.chart.states.is_empty(), "{file}");
        let report = jr2_orchestrator::workflow::check_files(&[root.join(file)]);
        assert!(report.diagnostics.is_empty(), "{}", report.diagnostics.plain());
    }
}
