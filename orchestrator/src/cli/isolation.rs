//! The lines of `jr2 status` that say what stands between an Agent's commands and the machine.

use super::client::Client;
use jr2_shared::isolation::Isolation;
use serde_json::Value;

/// Adds `isolation` to a live run's status. A server that does not know the route leaves it as it is.
pub async fn add(client: &Client, status: &mut Value) {
    let (Some(run), Some("live")) = (status["runId"].as_str(), status["status"].as_str()) else { return };
    if let Ok(answer) = client.get(&format!("/runs/{run}/isolation")).await
        && answer["sandboxes"].as_array().is_some_and(|all| !all.is_empty())
    {
        status["isolation"] = answer["sandboxes"].clone();
    }
}

/// The lines for people.
pub fn lines(status: &Value) -> Vec<String> {
    status["isolation"].as_array().into_iter().flatten().map(line).collect()
}

fn line(one: &Value) -> String {
    let name = one["sandbox"].as_str().unwrap_or_default();
    let Ok(isolation) = serde_json::from_value::<Isolation>(one["isolation"].clone()) else {
        return format!("isolation of {name}: not known, its Harness does not say");
    };
    let (active, open) = (isolation.active(), isolation.open());
    let active = if active.is_empty() { "nothing".to_owned() } else { active.join(", ") };
    let open = if open.is_empty() { String::new() } else { format!("; open: {}", open.join(", ")) };
    format!("isolation of {name}: {active}{open}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_open_is_said_beside_what_holds() {
        let status = json!({"isolation": [
            {"sandbox": "ws-a", "isolation": {"landlock": 7, "systemCalls": true, "noNewPrivileges": true, "processes": 4200}},
            {"sandbox": "ws-b", "isolation": null},
        ]});
        assert_eq!(
            lines(&status),
            [
                "isolation of ws-a: files, TCP ports, processes, system calls, no new privileges, at most 4200 processes; \
                 open: Unix sockets by path (Landlock before ABI 9)",
                "isolation of ws-b: not known, its Harness does not say",
            ]
        );
        assert!(lines(&json!({})).is_empty());
    }
}
