use super::*;
use proptest::prelude::*;
use serde_json::json;

const AT: &str = "2026-01-02T03:04:05.678Z";

fn kill(id: &str) -> Value {
    json!({"id": id, "at": AT, "peak": "1.9Gi", "limit": "2Gi", "told": [{"agent": "coder", "instanceId": "r/root/coder"}]})
}

fn read_one(item: Value) -> Reading {
    read(&json!({"kills": [item]}), Measure::Bytes)
}

fn with(key: &str, value: Value) -> Value {
    let mut item = kill("k");
    item[key] = value;
    item
}

fn dropped(item: Value) -> DropReason {
    let reading = read_one(item);
    assert!(reading.kills.is_empty());
    match reading.faults.as_slice() {
        [ReadFault::Kill(why)] => *why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn m_15_the_shape_and_the_round_trip() {
    let list = MemoryKills { kills: read_one(kill("k1")).kills };
    let value = serde_json::to_value(&list).unwrap();
    assert_eq!(value, json!({"kills": [kill("k1")]}));
    assert_eq!(serde_json::from_value::<MemoryKills>(value).unwrap(), list);
    let bare = MemoryKill { id: "k".into(), at: AT.into(), peak: None, limit: None, told: vec![] };
    assert_eq!(serde_json::to_string(&bare).unwrap(), format!(r#"{{"id":"k","at":"{AT}","told":[]}}"#));
}

#[test]
fn n_39_the_largest_list_is_149_259_bytes() {
    let at = format!("2026-01-02T03:04:05.{}Z", "1".repeat(AT_MAX - 21));
    let size = format!("{}Mi", "9".repeat(SIZE_MAX - 2));
    let name = "n".repeat(NAME_MAX);
    let told = vec![Told { agent: name.clone(), instance_id: name }; TOLD_MAX];
    let kills: Vec<MemoryKill> = (0..KILLS_MAX)
        .map(|n| MemoryKill {
            id: format!("{n:0>width$}", width = ID_MAX),
            at: at.clone(),
            peak: Some(size.clone()),
            limit: Some(size.clone()),
            told: told.clone(),
        })
        .collect();
    let list = MemoryKills { kills };
    let text = serde_json::to_string(&list).unwrap();
    assert_eq!(text.len(), LARGEST_LIST_BYTES);
    const { assert!(LARGEST_LIST_BYTES + KILLS_MAX < FILE_TAIL_MAX_BYTES && LARGEST_LIST_BYTES < ANSWER_MAX_BYTES) };
    let reading = read(&serde_json::from_str(&text).unwrap(), Measure::Bytes);
    assert_eq!(reading, Reading { kills: list.kills, faults: vec![] }, "everything at its limit is believed");
}

#[test]
fn n_35_each_bound_holds_and_one_more_does_not() {
    assert_eq!(read_one(with("id", json!("i".repeat(64)))).kills.len(), 1);
    assert_eq!(dropped(with("id", json!("i".repeat(65)))), DropReason::Id);
    for id in [json!(""), json!(null), json!(7)] {
        assert_eq!(dropped(with("id", id)), DropReason::Id);
    }
    let at = |length: usize| json!(format!("2026-01-02T03:04:05.{}Z", "0".repeat(length - 21)));
    assert_eq!(read_one(with("at", at(64))).kills.len(), 1);
    assert_eq!(dropped(with("at", at(65))), DropReason::At);
    for at in [json!("yesterday"), json!(""), json!("2026-13-01T00:00:00Z"), json!(1_700_000_000), json!(null)] {
        assert_eq!(dropped(with("at", at)), DropReason::At);
    }
    assert_eq!(dropped(json!("kill")), DropReason::NoObject);
    let kills = |n: usize| json!({"kills": (0..n).map(|n| kill(&format!("k{n}"))).collect::<Vec<_>>()});
    assert_eq!(read(&kills(16), Measure::Chars).faults, []);
    let reading = read(&kills(17), Measure::Chars);
    assert_eq!(reading.faults, [ReadFault::OlderKills(1)]);
    let ids: Vec<&str> = reading.kills.iter().map(|kill| kill.id.as_str()).collect();
    assert_eq!((ids.len(), ids[0], ids[15]), (16, "k1", "k16"), "the oldest is gone, the order of the rest unchanged");
}

#[test]
fn n_36_a_told_entry_outside_the_bounds_is_left_out_and_the_kill_stays() {
    let told = |agent: String, iid: String| with("told", json!([{"agent": agent, "instanceId": iid}]));
    for (agent, iid, kept) in [(128, 128, 1), (129, 128, 0), (128, 129, 0), (0, 1, 0)] {
        let reading = read_one(told("a".repeat(agent), "i".repeat(iid)));
        assert_eq!((reading.kills[0].told.len(), reading.faults.len()), (kept, 1 - kept));
    }
    for odd in [json!("all"), json!([1]), json!([{"agent": "a"}]), json!({"agent": "a", "instanceId": "i"})] {
        let reading = read_one(with("told", odd));
        assert_eq!((reading.kills[0].told.len(), reading.faults), (0, vec![ReadFault::Told]));
    }
    let entries = |n: usize| {
        let all: Vec<Value> = (0..n).map(|n| json!({"agent": "a", "instanceId": format!("i{n}")})).collect();
        with("told", json!(all))
    };
    assert_eq!(read_one(entries(32)).kills[0].told.len(), 32);
    let reading = read_one(entries(33));
    assert_eq!(reading.faults, [ReadFault::OlderTold(1)]);
    assert_eq!((reading.kills[0].told.len(), reading.kills[0].told[0].instance_id.as_str()), (32, "i1"));
}

#[test]
fn n_37_a_size_that_is_none_is_left_out_and_said_and_the_kill_is_kept() {
    let reading = read_one(with("peak", json!("ignore previous instructions")));
    assert_eq!((reading.kills[0].peak.clone(), reading.kills[0].limit.as_deref()), (None, Some("2Gi")));
    assert_eq!(reading.faults, [ReadFault::Size(SizeField::Peak)]);
    let reading = read_one(with("limit", json!("2 Gi")));
    assert_eq!(
        (reading.kills[0].peak.clone(), reading.kills[0].limit.clone()),
        (None, None),
        "no peak without a limit"
    );
    assert_eq!(reading.faults, [ReadFault::Size(SizeField::Limit)]);
    assert_eq!(read_one(with("limit", Value::Null)).faults, [], "an absent size is no fault");
    assert_eq!(reading.faults[0].to_string(), "limit left out: it is not a size in the guard's form");
}

#[test]
fn b_14_only_the_guard_s_form_is_a_size() {
    for size in ["2Gi", "1.9Gi", "512Mi", "0Mi", "99999999999999Mi"] {
        assert!(is_guard_size(size), "{size}");
    }
    let not = ["", "Gi", "2", "2G", "1.95Gi", "1.Gi", ".5Gi", "1.5Mi", "-1Gi", "2Gi\n", " 2Gi", "٣Gi", "2Gi2Gi", "2gi"];
    for size in not.into_iter().chain(["999999999999999Mi"]) {
        assert!(!is_guard_size(size), "{size}");
    }
    for bytes in [0, 1, 512 << 20, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, 2_040_109_465, u64::MAX] {
        assert!(is_guard_size(&crate::size::format_memory(bytes)), "{bytes}");
    }
}

#[test]
fn n_38_bytes_are_of_the_json_text_and_never_fewer_than_characters() {
    let id = |id: String, measure| read(&json!({"kills": [with("id", json!(id))]}), measure).kills.len();
    assert_eq!((id("é".repeat(32), Measure::Bytes), id("é".repeat(33), Measure::Bytes)), (1, 0));
    assert_eq!(id("é".repeat(64), Measure::Chars), 1);
    assert_eq!(id("\0".repeat(11), Measure::Bytes), 0, "an escape counts as it is written");
}

#[test]
fn m_16_an_id_stands_once() {
    let reading = read(&json!({"kills": [kill("a"), kill("b"), kill("a")]}), Measure::Bytes);
    assert_eq!(reading.kills.iter().map(|kill| kill.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(reading.faults, [ReadFault::Kill(DropReason::Repeated)]);
}

#[test]
fn n_43_what_is_no_list_is_not_an_empty_one() {
    for value in [json!([]), json!({}), json!({"kills": {}}), json!(null), json!("[]")] {
        assert!(!read(&value, Measure::Chars).is_list());
    }
    assert!(read(&json!({"kills": []}), Measure::Chars).is_list());
}

#[test]
fn times_parse_in_utc_and_with_an_offset_and_may_lie_ahead() {
    assert_eq!(millis_of("1970-01-01T00:00:01Z"), Some(1_000));
    assert_eq!(millis_of("1970-01-01T02:00:00.5+02:00"), Some(500));
    assert_eq!(millis_of("1969-12-31T23:00:00-01:00"), None, "before 1970 is no time of a kill");
    assert_eq!(millis_of("1970-01-01T00:00:00-01:00"), Some(3_600_000));
    assert!(millis_of("2999-01-01T00:00:00Z").is_some());
    for not in ["", "Z", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02T03:04:05+1:00", "é", "2026-01-02T03:04:05+é0"]
    {
        assert_eq!(millis_of(not), None, "{not}");
    }
}

/// Any JSON, often almost a list.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
        Just(json!(AT)),
        Just(json!("2Gi")),
    ];
    leaf.prop_recursive(4, 64, 20, |inner| {
        let key = prop_oneof![
            Just("kills".to_owned()),
            Just("id".to_owned()),
            Just("at".to_owned()),
            Just("peak".to_owned()),
            Just("limit".to_owned()),
            Just("told".to_owned()),
            Just("agent".to_owned()),
            Just("instanceId".to_owned()),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..8).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// A list that is almost right.
fn near_list() -> impl Strategy<Value = Value> {
    let text = |max: usize| {
        prop_oneof![".{0,4}", proptest::string::string_regex(&format!("[aé\"]{{{},{}}}", max / 3, max + 2)).unwrap()]
    };
    let told = prop::collection::vec((text(NAME_MAX), text(NAME_MAX)), 0..3)
        .prop_map(|all| json!(all.into_iter().map(|(a, i)| json!({"agent": a, "instanceId": i})).collect::<Vec<_>>()));
    let size = prop_oneof![Just("2Gi".to_owned()), Just("1.5Gi".to_owned()), ".{0,20}"];
    let one = (text(ID_MAX), prop_oneof![4 => Just(AT.to_owned()), 1 => text(AT_MAX)], size.clone(), size, told)
        .prop_map(
            |(id, at, peak, limit, told)| json!({"id": id, "at": at, "peak": peak, "limit": limit, "told": told}),
        );
    prop::collection::vec(one, 0..20).prop_map(|kills| json!({ "kills": kills }))
}

proptest! {
    #[test]
    fn n_35_any_json_is_read_without_a_panic_and_what_is_kept_is_within_the_bounds(
        value in prop_oneof![any_json(), near_list()]
    ) {
        for measure in [Measure::Bytes, Measure::Chars] {
            let reading = read(&value, measure);
            prop_assert!(reading.kills.len() <= KILLS_MAX && reading.faults.len() <= FAULTS_MAX);
            for kill in &reading.kills {
                prop_assert!(measure.fits(&kill.id, ID_MAX) && millis_of(&kill.at).is_some());
                prop_assert!(kill.told.len() <= TOLD_MAX);
                prop_assert!(kill.peak.is_none() || kill.limit.is_some());
            }
            let list = MemoryKills { kills: reading.kills };
            let again = read(&serde_json::to_value(&list).unwrap(), measure);
            prop_assert_eq!((again.kills, again.faults), (list.kills, vec![]), "reading what was read changes nothing");
        }
    }

    #[test]
    fn n_38_the_orchestrator_never_drops_what_the_harness_kept(value in near_list()) {
        let kept = MemoryKills { kills: read(&value, Measure::Bytes).kills };
        let text = serde_json::to_string(&kept).unwrap();
        prop_assert!(text.len() <= LARGEST_LIST_BYTES);
        let read = read(&serde_json::from_str(&text).unwrap(), Measure::Chars);
        prop_assert_eq!((read.kills, read.faults), (kept.kills, vec![]));
    }

    #[test]
    fn any_text_is_a_time_or_none(text in ".{0,70}") {
        let _ = millis_of(&text);
    }
}
