//! A disk that is full (spec H-15): the Harness stops answering rather than forget, and what it acknowledged is there again.

use crate::world::{IID, World};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// A small file system; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    /// `None` where this user may not mount.
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&at).output();
        let mounted = mounted.is_ok_and(|out| out.status.success());
        if !mounted {
            eprintln!("skipped: mounting a small file system needs root");
        }
        mounted.then_some(Self(at))
    }

    /// Leaves no free block.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn h_15_on_a_full_disk_it_stops_and_what_it_acknowledged_is_there_again() {
    let mut world = World::start().await;
    world.kill();
    let _ = std::fs::remove_dir_all(world.conversations());
    let Some(disk) = Small::mount(world.conversations()) else { return };
    world.boot().await;
    let with = |world: &World, n: u64, prompt: &str| {
        let mut body = world.body(prompt);
        body["admissionId"] = json!(format!("{IID}#{n}"));
        body
    };
    assert_eq!(world.turn(with(&world, 1, "Small.")).await["outcome"], "completed");
    disk.fill();
    // Its message does not fit, so no model is asked with it.
    world.admit(with(&world, 2, &"x".repeat(64 << 10))).await;
    assert_eq!(world.exit().await, Some(1));
    assert_eq!(world.stderr().matches("could not be written, ending").count(), 1, "{}", world.stderr());
    assert_eq!(world.fake.with(|script| script.model_requests.len()), 1);
    // As long as it is full it may settle what it can; it never answers without a record.
    disk.free();
    world.boot().await;
    let history = world.history().await;
    let settlements = history["settlements"].as_array().unwrap();
    assert_eq!(settlements.len(), 2, "{history}");
    assert_eq!(
        (&settlements[0]["outcome"], &settlements[1]["error"]["type"]),
        (&json!("completed"), &json!("harness_restarted"))
    );
    assert_eq!(settlements[1]["prompted"], false);
    assert_eq!(world.turn(with(&world, 3, "Again.")).await["outcome"], "completed");
}

#[tokio::test]
async fn h_15_a_disk_that_is_full_from_the_start_seats_nothing() {
    let mut world = World::start().await;
    world.kill();
    let _ = std::fs::remove_dir_all(world.conversations());
    let Some(disk) = Small::mount(world.conversations()) else { return };
    disk.fill();
    for _ in 0..2 {
        world.boot().await;
        let (path, body) = (format!("http://h{}", world.path()), world.body("First."));
        let refused = world.http.post(path).bearer_auth(crate::world::BEARER).json(&body).send().await;
        assert!(refused.is_err_and(|error| !error.is_timeout()), "no answer leaves without its record");
        assert_eq!(world.exit().await, Some(1));
    }
    disk.free();
    world.boot().await;
    assert_eq!(world.call("GET", &world.path(), None).await.0, 404);
    assert_eq!(world.turn(world.body("First.")).await["outcome"], "completed");
    let kept = std::fs::read_dir(world.conversations().join("coder")).unwrap().count();
    assert_eq!(kept, 1, "the cut beginnings are used, not piled up");
}
