//! An admission body, checked and turned into what the hall seats (spec H-5 to H-8).

use super::App;
use crate::conversation::{SEGMENT_MAX_BYTES, Seating, segment};
use crate::mutation::{self, Mutation};
use crate::turn::Job;
use crate::turn::step::Frame;
use axum::http::StatusCode;
use jr2_shared::harness::{Access, AgentDefinition, HarnessConfig, PROMPT_MAX_BYTES, ThinkingLevel};
use jr2_shared::notice::{NOTICES_MAX, read_notices};
use jr2_shared::surface::PickAnswer;
use serde::Deserialize as _;
use serde_json::Value;
use std::path::PathBuf;

/// Working directory of a Turn without one (spec A-5).
const DEFAULT_CWD: &str = "/work";
/// Longest working directory in bytes: the kernel's bound of a path.
const CWD_MAX_BYTES: usize = 4_096;
/// Longest admission id in bytes: an iid and a number.
const ADMISSION_ID_MAX_BYTES: usize = 1_024;

/// A refused admission. Its words start with the Agent's slot name (spec H-6).
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// 400 or 403.
    pub status: StatusCode,
    /// Why.
    pub words: String,
}

/// Checks an admission of Agent `name` into conversation `iid`.
pub fn read(app: &App, name: &str, iid: &str, body: &Value) -> Result<Seating, Refused> {
    read_with(&app.settings.model, app.settings.menu_only, app.settings.facts.shm_private, name, iid, body)
}

/// The same over the parts of the settings that it needs: pure, whatever the body says.
pub fn read_with(
    config: &HarnessConfig,
    menu_only: bool,
    shm_private: bool,
    name: &str,
    iid: &str,
    body: &Value,
) -> Result<Seating, Refused> {
    let bad = |words: String| Refused { status: StatusCode::BAD_REQUEST, words: format!("{name}: {words}") };
    if segment(name).len() > SEGMENT_MAX_BYTES || segment(iid).len() > SEGMENT_MAX_BYTES {
        return Err(bad(format!("its name or its conversation's is over {SEGMENT_MAX_BYTES} bytes")));
    }
    if !body.is_object() {
        return Err(bad("the body is no JSON object".to_owned()));
    }
    let definition: AgentDefinition = match body.get("definition") {
        Some(value) => serde_json::from_value(value.clone()).map_err(|e| bad(format!("bad definition: {e}")))?,
        None => return Err(bad("the definition is missing".to_owned())),
    };
    if menu_only && definition.workspace != Access::None {
        let words = format!("{name}: this Harness runs only Agents whose workspace is `none`");
        return Err(Refused { status: StatusCode::FORBIDDEN, words });
    }
    let prompt = match body.get("message") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if text.len() <= PROMPT_MAX_BYTES => text.clone(),
        Some(Value::String(text)) => {
            return Err(bad(format!("the prompt is {} bytes, over the bound of {PROMPT_MAX_BYTES}", text.len())));
        }
        Some(_) => return Err(bad("the message is not a text".to_owned())),
    };
    let cwd = frame_cwd(body.get("cwd"), definition.workspace).map_err(&bad)?;
    // A Dial that is no text is dropped (spec H-5); one that is a text must mean something.
    let model = body.get("model").and_then(Value::as_str).unwrap_or(&definition.model);
    let (provider, model) = resolve(config, model).map_err(&bad)?;
    let thinking = match body.get("thinkingLevel").filter(|value| value.is_string()) {
        Some(value) => Some(level(value).ok_or_else(|| bad(format!("unknown thinkingLevel {value}")))?),
        None => definition.thinking_level,
    };
    let admission = body.get("admissionId").and_then(Value::as_str).map(str::to_owned);
    if admission.as_ref().is_some_and(|id| id.len() > ADMISSION_ID_MAX_BYTES) {
        return Err(bad(format!("the admissionId is over {ADMISSION_ID_MAX_BYTES} bytes")));
    }
    let mut notices = body.get("notices").map(read_notices).unwrap_or_default();
    // The Orchestrator caps them itself (decision 12); what another one sends beyond it is said not to be taken.
    let left_out = notices.len() > NOTICES_MAX;
    notices.truncate(NOTICES_MAX);
    let receipt = body.get("receipt").and_then(|value| PickAnswer::deserialize(value).ok());
    Ok(Seating {
        agent: name.to_owned(),
        iid: iid.to_owned(),
        admission,
        carried: notices.iter().filter_map(|carried| carried.id.clone()).collect(),
        left_out,
        kept: body.get("kept") == Some(&Value::Bool(true)) && !mutation::is(Mutation::KeptIgnored),
        job: Job {
            root: PathBuf::from(cwd.as_deref().unwrap_or(DEFAULT_CWD)),
            frame: Frame {
                iid: iid.to_owned(),
                submission: String::new(),
                prompt,
                cwd,
                receipt,
                notices: notices.into_iter().map(|carried| carried.notice).collect(),
                shm_private,
                working_tools: Vec::new(),
            },
            instructions: definition.instructions,
            access: definition.workspace,
            provider,
            model,
            thinking,
            max_tokens: definition.max_tokens,
            temperature: definition.temperature,
            trace: None,
        },
    })
}

/// The Frame's working directory: none for access `none`, `/work` when unsaid, absolute otherwise (decision 28).
fn frame_cwd(value: Option<&Value>, access: Access) -> Result<Option<String>, String> {
    let cwd = match value {
        None | Some(Value::Null) => DEFAULT_CWD,
        Some(Value::String(path)) if path.starts_with('/') && path.len() <= CWD_MAX_BYTES && !path.contains('\0') => {
            path
        }
        Some(other) => {
            let shown: String = other.to_string().chars().take(200).collect();
            return Err(format!("bad Frame: cwd {shown} is not an absolute path"));
        }
    };
    Ok((access != Access::None).then(|| cwd.to_owned()))
}

/// Splits `<provider>/<model>` at the first slash and checks the provider (spec 3.3).
fn resolve(config: &HarnessConfig, model: &str) -> Result<(String, String), String> {
    let shown: String = model.chars().take(200).collect();
    let Some((provider, id)) = model.split_once('/').filter(|(provider, id)| !provider.is_empty() && !id.is_empty())
    else {
        return Err(format!("model \"{shown}\" is not of the form <provider>/<model>"));
    };
    if !config.providers.iter().any(|known| known.id == provider) {
        let known: Vec<&str> = config.providers.iter().map(|known| known.id.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(format!("model \"{shown}\" names no provider of this Harness (providers: {known})"));
    }
    Ok((provider.to_owned(), id.to_owned()))
}

fn level(value: &Value) -> Option<ThinkingLevel> {
    serde_json::from_value(value.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config() -> HarnessConfig {
        serde_json::from_value(json!({"providers": [{"id": "p", "baseUrl": "/providers/p"}]})).unwrap()
    }

    fn read(menu_only: bool, body: Value) -> Result<Seating, Refused> {
        read_with(&config(), menu_only, false, "coder", "r/root/coder", &body)
    }

    fn definition() -> Value {
        json!({"model": "p/org/m", "instructions": "i"})
    }

    #[test]
    fn h_05_what_is_missing_or_malformed_is_dropped() {
        let seating = read(
            false,
            json!({"definition": definition(), "model": 7, "thinkingLevel": [],
            "notices": [{"kind": "later"}, {"kind": "memory-limit", "id": "n1"}]}),
        )
        .unwrap();
        assert_eq!(seating.job.frame.prompt, "");
        assert_eq!((seating.job.provider.as_str(), seating.job.model.as_str()), ("p", "org/m"));
        assert_eq!(seating.job.thinking, None);
        assert_eq!(seating.carried, ["n1"]);
        assert_eq!(seating.job.frame.cwd.as_deref(), Some("/work"));
        assert!(!seating.kept);
    }

    #[test]
    fn h_06_refusals_start_with_the_slot() {
        let words = |body: Value| {
            let refused = read(false, body).unwrap_err();
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
            assert!(refused.words.starts_with("coder: "), "{}", refused.words);
            refused.words
        };
        assert!(words(json!({})).contains("definition is missing"));
        assert!(words(json!([])).contains("no JSON object"));
        assert!(words(json!({"definition": {"model": 1}})).contains("bad definition"));
        assert!(words(json!({"definition": definition(), "cwd": "rel"})).contains("absolute path"));
        assert!(words(json!({"definition": definition(), "cwd": 3})).contains("absolute path"));
        assert!(words(json!({"definition": definition(), "model": "q/m"})).contains("providers: p"));
        assert!(words(json!({"definition": definition(), "model": "open"})).contains("<provider>/<model>"));
        assert!(words(json!({"definition": definition(), "thinkingLevel": "warp"})).contains("warp"));
        let prompt = "x".repeat(PROMPT_MAX_BYTES + 1);
        assert!(words(json!({"definition": definition(), "message": prompt})).contains("over the bound"));
    }

    #[test]
    fn h_07_the_instance_harness_runs_menu_only_agents() {
        assert_eq!(read(true, json!({"definition": definition()})).unwrap_err().status, StatusCode::FORBIDDEN);
        let none = json!({"model": "p/m", "instructions": "", "workspace": "none"});
        assert_eq!(read(true, json!({"definition": none})).unwrap().job.frame.cwd, None);
    }
}
