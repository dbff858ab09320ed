//! Aborts and the end of the process (decision 33, spec H-17).

use crate::world::{Answer, World};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

impl World {
    async fn abort(&self, body: Option<Value>) -> Value {
        let (status, answer, _) = self.call("POST", &format!("{}/abort", self.path()), body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    async fn model_is_asked(&self, times: usize) {
        self.fake.until("the model is asked", |script| script.model_requests.len() >= times).await;
    }
}

#[tokio::test]
async fn an_abort_ends_the_running_submission_and_the_queue_in_order() {
    let world = World::start().await;
    world.script(vec![Answer::Hang]);
    let one = world.admit(world.body("A")).await["submissionId"].clone();
    let two = world.admit(world.body("B")).await["submissionId"].clone();
    world.model_is_asked(1).await;
    assert_eq!(world.abort(None).await, json!({"aborted": true}));
    let (one, two) = (world.settled(one.as_str().unwrap()).await, world.settled(two.as_str().unwrap()).await);
    assert_eq!((&one["outcome"], &two["outcome"]), (&json!("aborted"), &json!("aborted")));
    assert_eq!(one["error"]["type"], "submission_aborted");
    assert!(one["position"]["batch"].as_u64() < two["position"]["batch"].as_u64());
    assert_eq!(world.abort(None).await, json!({"aborted": false}), "nothing is left to end");
}

#[tokio::test]
async fn an_abort_answers_when_the_running_tool_is_dead() {
    let world = World::start().await;
    let command = "echo $$ > pid; exec sleep 600";
    world.script(vec![Answer::Calls(vec![("c1", "bash", json!({ "command": command }).to_string())])]);
    let submission = world.admit(world.body("A")).await["submissionId"].clone();
    let file = world.work().join("pid");
    let pid = tokio::time::timeout(crate::world::DEADLINE, async {
        loop {
            match std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<i32>().ok()) {
                Some(pid) => return pid,
                // Poll: until the condition holds.
                None => tokio::time::sleep(std::time::Duration::from_millis(2)).await,
            }
        }
    });
    let pid = rustix::process::Pid::from_raw(pid.await.unwrap()).unwrap();
    assert_eq!(world.abort(None).await, json!({"aborted": true}));
    assert_eq!(world.settled(submission.as_str().unwrap()).await["outcome"], "aborted");
    let gone = tokio::time::timeout(crate::world::DEADLINE, async {
        while rustix::process::test_kill_process(pid).is_ok() {
            // Poll: until the condition holds.
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    gone.await.expect("the call's process lives on");
}

#[tokio::test]
async fn decision_33_up_to_ends_that_submission_and_not_the_next() {
    let world = World::start().await;
    world.script(vec![Answer::Hang, Answer::Text("Second.")]);
    let with = |n: u64| {
        let mut body = world.body("A");
        body["admissionId"] = json!(format!("{}#{n}", crate::world::IID));
        body
    };
    let one = world.admit(with(1)).await["submissionId"].clone();
    let two = world.admit(with(2)).await["submissionId"].clone();
    world.model_is_asked(1).await;
    let up_to = json!({"upTo": format!("{}#1", crate::world::IID)});
    assert_eq!(world.abort(Some(up_to.clone())).await, json!({"aborted": true}));
    assert_eq!(world.settled(one.as_str().unwrap()).await["outcome"], "aborted");
    assert_eq!(world.settled(two.as_str().unwrap()).await["text"], "Second.");
    assert_eq!(world.abort(Some(up_to)).await, json!({"aborted": false}));
}

#[tokio::test]
async fn decision_33_an_abort_that_overtakes_its_admission_is_remembered() {
    let mut world = World::start().await;
    let id = |n: u64| format!("{}#{n}", crate::world::IID);
    let with = |world: &World, n: u64| {
        let mut body = world.body("A");
        body["admissionId"] = json!(id(n));
        body
    };
    // The conversation does not exist yet.
    let overtook = |n| json!({"aborted": false, "unprompted": [id(n)]});
    assert_eq!(world.abort(Some(json!({"upTo": id(1)}))).await, overtook(1));
    assert_eq!(world.turn(with(&world, 1)).await["outcome"], "aborted");
    // It does now, and the memory of an abort outlives the process.
    assert_eq!(world.abort(Some(json!({"upTo": id(3)}))).await, overtook(3));
    world.kill();
    world.boot().await;
    assert_eq!(world.turn(with(&world, 3)).await["outcome"], "aborted");
    assert_eq!(world.turn(with(&world, 4)).await["outcome"], "completed");
    assert_eq!(world.fake.with(|script| script.model_requests.len()), 1);
}

#[tokio::test]
async fn h_17_a_drain_settles_everyone_flushes_the_polls_and_ends_with_0() {
    // Whether a poll is parked yet cannot be seen from outside: a drain that meets it at the gate is tried again.
    for _ in 0..5 {
        if drained_with_a_parked_poll().await {
            return;
        }
    }
    panic!("no poll was ever parked in time");
}

async fn drained_with_a_parked_poll() -> bool {
    let mut world = World::start().await;
    world.script(vec![Answer::Hang]);
    let one = world.admit(world.body("A")).await["submissionId"].clone();
    let two = world.admit(world.body("B")).await["submissionId"].clone();
    world.model_is_asked(1).await;
    let (_, _, headers) = world.call("GET", &world.path(), None).await;
    let next = headers["stream-next-offset"].to_str().unwrap();
    let path = format!("{}?offset={next}&view=updates&live=long-poll", world.path());
    let term = async {
        world.history().await;
        world.signal(Signal::TERM);
    };
    let ((status, events, _), ()) = tokio::join!(world.call("GET", &path, None), term);
    assert_eq!(world.exit().await, Some(0), "{}", world.stderr());
    world.boot().await;
    let settlements = world.history().await["settlements"].clone();
    let (first, second) = (&settlements[0], &settlements[1]);
    assert_eq!((&first["submissionId"], &first["prompted"]), (&one, &json!(true)));
    assert_eq!((&second["submissionId"], &second["prompted"]), (&two, &json!(false)));
    assert_eq!(second["error"]["type"], "harness_restarted");
    assert_eq!(settlements.as_array().unwrap().len(), 2, "settled once, by the drain");
    if status == 200 {
        assert_eq!(events[0]["submissionId"], one, "the parked poll is flushed");
    }
    status == 200
}

#[tokio::test]
async fn h_03_an_admission_that_meets_the_drain_is_refused_and_nothing_is_seated() {
    let mut world = World::start().await;
    let mut stream = tokio::net::UnixStream::connect(world.dir.path().join("harness.sock")).await.unwrap();
    let body = world.body("late").to_string();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {}\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        world.path(),
        crate::world::BEARER,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100"), "the request is past the gate");
    world.signal(Signal::TERM);
    let draining = tokio::time::timeout(crate::world::DEADLINE, async {
        while !world.stderr().contains("harness: draining") {
            // Poll: until the condition holds.
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    draining.await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(world.exit().await, Some(0));
    world.boot().await;
    assert_eq!(world.call("GET", &world.path(), None).await.0, 404);
}

#[tokio::test]
async fn decision_32_an_abort_says_which_admissions_no_model_was_asked_with_and_a_repeat_says_it_again() {
    let world = World::start().await;
    let id = |n: u32| format!("{}#{n}", crate::world::IID);
    let admit = async |n: u32| {
        let mut body = world.body("Go.");
        body["admissionId"] = json!(id(n));
        world.admit(body).await["submissionId"].as_str().unwrap().to_owned()
    };
    let up_to = |n: u32| Some(json!({ "upTo": id(n) }));
    assert_eq!(world.abort(up_to(1)).await, json!({"aborted": false, "unprompted": [id(1)]}), "before it arrived");
    let late = world.settled(&admit(1).await).await;
    assert_eq!((&late["outcome"], &late["prompted"]), (&json!("aborted"), &json!(false)));
    world.script(vec![Answer::Hang]);
    let asked = admit(2).await;
    world.model_is_asked(1).await;
    let behind = admit(3).await;
    for aborted in [true, false] {
        let both = json!({"aborted": aborted, "unprompted": [id(3)]});
        assert_eq!(world.abort(up_to(3)).await, both, "the one behind was never prompted");
    }
    assert_eq!(world.abort(up_to(2)).await, json!({"aborted": false}), "the one that ran was");
    assert_eq!(
        (world.settled(&asked).await["prompted"].clone(), world.settled(&behind).await["prompted"].clone()),
        (json!(true), json!(false))
    );
    world.script(vec![Answer::Text("Done.")]);
    let done = world.settled(&admit(4).await).await;
    assert_eq!((&done["outcome"], done.get("prompted")), (&json!("completed"), None));
    assert_eq!(world.abort(up_to(4)).await, json!({"aborted": false}));
}
