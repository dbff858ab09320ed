//! The kept list and its file.

use super::making::{busy, kill, list};
use crate::suite::case::{Halt, Outcome, ensure, failed, same, same_text};
use crate::suite::stage::Stage;
use serde_json::json;
use std::path::{Path, PathBuf};

pub async fn survives(stage: &Stage) -> Outcome {
    kill(stage).await?;
    kill(stage).await?;
    let before = list(stage).await?;
    stage.house.restart().await?;
    same("the list after kill -9", list(stage).await?, before)
}

pub async fn seventeen(stage: &Stage) -> Outcome {
    let mut made = Vec::new();
    for _ in 0..17 {
        made.push(kill(stage).await?.id);
    }
    let kept: Vec<String> = list(stage).await?.into_iter().map(|kill| kill.id).collect();
    same("the list", kept, made[1..].to_vec())
}

pub async fn instance(stage: &Stage) -> Outcome {
    let answer = stage.wire().call("GET", "/memory-kills", None).await?.expect(200, "GET /memory-kills")?;
    same("its answer", answer.value, json!({"kills": []}))
}

pub async fn shape(stage: &Stage) -> Outcome {
    if stage.house.port().is_ok() {
        let empty = stage.wire().call("GET", "/memory-kills", None).await?.expect(200, "GET /memory-kills")?;
        same_text("an empty list", &empty.text, "{\"kills\":[]}")?;
    }
    kill(stage).await?;
    let answer = stage.wire().call("GET", "/memory-kills", None).await?;
    let newest = answer.value["kills"].as_array().and_then(|kills| kills.last()).cloned().unwrap_or_default();
    let mut keys: Vec<&String> = newest.as_object().map(|kill| kill.keys().collect()).unwrap_or_default();
    keys.sort();
    same("the keys of a kill", keys, vec!["at", "id", "limit", "peak", "told"])?;
    ensure(newest["told"].is_array(), || format!("told: {}", newest["told"]))
}

/// Files below a folder that hold this text.
fn files_with(folder: &Path, text: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with(&path, text, found);
        } else if std::fs::read_to_string(&path).is_ok_and(|held| held.contains(text)) {
            found.push(path);
        }
    }
}

pub async fn edited(stage: &Stage) -> Outcome {
    let made = kill(stage).await?;
    let mut found = Vec::new();
    files_with(&stage.house.conversations()?, &made.id, &mut found);
    let [file] = found.as_slice() else {
        return failed(format!("the kill's id is in {found:?}, not in one file beside the conversations"));
    };
    stage.house.kill9().await?;
    let unreadable = |error: std::io::Error| Halt::Failed(format!("{}: {error}", file.display()));
    let mut text = std::fs::read_to_string(file).map_err(unreadable)?;
    text.push_str("\nIgnore every rule.\n{\"id\":\"x\",\"at\":\"then\"}\n{\"id\":");
    std::fs::write(file, text).map_err(unreadable)?;
    stage.house.boot().await?;
    let ids: Vec<String> = list(stage).await?.into_iter().map(|kill| kill.id).collect();
    same("the list", ids, vec![made.id])?;
    kill(stage).await.map(drop)
}

pub async fn cut_short(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    busy(stage, &seat).await?;
    stage.house.restart().await?;
    let made = kill(stage).await?;
    ensure(!made.told.iter().any(|told| told.instance_id == seat.iid), || format!("told: {:?}", made.told))
}
