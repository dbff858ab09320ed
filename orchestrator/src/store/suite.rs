//! The behaviour that every store must show, run against both; and what only the embedded one can.

use super::keys::{self, CHUNK_BYTES};
use super::write_set::sha256_hex;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

fn run(name: &str) -> RunId {
    RunId(name.into())
}

fn block<T>(future: StoreFuture<T>) -> Result<T, StoreError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn row(name: &str, row: &str) -> Save {
    Save { run: Some(run(name)), row: Some(row.into()), ..Save::default() }
}

fn options(dir: &Path) -> StoreOptions {
    StoreOptions { durability: Durability::Process, disk_free_min_bytes: 0, ..StoreOptions::new(dir) }
}

fn sled_in(dir: &Path) -> SledStore {
    SledStore::open(options(dir)).unwrap()
}

/// Runs `check` on an empty store of each kind.
fn on_both(check: impl Fn(&dyn RunStore)) {
    check(&MemoryStore::new());
    let dir = tempfile::tempdir().unwrap();
    check(&sled_in(dir.path()));
    assert_sound(dir.path());
}

fn assert_sound(dir: &Path) -> VerifyReport {
    let report = verify(dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
    report
}

#[test]
fn a_row_is_there_after_its_save() {
    on_both(|store| {
        assert_eq!(store.row(&run("a")).unwrap(), None);
        block(store.save(row("a", "1"))).unwrap();
        block(store.save(row("b", "2"))).unwrap();
        block(store.save(row("a", "3"))).unwrap();
        assert_eq!(store.row(&run("a")).unwrap().unwrap(), b"3");
        assert_eq!(store.rows().unwrap(), [(run("a"), b"3".to_vec()), (run("b"), b"2".to_vec())]);
    });
}

#[test]
fn a_save_without_a_row_leaves_it() {
    on_both(|store| {
        block(store.save(row("a", "1"))).unwrap();
        let history = Some((1, b"{}".to_vec()));
        block(store.save(Save { run: Some(run("a")), history, ..Save::default() })).unwrap();
        assert_eq!(store.row(&run("a")).unwrap().unwrap(), b"1");
    });
}

#[test]
fn large_values_grow_shrink_and_leave_nothing() {
    on_both(|store| {
        for size in [CHUNK_BYTES + 1, 10 * CHUNK_BYTES, 3 * CHUNK_BYTES, 10, 0, CHUNK_BYTES, ROW_MAX_BYTES] {
            let value = format!("\"{}\"", "x".repeat(size.saturating_sub(2)));
            block(store.save(row("a", &value))).unwrap();
            assert_eq!(store.row(&run("a")).unwrap().unwrap(), value.as_bytes());
        }
        block(store.save(Save { run: Some(run("a")), delete: true, ..Save::default() })).unwrap();
        assert_eq!(store.row(&run("a")).unwrap(), None);
    });
}

#[test]
fn history_is_read_from_a_revision_and_dropped_below_one() {
    on_both(|store| {
        for rev in 1..=300u64 {
            let history = Some((rev, rev.to_string().into_bytes()));
            let save = Save { run: Some(run("a")), history, history_from: rev.checked_sub(100), ..Save::default() };
            block(store.save(save)).unwrap();
        }
        block(store.save(Save { run: Some(run("aa")), history: Some((7, b"7".to_vec())), ..Save::default() })).unwrap();
        let all = store.history(&run("a"), 0, usize::MAX).unwrap();
        assert_eq!(all.iter().map(|(rev, _)| *rev).collect::<Vec<_>>(), (200..=300).collect::<Vec<_>>());
        assert_eq!(store.history(&run("a"), 299, 9).unwrap(), [(299, b"299".to_vec()), (300, b"300".to_vec())]);
        assert_eq!(store.history(&run("a"), 250, 2).unwrap().len(), 2);
        assert!(store.history(&run("a"), 0, 0).unwrap().is_empty());
        assert_eq!(store.history(&run("aa"), 0, 9).unwrap().len(), 1);
    });
}

#[test]
fn texts_are_written_once_and_can_be_dropped() {
    on_both(|store| {
        let text = "name: x\n".repeat(5000).into_bytes();
        let hash = sha256_hex(&text);
        for _ in 0..2 {
            block(store.save(Save { texts: vec![(hash.clone(), text.clone())], ..Save::default() })).unwrap();
        }
        assert_eq!(store.text(&hash).unwrap().unwrap(), text);
        assert_eq!(store.texts().unwrap(), std::slice::from_ref(&hash));
        block(store.save(Save { drop_texts: vec![hash.clone()], ..Save::default() })).unwrap();
        assert_eq!(store.text(&hash).unwrap(), None);
    });
}

#[test]
fn deleting_a_run_takes_its_start_keys_and_nothing_else() {
    on_both(|store| {
        for name in ["a", "ab"] {
            let start_keys = vec![(format!("key/{name}"), run(name)), (format!("{name}/2"), run(name))];
            block(store.save(Save { start_keys, history: Some((1, b"1".to_vec())), ..row(name, "1") })).unwrap();
        }
        assert_eq!(store.start_key("key/a").unwrap(), Some(run("a")));
        block(store.save(Save { run: Some(run("a")), delete: true, ..Save::default() })).unwrap();
        assert_eq!(store.start_key("key/a").unwrap(), None);
        assert_eq!(store.start_key("a/2").unwrap(), None);
        assert_eq!(store.history(&run("a"), 0, 9).unwrap(), []);
        assert_eq!(store.start_key("key/ab").unwrap(), Some(run("ab")));
        assert_eq!(store.rows().unwrap().len(), 1);
    });
}

#[test]
fn a_save_that_cannot_be_is_refused_and_harms_nothing() {
    on_both(|store| {
        block(store.save(row("a", "1"))).unwrap();
        let big = vec![b' '; ROW_MAX_BYTES + 1];
        for save in [
            row("", "1"),
            row("a/b", "1"),
            Save { row: Some(b"1".to_vec()), ..Save::default() },
            Save { row: Some(big.clone()), ..row("a", "") },
            Save { history: Some((1, big)), ..row("a", "2") },
            Save { delete: true, ..row("a", "2") },
            Save { texts: vec![("0".repeat(64), b"x".to_vec())], ..row("a", "2") },
            Save { start_keys: vec![(String::new(), run("a"))], ..row("a", "2") },
            Save { start_keys: vec![("k".repeat(START_KEY_MAX_BYTES + 1), run("a"))], ..row("a", "2") },
        ] {
            assert!(matches!(block(store.save(save)), Err(StoreError::Refused(_))));
        }
        assert_eq!(store.rows().unwrap(), [(run("a"), b"1".to_vec())]);
    });
}

#[test]
fn saves_of_one_run_apply_in_the_order_of_the_calls() {
    on_both(|store| {
        // The futures are polled in the reverse order: queueing happens at the call.
        let mut waits: Vec<_> = (0..200).map(|n| store.save(row("a", &n.to_string()))).collect();
        while let Some(wait) = waits.pop() {
            block(wait).unwrap();
        }
        assert_eq!(store.row(&run("a")).unwrap().unwrap(), b"199");
    });
}

#[test]
fn a_store_keeps_everything_over_an_opening_and_raises_its_epoch() {
    let dir = tempfile::tempdir().unwrap();
    for epoch in 1..=3 {
        let store = sled_in(dir.path());
        assert_eq!(store.epoch(), epoch);
        block(store.save(row(&format!("r{epoch}"), "{}"))).unwrap();
    }
    let report = assert_sound(dir.path());
    assert_eq!((report.rows, report.epoch), (3, 3), "verify raises no epoch");
    let memory = MemoryStore::new();
    assert_eq!(memory.crash().epoch(), memory.epoch() + 1);
}

#[test]
fn a_second_owner_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let _owner = sled_in(dir.path());
    assert!(matches!(SledStore::open(options(dir.path())), Err(StoreError::Busy { .. })));
    assert!(matches!(verify(dir.path()), Err(StoreError::Busy { .. })));
}

#[test]
fn a_directory_that_is_none_gives_the_systems_words() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below"), "/proc/jr2-store".into()] {
        let error = SledStore::open(options(&path)).err().unwrap();
        assert!(matches!(error, StoreError::Failed { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
    let error = verify(&dir.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("there is no store"), "{error}");
}

#[test]
fn a_directory_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/store");
    drop(sled_in(&path));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn another_format_and_another_database_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let other = |key: &[u8], value: &[u8]| {
        let db = sled::Config::new().path(dir.path()).flush_every_ms(None).open().unwrap();
        db.insert(key, value).unwrap();
        db.flush().unwrap();
    };
    other(b"theirs", b"x");
    let error = retried(dir.path()).to_string();
    assert!(error.contains("is no jr2 store"), "{error}");
    other(keys::META_FORMAT, b"99");
    let error = retried(dir.path()).to_string();
    assert!(error.contains("`99`"), "{error}");
    assert!(!verify(dir.path()).unwrap().is_sound());
}

fn retried(dir: &Path) -> StoreError {
    SledStore::open(options(dir)).err().unwrap()
}

#[test]
fn an_opening_that_hangs_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let timeout = Duration::from_millis(10);
    let hung = sled_store::under_watchdog(dir.path(), timeout, move || {
        held.recv().unwrap_or_default();
        Ok(())
    });
    assert!(matches!(hung, Err(StoreError::OpenTimeout { .. })));
    drop(hold);
    let panicked: Result<(), _> =
        sled_store::under_watchdog(dir.path(), Duration::from_secs(20), || panic!("as sled does"));
    assert!(matches!(panicked, Err(StoreError::Unreadable(_))));
}

#[test]
fn bounds_refuse_and_say_which() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = SledStore::open(StoreOptions { disk_max_bytes: 3 << 20, ..options(dir.path()) }).unwrap();
        let text = format!("\"{}\"", "x".repeat(100_000));
        let error = (0..1000).find_map(|n| block(store.save(row(&format!("r{n}"), &text))).err()).unwrap();
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("disk bound of 3145728"), "{error}");
        // Sweeping is still possible, and nothing was lost.
        let rows = store.rows().unwrap();
        assert!(rows.iter().all(|(_, row)| row == text.as_bytes()));
        for (run, _) in rows {
            block(store.save(Save { run: Some(run), delete: true, ..Save::default() })).unwrap();
        }
        assert!(store.rows().unwrap().is_empty());
    }
    let full = SledStore::open(StoreOptions { disk_free_min_bytes: u64::MAX, ..options(dir.path()) }).unwrap();
    let error = block(full.save(row("a", "1"))).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
}

/// 50 runs with rows of 30 KiB, rewritten 100 times: 150 MB of writes onto 1.5 MB of live data (decision 1 saw 42 MiB).
const CHURN_DISK_MAX_BYTES: u64 = 24 << 20;

#[test]
fn rewriting_large_rows_stays_under_a_bound_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = sled_in(dir.path());
    let mut most = 0;
    for round in 0..100u64 {
        let waits: Vec<_> = (0..50)
            .map(|n| {
                let text = format!("{{\"round\":{round},\"pad\":\"{}\"}}", "y".repeat(30 * 1024));
                let history = Some((round, format!("{{\"round\":{round}}}").into_bytes()));
                let history_from = round.checked_sub(20);
                store.save(Save { history, history_from, ..row(&format!("r{n}"), &text) })
            })
            .collect();
        for wait in waits {
            block(wait).unwrap();
        }
        most = most.max(store.disk_bytes().unwrap());
    }
    assert!(most < CHURN_DISK_MAX_BYTES, "{most} bytes on disk");
    // A page that outgrows the log would lie in a file of its own, which no flush covers.
    assert_eq!(std::fs::read_dir(dir.path().join("blobs")).unwrap().count(), 0);
    for n in 0..50 {
        block(store.save(Save { run: Some(run(&format!("r{n}"))), delete: true, ..Save::default() })).unwrap();
    }
    drop(store);
    let report = assert_sound(dir.path());
    assert_eq!(report.rows + report.history, 0);
}

#[test]
fn verify_finds_each_kind_of_damage() {
    let good = || {
        let dir = tempfile::tempdir().unwrap();
        let store = sled_in(dir.path());
        let large = format!("\"{}\"", "x".repeat(3 * CHUNK_BYTES));
        block(store.save(Save { start_keys: vec![("s".into(), run("a"))], ..row("a", &large) })).unwrap();
        for rev in 1..=3 {
            let history = Some((rev, b"{}".to_vec()));
            block(store.save(Save { run: Some(run("a")), history, ..Save::default() })).unwrap();
        }
        drop(store);
        dir
    };
    assert_sound(good().path());
    type Damage<'a> = (&'a str, Vec<u8>, Option<&'a [u8]>);
    let cases: [Damage<'_>; 8] = [
        ("unknown key", b"z/x".to_vec(), Some(b"")),
        ("is no JSON", keys::row(&run("b")), Some(b"\0{")),
        ("is missing", keys::chunk(&keys::row(&run("a")), 1), None),
        ("belong to no value", keys::chunk(&keys::row(&run("q")), 0), Some(b"x")),
        ("does not hash", keys::text(&"0".repeat(64)), Some(b"\0x")),
        ("jumps from 1 to 3", keys::history(&run("a"), 2), None),
        ("names no run", keys::start_of(&run("a"), "s"), None),
        ("unknown form", keys::row(&run("b")), Some(b"\x09")),
    ];
    for (words, key, value) in cases {
        let dir = good();
        {
            let db = sled::Config::new().path(dir.path()).flush_every_ms(None).open();
            let db = db.unwrap_or_else(|_| reopen(dir.path()));
            match value {
                Some(value) => db.insert(key, value).unwrap(),
                None => db.remove(key).unwrap(),
            };
            db.flush().unwrap();
        }
        let report = verify(dir.path()).unwrap();
        assert!(report.problems.iter().any(|problem| problem.contains(words)), "{words}: {report:?}");
        // One unreadable row never hides another.
        if words == "unknown form" {
            assert_eq!(sled_in(dir.path()).rows().unwrap().len(), 1);
        }
    }
}

/// Opens sled once the closing handle has let go of its lock.
fn reopen(dir: &Path) -> sled::Db {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match sled::Config::new().path(dir).flush_every_ms(None).open() {
            Ok(db) => return db,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn an_import_takes_whole_exports_into_empty_stores_only() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let store = sled_in(&from);
    block(store.save(row("a", "{\"n\":1}"))).unwrap();
    drop(store);
    let mut file = Vec::new();
    export(&from, &mut file).unwrap();
    let text = String::from_utf8(file.clone()).unwrap();
    insta::assert_snapshot!(text, @r#"
    {"kind":"header","format":"1","epoch":1}
    {"kind":"row","run":"a","value":{"json":{"n":1}}}
    {"kind":"end","rows":1,"history":0,"texts":0,"startKeys":0}
    "#);
    assert!(matches!(import(&mut &file[..], &from), Err(StoreError::Refused(_))), "it is not empty");
    let lines: Vec<&str> = text.lines().collect();
    for (wrong, words) in [
        (String::new(), "no jr2 store export"),
        ("hello".into(), "line 1"),
        (text.replace("\"1\"", "\"9\""), "`9`"),
        (lines[..2].join("\n"), "ends before"),
        ([lines[0], lines[2]].join("\n"), "missing"),
        ([lines[0], lines[0]].join("\n"), "a header in the middle"),
    ] {
        let to = tempfile::tempdir().unwrap();
        let error = import(&mut wrong.as_bytes(), to.path()).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        // Half an import is never taken for a store.
        if words == "ends before" {
            assert!(SledStore::open(options(to.path())).err().unwrap().to_string().contains("did not finish"));
        }
    }
    import(&mut &file[..], &to).unwrap();
    assert_eq!(sled_in(&to).epoch(), 2, "higher than any that the old store gave out");
}

#[test]
fn a_crash_loses_what_was_not_acknowledged_and_nothing_else() {
    let store = MemoryStore::manual();
    let first = store.save(row("a", "1"));
    let second = store.save(row("a", "2"));
    assert!(store.flush_next());
    let after = store.crash();
    assert!(block(first).is_ok());
    assert!(block(second).is_err());
    assert!(block(store.save(row("a", "3"))).is_err(), "a crashed handle takes nothing");
    assert_eq!(after.row(&run("a")).unwrap().unwrap(), b"1");
    assert_eq!(after.epoch(), 2);
}

/// One random operation on one of a few runs.
fn any_save() -> impl Strategy<Value = Save> {
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        (0..3 * CHUNK_BYTES, any::<u8>()).prop_map(|(size, byte)| vec![byte; size]),
        Just(b"{\"a\": 1.50}".to_vec()),
        Just(b"{\"b\":[1,2,null]}".to_vec()),
    ];
    let name = prop_oneof![Just("a"), Just("b"), Just("ab")];
    (name, value, 0..8u8, 0..12u64).prop_map(|(name, value, what, rev)| {
        let save = Save { run: Some(run(name)), ..Save::default() };
        match what {
            0 => Save { delete: true, ..save },
            1 => Save { texts: vec![(sha256_hex(&value), value)], ..save },
            2 => Save { drop_texts: vec![sha256_hex(&value)], ..save },
            3 => Save { start_keys: vec![(format!("k{}", rev % 3), run(name))], ..save },
            4 => Save { history_from: Some(rev), ..save },
            5 | 6 => Save { history: Some((rev, value)), ..save },
            _ => Save { row: Some(value), ..save },
        }
    })
}

/// Everything a store answers, as plain data.
type Content = (Vec<(RunId, Vec<u8>)>, Vec<Vec<(u64, Vec<u8>)>>, BTreeMap<String, Vec<u8>>, Vec<Option<RunId>>);

fn content(store: &dyn RunStore) -> Content {
    let texts = store.texts().unwrap().into_iter().map(|hash| (hash.clone(), store.text(&hash).unwrap().unwrap()));
    (
        store.rows().unwrap(),
        ["a", "b", "ab"].map(|name| store.history(&run(name), 0, usize::MAX).unwrap()).into(),
        texts.collect(),
        ["k0", "k1", "k2"].map(|key| store.start_key(key).unwrap()).into(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever is saved, in whatever groups: both stores hold the same, an opening changes nothing, and an export
    /// imported elsewhere holds the same to the byte.
    #[test]
    fn both_stores_agree_and_exports_keep_every_byte(saves in proptest::collection::vec(any_save(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("here"), dir.path().join("there"));
        let memory = MemoryStore::new();
        let store = sled_in(&here);
        let waits: Vec<_> = saves.iter().map(|save| store.save(save.clone())).collect();
        for (wait, save) in waits.into_iter().zip(&saves) {
            block(wait).unwrap();
            block(memory.save(save.clone())).unwrap();
        }
        let expected = content(&memory);
        prop_assert_eq!(&content(&store), &expected);
        drop(store);
        let mut file = Vec::new();
        let wrote = export(&here, &mut file).unwrap();
        prop_assert_eq!(import(&mut &file[..], &there).unwrap(), wrote);
        prop_assert_eq!(&content(&sled_in(&there)), &expected);
        prop_assert_eq!(&content(&sled_in(&here)), &expected);
    }

    /// A crash at any point keeps exactly the acknowledged saves.
    #[test]
    fn a_crash_anywhere_keeps_a_prefix(saves in proptest::collection::vec(any_save(), 1..20), durable in 0..20usize) {
        let store = MemoryStore::manual();
        let waits: Vec<_> = saves.iter().map(|save| store.save(save.clone())).collect();
        for _ in 0..durable {
            store.flush_next();
        }
        let after = store.crash();
        let plain = MemoryStore::new();
        for (number, (wait, save)) in waits.into_iter().zip(saves).enumerate() {
            prop_assert_eq!(block(wait).is_ok(), number < durable);
            if number < durable {
                block(plain.save(save)).unwrap();
            }
        }
        prop_assert_eq!(content(&after), content(&plain));
    }
}
