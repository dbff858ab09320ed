//! `jr2 serve`, and the commands that speak to it.

use super::rig::{ASK, Rig, Running, eventually};
use rustix::process::Signal;

fn serve(rig: &Rig) -> (Running, String) {
    let server = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    let said = server.until("jr2 serves at http://");
    let url = said.lines().find_map(|line| line.strip_prefix("jr2 serves at ")).unwrap().to_owned();
    (server, url)
}

#[test]
fn a_run_is_started_seen_answered_and_survives_a_kill() {
    let rig = Rig::asking();
    let (server, _) = serve(&rig);
    let run = rig.run(&["run", "ask", "--input", "word=really", "--detach"]).expect(0).out.trim().to_owned();
    assert_eq!(run.len(), 26);
    server.kill();
    // Nobody answers: the store is read, nothing is started.
    let status = rig.run(&["status", &run[..6], "--json"]).expect(0).json();
    assert_eq!((&status["status"], &status["gates"][0]["meta"]["question"]), (&"live".into(), &"really?".into()));
    rig.run(&["runs"]).expect(0).says(&run);
    let (server, _) = serve(&rig);
    let line = format!("jr2 send {} --gate asking --activation asking#1 --event refuse --field why=no", &run[..4]);
    rig.shell(&line).expect(0);
    rig.shell(&line.replace("asking#1", "asking#9")).expect(1).says("is done");
    let ended = eventually("the end", || {
        let status = rig.run(&["status", &run, "--json"]).json();
        (status["status"] == "done").then_some(status)
    });
    assert_eq!(ended["output"]["why"], "no");
    rig.run(&["history", &run]).expect(0).says("gate refuse asking");
    server.signal(Signal::TERM);
    server.wait().expect(0);
    assert!(!rig.dir().join(".jr2/server.json").exists());
}

#[test]
fn workflows_are_read_again_and_a_bad_one_keeps_what_it_was() {
    let rig = Rig::asking();
    let (server, _) = serve(&rig);
    rig.write("workflows/ask.yaml", "workflow: ask\nstates: [");
    rig.write("workflows/more.yaml", &ASK.replace("workflow: ask", "workflow: more"));
    server.signal(Signal::HUP);
    server.until("jr2 serves 2 workflows now");
    server.until("keep what they were before");
    rig.run(&["run", "ask", "--detach"]).expect(0);
    rig.run(&["run", "more", "--detach"]).expect(0);
    server.signal(Signal::INT);
    server.wait().expect(0);
}

#[test]
fn a_file_runs_on_a_server_that_does_not_know_it() {
    let rig = Rig::new();
    let (_server, url) = serve(&rig);
    rig.write("ask.yaml", ASK);
    let run = rig.run(&["run", "./ask.yaml", "--detach", "--key", "k"]).expect(0).out;
    let same = rig.run(&["run", "./ask.yaml", "--detach", "--key", "k", "--server", &url]).expect(0).out;
    assert_eq!(run, same);
    rig.run(&["cancel", run.trim()]).expect(0);
    rig.run(&["logs", run.trim(), "-f"]).expect(1);
    rig.run(&["status", run.trim()]).expect(0).says("cancelled");
}

#[test]
fn without_a_server_a_run_parks_and_is_sent_on() {
    let rig = Rig::asking();
    let parked = rig.run(&["run", "ask"]).expect(3);
    let line = parked.err.lines().find(|l| l.contains("--event agree")).unwrap().trim().to_owned();
    let ended = rig.shell(&format!("{line} --json")).expect(0).json();
    assert_eq!(ended["status"], "done");
    rig.shell(&line).expect(1).says("is done");
}

#[test]
fn a_send_without_a_server_says_only_what_is_new() {
    let rig = Rig::asking();
    let again = ASK.replace("agree: done", "agree: { to: asking, emit: { type: heard } }");
    rig.write("workflows/ask.yaml", &again);
    let parked = rig.run(&["run", "ask"]).expect(3).says("Gate asking#1 is open");
    let line = parked.err.lines().find(|l| l.contains("--event agree")).unwrap().trim().to_owned();
    let sent = rig.shell(&line).expect(3).says("Gate asking#2 is open").says("heard");
    assert!(!sent.err.contains("Gate asking#1 is open"), "{}", sent.err);
}

#[test]
fn an_address_that_went_to_another_folder_s_server_is_not_believed() {
    let (rig, other) = (Rig::asking(), Rig::asking());
    let (_server, url) = serve(&other);
    rig.run(&["run", "ask"]).expect(3);
    rig.write(".jr2/server.json", &format!("{{\"url\": \"{url}\", \"pid\": 1, \"version\": \"0\"}}"));
    rig.run(&["runs"]).expect(0).says("asking");
    other.run(&["runs"]).expect(0).says("There are no runs.");
}
