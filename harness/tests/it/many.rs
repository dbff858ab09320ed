//! A thousand conversations on one Instance Harness: all settle, memory and descriptors stay bounded, all come back, all go.

use crate::world::World;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

/// Conversations of the test.
const MANY: usize = 1_000;
/// Sent at the same time.
const AT_ONCE: usize = 50;
/// Most KiB that one more conversation of one short Turn may cost.
const KIB_EACH_MAX: u64 = 64;

fn path(n: usize) -> String {
    format!("/agents/clerk/run{n}%2Froot%2Fclerk")
}

async fn each<T>(work: impl Fn(usize) -> T)
where
    T: Future<Output = ()>,
{
    stream::iter(0..MANY).map(work).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
}

async fn turn(world: &World, n: usize) {
    let definition = json!({"model": "p/tiny", "instructions": "You are a clerk.", "workspace": "none"});
    let (status, answer, _) =
        world.call("POST", &path(n), Some(json!({"message": format!("Task {n}."), "definition": definition}))).await;
    assert_eq!(status, 200, "{answer}");
    let poll = format!("{}?offset={}&view=updates&live=long-poll", path(n), answer["offset"].as_str().unwrap());
    let mut poll = poll;
    loop {
        let (_, events, headers) = world.call("GET", &poll, None).await;
        let settled = events.as_array().into_iter().flatten().find(|event| event["type"] == "submission-settled");
        if let Some(settled) = settled {
            assert_eq!(settled["outcome"], "completed", "{settled}");
            return;
        }
        let next = headers["stream-next-offset"].to_str().unwrap();
        poll = format!("{}?offset={next}&view=updates&live=long-poll", path(n));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_conversations_settle_within_bounds_and_come_back() {
    let mut world = World::start_with(&[("JR2_MENU_ONLY", "1")]).await;
    turn(&world, 0).await;
    let before = world.resident_kib();
    each(|n| turn(&world, n)).await;
    let (grown, open) = (world.resident_kib().saturating_sub(before), world.open_files());
    eprintln!("{MANY} conversations: {} KiB more, {} bytes each, {open} open files", grown, grown * 1024 / MANY as u64);
    assert!(grown < KIB_EACH_MAX * MANY as u64, "{grown} KiB for {MANY} conversations");
    assert!(open < MANY + 200, "{open} open files");

    world.kill();
    world.boot().await;
    assert_eq!(world.stderr().matches("unreadable").count(), 0, "{}", world.stderr());
    each(|n| {
        let world = &world;
        async move {
            let (status, history, _) = world.call("GET", &format!("{}?view=history", path(n)), None).await;
            assert_eq!(status, 200, "conversation {n} came back");
            assert_eq!(history["settlements"][0]["outcome"], "completed");
        }
    })
    .await;

    // One lives on: a broken set frees nobody, the right one everybody else.
    let live = json!({"agent": "clerk", "instanceId": "run7/root/clerk"});
    let broken: Value = json!({"live": [live, {"agent": "clerk"}]});
    assert_eq!(world.call("PUT", "/agents", Some(broken)).await.0, 400);
    assert_eq!(world.call("GET", &path(8), None).await.0, 200, "the whole body is read before anything is freed");
    let freed = world.call("PUT", "/agents", Some(json!({"live": [live]}))).await.1;
    assert_eq!(freed, json!({"freed": MANY - 1}));
    assert_eq!((world.call("GET", &path(7), None).await.0, world.call("GET", &path(8), None).await.0), (200, 404));
    assert_eq!(std::fs::read_dir(world.conversations().join("clerk")).unwrap().count(), 1);
    assert!(world.open_files() < 200, "their files are closed");
}

/// A Harness that may open few files raises its own bound, and with none left it does not take conversations for lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_open_files_stop_the_start_and_forget_nothing() {
    let mut world = World::start_with(&[("JR2_MENU_ONLY", "1")]).await;
    for n in 0..60 {
        turn(&world, n).await;
    }
    world.kill();
    let with_limit = |world: &World, limit: &str| {
        let mut command = world.command("sh");
        command.arg("-c").arg(format!("ulimit {limit}; exec {}", env!("CARGO_BIN_EXE_jr2-harness")));
        command
    };
    let ended = with_limit(&world, "-n 40").status().unwrap();
    assert_eq!(ended.code(), Some(1), "{}", world.stderr());
    assert_eq!(world.stderr().matches("unreadable").count(), 0, "{}", world.stderr());
    let child = with_limit(&world, "-Sn 40").spawn().unwrap();
    world.adopt(child).await;
    for n in 0..60 {
        assert_eq!(world.call("GET", &path(n), None).await.0, 200, "{n}");
    }
}
