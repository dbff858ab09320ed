//! What expressions and templates answer, and what they refuse.

use super::*;
use proptest::prelude::*;
use serde_json::json;

struct World {
    input: Value,
    context: Map<String, Value>,
    event: Value,
    run: Value,
}

fn world() -> World {
    let context = json!({
        "rounds": 2, "notes": "böse", "ratio": 0.5, "list": [1, 2.5, "x", null], "people": [{"name": "Ada"}, {"name": "Bo"}],
        "big": 18_446_744_073_709_551_615u64, "nothing": null, "deep": {"a": {"b": 7}}, "many": (0..300).collect::<Vec<_>>(),
    });
    let Value::Object(context) = context else { unreachable!() };
    World {
        input: json!({"repo": "r", "test": "cargo test"}),
        context,
        event: json!({"type": "finish", "summary": "done"}),
        run: json!({"id": "abcd", "workflow": "w", "started": "2026-01-01T00:00:00Z"}),
    }
}

impl World {
    fn scope(&self) -> Scope<'_> {
        Scope {
            input: &self.input,
            context: &self.context,
            event: Some(&self.event),
            run: &self.run,
            workspace: None,
            actor: None,
        }
    }
}

fn value(source: &str) -> Value {
    let expression = Expression::parse(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    expression.evaluate(&world().scope()).unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// The offset and message of what fails, while parsing or evaluating.
fn failure(source: &str) -> String {
    let outcome = Expression::parse(source).and_then(|expression| expression.evaluate(&world().scope()));
    let error = outcome.expect_err(source);
    format!("{}: {}", error.offset.map_or("-".to_owned(), |at| at.to_string()), error.message)
}

#[test]
fn integers_and_doubles_are_computed_together() {
    for (source, expected) in [
        ("context.rounds < 3.5", json!(true)),
        ("1 + 0.5", json!(1.5)),
        ("1 == 1.0", json!(true)),
        ("context.rounds + 1", json!(3)),
        ("7 / 2", json!(3)),
        ("7 / 2.0", json!(3.5)),
        ("-7 % 4", json!(-3)),
        ("-context.rounds", json!(-2)),
        ("context.ratio * 2", json!(1.0)),
        ("9007199254740993 > 9007199254740992.0", json!(true)),
        ("context.big", json!(18_446_744_073_709_551_615u64)),
        ("context.big > 1", json!(true)),
        ("int(2.9) + int('3')", json!(5)),
        ("string(1) + string(1.5) + string(true)", json!("11.5true")),
        ("math.greatest(1, 2.5, -3)", json!(2.5)),
        ("math.least([4, 2])", json!(2)),
        ("type(1) == int && type(1.0) == double && type('') == string", json!(true)),
    ] {
        assert_eq!(value(source), expected, "{source}");
    }
}

#[test]
fn texts_lists_and_maps() {
    for (source, expected) in [
        (r#""a" + 'b'"#, json!("ab")),
        ("context.notes.size()", json!(4)),
        ("size(context.list)", json!(4)),
        (r#"context["notes"].contains("ös")"#, json!(true)),
        ("context.notes.matches('^b.se$')", json!(true)),
        ("' A b '.trim().lowerAscii().replace('b', 'cc')", json!("a cc")),
        ("'a,b'.split(',').join('-')", json!("a-b")),
        ("'böse'.substring(1, 3) + 'böse'.charAt(3)", json!("öse")),
        ("'böse'.indexOf('s') + 'x'.indexOf('y')", json!(1)),
        ("[1] + [2.5]", json!([1, 2.5])),
        (r#"{"a": context.rounds, "b": [null]}"#, json!({"a": 2, "b": [null]})),
        (r#"{"a": {"b": 1}}.a.b"#, json!(1)),
        ("2.5 in context.list && !('y' in context.list) && 'a' in context.deep", json!(true)),
        ("context.list[1]", json!(2.5)),
        ("context.people.map(p, p.name)", json!(["Ada", "Bo"])),
        ("context.people.filter(p, p.name.startsWith('A'))", json!([{"name": "Ada"}])),
        ("context.people.exists(p, p.name == 'Bo') && context.people.all(p, p.name != '')", json!(true)),
        ("context.people.exists_one(p, size(p.name) == 2)", json!(true)),
        ("[1, 2, 3].map(x, x > 1, [1, 2].map(y, x * y))", json!([[2, 4], [3, 6]])),
        ("context.deep.map(k, k)", json!(["a"])),
        ("context.deep == {'a': {'b': 7.0}}", json!(true)),
        ("context.rounds == '2'", json!(false)),
        ("context.`notes`", json!("böse")),
        ("run.id", json!("abcd")),
        ("event", json!({"type": "finish", "summary": "done"})),
    ] {
        assert_eq!(value(source), expected, "{source}");
    }
}

#[test]
fn presence_and_either_side_settle() {
    for (source, expected) in [
        ("has(event.summary)", json!(true)),
        ("has(event.other)", json!(false)),
        ("has(context.deep.a) && !has(context.deep.x)", json!(true)),
        ("has(workspace.branch)", json!(false)),
        ("true || event.other == 1", json!(true)),
        ("event.other == 1 || true", json!(true)),
        ("event.other == 1 && false", json!(false)),
        ("context.rounds > 1 ? 'many' : event.other", json!("many")),
        ("[1, 0].exists(x, 1 / x == 1)", json!(true)),
    ] {
        assert_eq!(value(source), expected, "{source}");
    }
}

#[test]
fn failures_read_plainly() {
    let sources = [
        "",
        "1 +",
        "1 $ 2",
        "a.b",
        "context.missing",
        "event.other.deeper",
        "workspace.branch",
        "1 / 0",
        "now()",
        "f(1)",
        "size()",
        "x.size()",
        "'a' + 1",
        "context.rounds ? 1 : 2",
        "!context.notes",
        "context.notes < 1",
        "'a'.matches(context.notes)",
        "'a'.matches('(')",
        "9223372036854775807 + 1",
        "context.ratio / 0.0",
        "b'abc'",
        "context.list[9]",
        "context.nothing.x",
        "{1: 2}",
        "{'a': 1, 'a': 2}",
        "has(context)",
        "size('a', 'b')",
        "'a'.size",
        "context.notes.size().x",
        "if",
        "ctx(",
        "'ü' + $",
        "a.B{c: 1}",
        "context.?notes",
        "context.many.map(x, context.many)",
        "context.many.map(x, context.many.map(y, x))",
        "1 = 2",
        "timestamp('2020-01-01')",
    ];
    let report: Vec<String> = sources.iter().map(|source| format!("{source} ⇒ {}", failure(source))).collect();
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn guards_must_be_true_or_false() {
    let world = world();
    let holds = |source: &str| Expression::parse(source).unwrap().holds(&world.scope());
    assert_eq!(holds("context.rounds == 2"), Ok(true));
    assert_eq!(holds("context.rounds").unwrap_err().message, "a condition must be true or false, this is an int");
}

#[test]
fn references_name_the_longest_chains() {
    let source = r#"context.deep.a.b > 1 && input["test"] == "" && context.people.all(p, p.name != event.type) && has(event.x.y)"#;
    let expression = Expression::parse(source).unwrap();
    let found: Vec<String> =
        expression.references().iter().map(|r| format!("{}@{}", r.path.join("."), r.offset)).collect();
    let at = |text: &str| source.find(text).unwrap();
    let expected = [
        format!("context.deep.a.b@{}", at("context.deep")),
        format!("input.test@{}", at("input")),
        format!("context.people@{}", at("context.people")),
        format!("event.type@{}", at("event.type")),
        format!("event.x.y@{}", at("event.x.y")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_payload_is_read_beyond_the_type() {
    let reads = |source: &str| Expression::parse(source).unwrap().reads_payload();
    for source in [
        "event.summary == ''",
        "event == null",
        "event['x'] == 1",
        "has(event.x)",
        "[event].size() > 0",
        "event[context.notes] == 1",
    ] {
        assert!(reads(source), "{source}");
    }
    for source in
        ["event.type == 'a'", "event['type'] == 'a'", "context.event == 1", "[1].exists(event, event > 1)", "true"]
    {
        assert!(!reads(source), "{source}");
    }
}

#[test]
fn constants_are_folded() {
    let constant = |source: &str| Expression::parse(source).unwrap().constant().cloned();
    assert_eq!(constant("1 + 2 * 3"), Some(json!(7)));
    assert_eq!(constant("[1, 2].map(x, x + 1)"), Some(json!([2, 3])));
    assert_eq!(constant("context.rounds"), None);
    assert_eq!(constant("true || 1 / 0 == 1"), Some(json!(true)));
}

#[test]
fn bounds_hold() {
    let chain = vec!["1"; EXPRESSION_DEPTH_MAX / 2].join(" + ");
    assert!(Expression::parse(&chain).is_ok());
    for source in [
        vec!["context.rounds"; 200].join("+"),
        format!("context{}", ".a".repeat(2_000)),
        "1+".repeat(2_000) + "1",
        "-".repeat(4_000) + "1",
        "!".repeat(4_001) + "context.rounds",
        "true?1:".repeat(500) + "1",
        "(".repeat(1_000) + "1" + &")".repeat(1_000),
        "[".repeat(2_000),
        "a".repeat(EXPRESSION_BYTES_MAX + 1),
        "true&&".repeat(600) + "true",
        "1<".repeat(2_000) + "1",
        "context".to_owned() + &"[0]".repeat(1_300),
        "''.trim()".to_owned() + &".trim()".repeat(500),
    ] {
        // Any answer will do; what counts is that none overflows the stack of a small thread.
        let outcome = std::thread::spawn(move || Expression::parse(&source).map(|_| ())).join();
        assert!(outcome.is_ok());
    }
    let doubling = format!("{}{}{}", "[1,2,3,4,5,6,7,8].map(a, ".repeat(8), "context.rounds", ")".repeat(8));
    assert!(failure(&doubling).contains("more than 10000 steps"));
    let grown = "context.many.map(x, context.many.map(y, x)).size() > 0 || true";
    assert!(failure(grown).contains("steps"), "a bound is not hidden by `||`");
}

fn render(source: &str) -> Value {
    Template::parse(source).unwrap_or_else(|e| panic!("{source}: {e}")).render(&world().scope()).unwrap()
}

#[test]
fn templates_render() {
    for (source, expected) in [
        ("plain } text {", json!("plain } text {")),
        ("{{ context.rounds }}", json!(2)),
        ("{{context.list}}", json!([1, 2.5, "x", null])),
        (" {{ context.rounds }}", json!(" 2")),
        (
            "`{{ input.test }}` {{ context.ratio }} {{ true }} {{ context.nothing }}",
            json!("`cargo test` 0.5 true null"),
        ),
        ("a {{ context.deep }} b", json!(r#"a {"a":{"b":7}} b"#)),
        (r#"{{ {"a": {"b": 1}} }}"#, json!({"a": {"b": 1}})),
        (r#"{{{"a": 1}}}"#, json!({"a": 1})),
        (r#"{{ "}}" }}{{ '{{' }}"#, json!("}}{{")),
        (r#"{{ r"\" + "x" }}"#, json!("\\x")),
        (
            r#"x {{ context.notes == "" ? "" : "A reviewer asked: " + context.notes }}"#,
            json!("x A reviewer asked: böse"),
        ),
        ("ü{{ context.notes }}ü", json!("üböseü")),
        ("", json!("")),
    ] {
        assert_eq!(render(source), expected, "{source}");
    }
}

#[test]
fn templates_report_where() {
    let report = |source: &str| {
        let outcome = Template::parse(source).and_then(|template| template.render(&world().scope()));
        let error = outcome.expect_err(source);
        (error.offset, error.message)
    };
    assert_eq!(report("ab {{ context.rounds"), (Some(3), "`{{` is never closed by `}}`".to_owned()));
    assert_eq!(report("ab {{ }}"), (Some(3), "`{{ }}` holds no expression".to_owned()));
    assert_eq!(report("ü {{ nope }}").0, Some(6));
    assert_eq!(report("ü {{ context.nope }}").0, Some(13));
    assert_eq!(report(r#"{{ "}} "#), (Some(0), "`{{` is never closed by `}}`".to_owned()));
    let references = Template::parse("ü {{ context.a }} {{ event.b }}").unwrap().references();
    assert_eq!(references.iter().map(|r| r.offset).collect::<Vec<_>>(), [6, 22]);
}

#[test]
fn sources_evaluate_every_leaf() {
    let source = ValueSource::Object(vec![
        ("a".into(), ValueSource::Expression(Expression::parse("context.rounds + 1").unwrap())),
        ("b".into(), ValueSource::Array(vec![ValueSource::Template(Template::parse("n{{ event.summary }}").unwrap())])),
        ("c".into(), ValueSource::Literal(json!(null))),
    ]);
    assert_eq!(source.evaluate(&world().scope()).unwrap(), json!({"a": 3, "b": ["ndone"], "c": null}));
    assert!(source.reads_payload());
    assert_eq!(source.references().len(), 2);
}

#[test]
fn results_never_nest_deeper_than_a_reader_reads() {
    let mut world = world();
    let deeper = Expression::parse("[context.deep]").unwrap();
    let mut rounds = 0;
    while let Ok(value) = deeper.evaluate(&world.scope()) {
        world.context.insert("deep".to_owned(), value);
        rounds += 1;
        assert!(rounds < 200);
    }
    let text = serde_json::to_string(&world.context).unwrap();
    assert!(serde_json::from_str::<Value>(&text).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(source in "\\PC{0,40}") {
        if let Ok(expression) = Expression::parse(&source) {
            let _ = expression.evaluate(&world().scope());
        }
        if let Ok(template) = Template::parse(&source) {
            let _ = template.render(&world().scope());
        }
    }

    #[test]
    fn expression_like_text_never_panics_and_is_deterministic(
        pieces in proptest::collection::vec(prop_oneof![
            Just("context"), Just("."), Just("rounds"), Just("list"), Just("["), Just("]"), Just("("), Just(")"), Just("{"),
            Just("}"), Just("\""), Just("'"), Just("r'"), Just("\\"), Just("+"), Just("-"), Just("/"), Just("%"), Just("=="),
            Just("<"), Just("&&"), Just("||"), Just("!"), Just("?"), Just(":"), Just(","), Just("1"), Just("0x"), Just("1.5"),
            Just("1u"), Just("9223372036854775808"), Just("e9"), Just("null"), Just("true"), Just("in"), Just(" "), Just("map"),
            Just("has"), Just("x"), Just("size"), Just("event"), Just("`"), Just("\n"), Just("ü"), Just("{{"), Just("}}"), Just("//"),
        ], 0..14)
    ) {
        let source = pieces.concat();
        let once = Expression::parse(&source).and_then(|e| e.evaluate(&world().scope()));
        let again = Expression::parse(&source).and_then(|e| e.evaluate(&world().scope()));
        prop_assert_eq!(once, again);
        if let Ok(template) = Template::parse(&source) {
            let _ = template.render(&world().scope());
        }
    }

    #[test]
    fn a_template_without_braces_is_itself(text in "[^{]{0,200}") {
        prop_assert_eq!(Template::parse(&text).unwrap().render(&world().scope()).unwrap(), Value::String(text));
    }

    #[test]
    fn json_passes_through_unchanged(number in any::<i64>(), double in any::<f64>(), text in "\\PC{0,20}") {
        prop_assume!(double.is_finite());
        let mut world = world();
        world.context.insert("v".to_owned(), json!({"n": number, "d": double, "t": [text]}));
        let out = Expression::parse("context.v").unwrap().evaluate(&world.scope()).unwrap();
        prop_assert_eq!(&out, &world.context["v"]);
    }
}
