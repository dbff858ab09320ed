//! What a try is about, kept until its run has ended.

use super::super::exit::Failure;
use super::model::ModelPlan;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Version of the file's shape.
pub const VERSION: u32 = 1;
/// The file in the try's folder.
const FILE: &str = "try.json";
/// Random bytes of a key: keys of one folder must differ, nobody guesses them.
const KEY_BYTES: usize = 6;

/// One try.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// [`VERSION`].
    pub v: u32,
    /// Idempotency key of the start: a try that is gone on with is the same run.
    pub key: String,
    /// The repository.
    pub repo: PathBuf,
    /// The command that must pass.
    pub test: String,
    /// The commit the Workspace starts from.
    pub base: String,
    /// Who answers.
    pub model: ModelPlan,
}

/// A key for a new try.
pub fn new_key() -> Result<String, Failure> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| Failure::failed(format!("no random bytes: {e}")))?;
    Ok(jr2_shared::harness::base64url(&bytes))
}

impl Plan {
    /// The unfinished try of a folder.
    pub fn load(dir: &Path) -> Result<Option<Self>, Failure> {
        let path = dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::failed(format!("{}: {error}", path.display()))),
            Ok(text) => text,
        };
        let unknown = |why: String| {
            Failure::failed(format!("{}: {why}", path.display())).help("remove the file to begin a new try")
        };
        let plan: Self = serde_json::from_str(&text).map_err(|e| unknown(e.to_string()))?;
        if plan.v != VERSION {
            return Err(unknown(format!("version {} is not known here", plan.v)));
        }
        Ok(Some(plan))
    }

    /// Replaces the file at once.
    pub fn save(&self, dir: &Path) -> Result<(), Failure> {
        let part = dir.join(format!("{FILE}.part"));
        let write = || {
            let mut file = std::fs::File::create(&part)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            std::fs::rename(&part, dir.join(FILE))
        };
        write().map_err(|e: std::io::Error| Failure::failed(format!("{}: {e}", part.display())))
    }

    /// The try is over.
    pub fn remove(dir: &Path) {
        // A plan that stays leads to the same, ended run: the next try says its end again.
        let _ = std::fs::remove_file(dir.join(FILE));
    }
}
