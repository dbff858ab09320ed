//! A run that is ended while its Sandbox is made leaves nothing of it.

use crate::flows;
use crate::server::{Folder, repository};
use serde_json::json;

/// Folders of Sandboxes.
pub fn sandboxes(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.state().join("workspaces")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_given_up_while_it_is_made_is_removed() {
    let folder = Folder::new("store: { durability: process }\n", &flows::WORKFLOWS);
    let repo = folder.dir.join("repo");
    repository(&repo);
    let mut server = folder.start().await;
    for restart in [false, true] {
        let input = json!({ "repo": repo.display().to_string() });
        let (_, body) = folder.post("/workflows/work/runs", &input).await.unwrap();
        let run = body["runId"].as_str().unwrap();
        folder.until(run, "placed", |s| s["value"] == "provisioning").await;
        let (status, body) = folder.post(&format!("/runs/{run}/events"), &json!({ "type": "CANCEL" })).await.unwrap();
        assert_eq!(status, 200, "{body}");
        if restart {
            server.kill();
            server = folder.start().await;
        }
        let status = folder.until(run, "over", |s| s["status"] == "cancelled" && s["idle"] == true).await;
        assert_eq!(status["branches"], json!(null), "nothing was worked on: {status}");
        assert_eq!(sandboxes(&folder), Vec::<String>::new());
        assert_eq!(folder.sandbox_processes(), Vec::new());
    }
}
