use crate::tools::testing::Bench;
use crate::tools::{ToolLimits, Toolbox};
use jr2_shared::harness::Access;
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};
use tokio::sync::watch;

#[tokio::test]
async fn write_makes_folders_and_keeps_modes() {
    let bench = Bench::new();
    let got = bench.ok("write", json!({"path": "a/b/c.sh", "content": "one\ntwo\n"})).await;
    assert_eq!(got, "Created a/b/c.sh: 2 lines, 8 bytes.");
    let path = bench.path("a/b/c.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    let absolute = path.display().to_string();
    bench.ok("write", json!({"path": absolute, "content": "x"})).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(std::fs::read_dir(bench.path("a/b")).unwrap().count(), 1, "no temporary file stays");
}

#[tokio::test]
async fn write_follows_links_inside_and_refuses_ways_out() {
    let bench = Bench::new();
    bench.file("real", "1");
    std::os::unix::fs::symlink("real", bench.path("link")).unwrap();
    bench.ok("write", json!({"path": "link", "content": "2"})).await;
    assert_eq!(std::fs::read_to_string(bench.path("real")).unwrap(), "2");
    assert!(bench.path("link").is_symlink());
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), bench.path("out")).unwrap();
    for path in ["out/x", "../x", "a/../../x"] {
        let got = bench.err("write", json!({"path": path, "content": "x"})).await;
        assert!(got.contains("outside") || got.contains("does not exist"), "{path}: {got}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    assert_eq!(bench.err("write", json!({"path": ".", "content": ""})).await, ". is a directory, not a file.");
    bench.file("f", "");
    assert!(bench.err("write", json!({"path": "f/x", "content": ""})).await.contains("not a directory"));
}

#[tokio::test]
async fn edit_replaces_exactly_one_place() {
    let bench = Bench::new();
    bench.file("a", "x = 1\ny = 2\nx = 1\n");
    let edit =
        |old: &str, new: &str, all: bool| json!({"path": "a", "oldText": old, "newText": new, "replaceAll": all});
    assert_eq!(
        bench.err("edit", edit("x = 1", "x = 3", false)).await,
        "oldText stands 2 times in a, at lines 1, 3. Nothing was changed: add text around it until it is the only one, \
         or set replaceAll."
    );
    assert_eq!(bench.ok("edit", edit("y = 2\nx = 1", "y = 4\nx = 1", false)).await, "Edited a: 1 place, at lines 2.");
    assert_eq!(bench.ok("edit", edit("x = 1", "", true)).await, "Edited a: 2 places, at lines 1, 3.");
    assert_eq!(std::fs::read_to_string(bench.path("a")).unwrap(), "\ny = 4\n\n");
    assert!(bench.err("edit", edit("", "x", false)).await.contains("oldText is empty"));
    assert!(bench.err("edit", edit("y", "y", false)).await.contains("the same"));
    assert!(bench.err("edit", edit("nope", "y", false)).await.starts_with("oldText is not in a. Read"));
}

#[tokio::test]
async fn edit_helps_with_white_space_and_line_ends() {
    let bench = Bench::new();
    bench.file("a", "if x:\n\treturn 1\n");
    let got = bench.err("edit", json!({"path": "a", "old_string": "if x:\n    return 1", "new_string": "pass"})).await;
    assert!(got.contains("differs only in white space is at line 1"), "{got}");
    bench.file("dos", "one\r\ntwo\r\n");
    bench.ok("edit", json!({"path": "dos", "oldText": "one\ntwo", "newText": "1\n2"})).await;
    assert_eq!(std::fs::read_to_string(bench.path("dos")).unwrap(), "1\r\n2\r\n");
    std::fs::write(bench.path("latin"), b"caf\xe9 one").unwrap();
    bench.ok("edit", json!({"path": "latin", "oldText": "one", "newText": "two"})).await;
    assert_eq!(std::fs::read(bench.path("latin")).unwrap(), b"caf\xe9 two");
}

/// Writes the same file again and again when it runs as a child of the test below, and does nothing else.
#[tokio::test]
async fn writer() {
    let Some(root) = std::env::var_os("JR2_TEST_WRITER") else { return };
    let tools = Toolbox::new(root.into(), Access::Write, ToolLimits::default());
    for letter in ["a", "b"].iter().cycle() {
        let arguments = json!({"path": "file", "content": letter.repeat(256 << 10)});
        let done = tools.run("write", &arguments, watch::channel(false).1).await;
        assert!(!done.is_error, "{}", done.text);
    }
}

#[tokio::test]
async fn a_write_cut_by_kill_9_leaves_the_old_or_the_new_file_and_nothing_else() {
    let bench = Bench::new();
    bench.file("file", &"a".repeat(256 << 10));
    let start = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tools::edit::tests::writer"]).env("JR2_TEST_WRITER", bench.root());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    for round in 0..30 {
        let before = std::fs::metadata(bench.path("file")).unwrap();
        let mut child = start();
        let deadline = Instant::now() + Duration::from_secs(20);
        // It runs once the file is another one; then another instant of its loop each round.
        while std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(bench.path("file")).unwrap())
            == std::os::unix::fs::MetadataExt::ino(&before)
        {
            assert!(Instant::now() < deadline, "nothing was written");
        }
        let until = Instant::now() + Duration::from_micros(round * 137);
        while Instant::now() < until {}
        child.kill().unwrap();
        child.wait().unwrap();
        let text = std::fs::read(bench.path("file")).unwrap();
        assert_eq!(text.len(), 256 << 10);
        assert!(text.iter().all(|byte| *byte == text[0]), "half of one and half of the other");
    }
    let names: Vec<_> = std::fs::read_dir(bench.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() <= 2, "at most the kill between a link and its rename leaves a name: {names:?}");
}

#[tokio::test]
async fn a_write_to_a_full_disk_leaves_the_old_file() {
    let bench = Bench::new();
    let small = bench.path("small");
    std::fs::create_dir(&small).unwrap();
    let mount =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&small).output();
    if !mount.is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    }
    bench.file("small/file", "old");
    let big = "x".repeat(256 << 10);
    let refused = bench.err("write", json!({"path": "small/file", "content": big})).await;
    let edited = bench.err("edit", json!({"path": "small/file", "oldText": "old", "newText": big})).await;
    let (kept, names) = (std::fs::read_to_string(small.join("file")), std::fs::read_dir(&small).unwrap().count());
    let _ = std::process::Command::new("umount").arg("-l").arg(&small).status();
    assert!(refused.contains("No space left") && edited.contains("No space left"), "{refused} {edited}");
    assert_eq!((kept.unwrap().as_str(), names), ("old", 1), "the old one, and no temporary file");
}

#[tokio::test]
async fn d09_an_aborted_write_has_happened_or_never_will() {
    let bench = Bench::new();
    bench.file("file", "old");
    for round in 0..40u64 {
        bench.file("file", "old");
        let (abort, heard) = watch::channel(false);
        let arguments = json!({"path": "file", "content": "new".repeat(100_000)});
        let call = bench.tools.run("write", &arguments, heard);
        let other = async {
            // Poll: not for anything; each round aborts at another instant.
            tokio::time::sleep(Duration::from_micros(round * 50)).await;
            abort.send_replace(true);
        };
        let (got, ()) = tokio::join!(call, other);
        let text = std::fs::read_to_string(bench.path("file")).unwrap();
        assert_eq!(got.is_error, text == "old", "{}: what the model hears is what is there", got.text);
        assert!(text == "old" || text.len() == 300_000);
    }
}
