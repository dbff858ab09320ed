//! Every text of the Briefing with every combination of what it may hold, against committed files (spec BT-10).

use super::*;
use crate::menu::{Menu, PickRefusal, receipt, refusal};
use jr2_shared::surface::{PickAnswer, PickReply};
use serde_json::{Value, json};

/// One file: a heading for each case, then its text.
struct Sheet(String);

impl Sheet {
    fn case(&mut self, heading: &str, text: &str) {
        self.0.extend(["## ", heading, "\n", text, "\n\n"]);
    }
}

fn sizes() -> [Option<String>; 2] {
    [None, Some("1.9Gi".to_owned())]
}

fn replies() -> Vec<(&'static str, Option<PickReply>)> {
    let party = |payload: Value| PickReply::Party { party: "Gate review".into(), event: "approve".into(), payload };
    let child = |output: Value| PickReply::Child { child: "build".into(), output };
    vec![
        ("none", None),
        ("party, payload", Some(party(json!({"note": "ok", "n": 1})))),
        ("party, empty payload", Some(party(json!({})))),
        ("party, no payload", Some(party(Value::Null))),
        ("party, text payload", Some(party(json!("two\nlines")))),
        ("child, output", Some(child(json!(["a", 2])))),
        ("child, no output", Some(child(Value::Null))),
    ]
}

#[test]
fn st_1_to_6_every_standing_part() {
    let mut sheet = Sheet(String::new());
    for access in [Access::Write, Access::Read, Access::None] {
        for cpus in [None, Some(1), Some(4)] {
            for memory in [None, Some(2 << 30), Some(2_040_109_466), Some(512 << 20)] {
                for shm_private in [true, false] {
                    let heading = format!("{access:?}, CPUs {cpus:?}, memory {memory:?}, own /dev/shm {shm_private}");
                    sheet.case(&heading, &system_prompt("Be brief.", access, Facts { cpus, memory, shm_private }));
                }
            }
        }
    }
    sheet.case("no instructions", &system_prompt("", Access::None, Facts::default()));
    insta::assert_snapshot!("standing", sheet.0);
}

#[test]
fn bt_10_every_notice() {
    let mut sheet = Sheet(String::new());
    for shm in [true, false] {
        for agent in [None, Some("coder".to_owned())] {
            for limit in [None, Some("2Gi".to_owned())] {
                for peak in sizes() {
                    let heading =
                        format!("memory-limit, agent {agent:?}, limit {limit:?}, peak {peak:?}, own /dev/shm {shm}");
                    let notice = Notice::MemoryLimit { agent: agent.clone(), limit: limit.clone(), peak };
                    sheet.case(&heading, &notice_line(&notice, shm).unwrap());
                }
            }
        }
    }
    let reason = "the Harness no longer holds it".to_owned();
    sheet.case("conversation-new", &notice_line(&Notice::ConversationNew { reason }, true).unwrap());
    for cut in ["left", "stopped", "restarted", "of a later build"] {
        for stopped in [None, Some(false), Some(true)] {
            for (name, answer) in replies() {
                let heading = format!("pick-answer, cut {cut}, stopped {stopped:?}, answer: {name}");
                let notice = Notice::PickAnswer { pick: "submit".into(), cut: cut.into(), answer, stopped };
                sheet.case(&heading, notice_line(&notice, true).as_deref().unwrap_or("(not said)"));
            }
        }
    }
    insta::assert_snapshot!("notices", sheet.0);
}

#[test]
fn bt_4_to_6_every_turn_part_and_restatement() {
    let mut sheet = Sheet(String::new());
    let notices = [
        Notice::MemoryLimit { agent: None, limit: Some("2Gi".into()), peak: Some("1.9Gi".into()) },
        Notice::ConversationNew { reason: "the Harness no longer holds it".into() },
    ];
    let allowed_lists: [&[&str]; 3] = [&[], &["mcp__jr2__a"], &["mcp__jr2__a", "mcp__jr2__b"]];
    for prompt in ["", "Fix it."] {
        for cwd in [None, Some("/work/repo")] {
            for notices in [&notices[..0], &notices[..]] {
                for picks in [vec![], vec!["Only after the tests pass."]] {
                    for allowed in allowed_lists {
                        let heading = format!(
                            "prompt {prompt:?}, directory {cwd:?}, {} notices, {} pick briefings, {} allowed",
                            notices.len(),
                            picks.len(),
                            allowed.len()
                        );
                        let (picks, allowed) = (picks.clone(), allowed.to_vec());
                        let part = TurnPart { cwd, notices, shm_private: true, picks, allowed };
                        sheet.case(&heading, &user_message(prompt, &part));
                    }
                }
            }
        }
    }
    for opened in [&[][..], &["Ask first."], &["Ask first.", "Ask twice."]] {
        for allowed in allowed_lists {
            let heading = format!("restatement, {} briefings, {} allowed", opened.len(), allowed.len());
            sheet.case(&heading, &restatement(opened, allowed));
        }
    }
    insta::assert_snapshot!("turn_parts", sheet.0);
}

#[test]
fn r_1_to_8_and_e_1_to_6_every_receipt_and_refusal() {
    let mut sheet = Sheet(String::new());
    let surface = json!({"instanceId": "i", "menu": [{"name": "a"}, {"name": "b"}], "allowed": ["a"]});
    let menu = Menu::of(serde_json::from_value(surface).unwrap()).unwrap();
    let lists = [None, Some(vec![]), Some(vec!["b".to_owned(), "a".to_owned()])];
    for (moved, turn_complete) in [(false, false), (true, false), (true, true)] {
        for allowed in &lists {
            for (name, reply) in replies() {
                for (nothing_ran, answered) in [(false, false), (false, true), (true, false)] {
                    let answer = PickAnswer {
                        delivered: true,
                        event: "a".into(),
                        moved,
                        turn_complete,
                        delivery_id: "d-1".into(),
                        allowed: allowed.clone(),
                        outstanding: false,
                        reply: reply.clone(),
                        nothing_ran,
                        answered,
                    };
                    let heading = format!(
                        "moved {moved}, Turn over {turn_complete}, allowed {allowed:?}, reply: {name}, nothing ran {nothing_ran}, \
                         answered {answered}"
                    );
                    sheet.case(&heading, &receipt(&menu, &answer));
                }
            }
        }
    }
    let detail = || "connection refused".to_owned();
    let mut refusals = vec![
        PickRefusal::Transport { detail: detail() },
        PickRefusal::Gone,
        PickRefusal::Unavailable { error: "stopping".into() },
        PickRefusal::Custodian { detail: detail() },
        PickRefusal::Other { status: 418 },
    ];
    refusals.extend(lists.map(|allowed| PickRefusal::Invalid { error: "a pick is outstanding".into(), allowed }));
    for why in refusals {
        sheet.case(&format!("{why:?}"), &refusal(&menu, "r/root/coder", &why));
    }
    insta::assert_snapshot!("receipts", sheet.0);
}
