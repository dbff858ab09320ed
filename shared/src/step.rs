//! An Agent-less command and its end: what a Sandbox provider hands to `jr2-harness step` and gets back.

use serde::{Deserialize, Serialize};

/// Largest output of a step that is kept, in bytes: head and tail stay.
pub const STEP_OUTPUT_MAX_BYTES: usize = 64 << 10;
/// Environment variable with the step's key: the same for every repeat of one entry of its state.
pub const STEP_KEY_VARIABLE: &str = "JR2_STEP_KEY";
/// Environment variable with the attempt, from 0.
pub const STEP_ATTEMPT_VARIABLE: &str = "JR2_STEP_ATTEMPT";

/// One line of JSON on the standard input of `jr2-harness step`; the end of that input ends the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepRequest {
    /// Absolute working directory.
    pub cwd: String,
    /// Shell text.
    pub command: String,
    /// Extra environment; the key and the attempt are among it.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Most milliseconds.
    pub timeout_ms: u64,
}

/// One line of JSON on its standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepEnd {
    /// It ended with exit code 0.
    pub ok: bool,
    /// `exit 1`, `timeout`, `killed SIGKILL`, or why it could not run; empty when it went well.
    #[serde(default)]
    pub reason: String,
    /// What it printed, bounded.
    pub output: String,
}
