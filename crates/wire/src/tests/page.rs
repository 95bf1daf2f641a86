//! Tests that `docs/wire.md`, the description of the native protocol, agrees with the code.

use super::*;
use farpool_model::rights::{VERBS, Verb};
use std::collections::{BTreeMap, BTreeSet};

const DOC: &str = include_str!("../../../../docs/wire.md");

/// Returns the cells of the rows of the first table below a heading of the page.
fn doc_rows(heading: &str) -> Vec<Vec<String>> {
    let section = DOC.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with("| "));
    let rows = lines.take_while(|line| line.starts_with("| ")).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(|c| c.trim().replace('`', "")).collect()).collect()
}

#[test]
fn the_page_lists_every_kind_of_frame_and_error_with_its_number() {
    let listed: Vec<(String, String)> =
        doc_rows("## Frame kinds").into_iter().map(|r| (r[0].clone(), r[1].clone())).collect();
    let kinds: Vec<(String, String)> =
        FrameKind::ALL.iter().map(|k| (k.number().to_string(), k.name().to_string())).collect();
    assert_eq!(listed, kinds);
    let listed: Vec<(String, String)> =
        doc_rows("## Errors").into_iter().map(|r| (r[0].clone(), r[1].clone())).collect();
    let kinds: Vec<(String, String)> = ErrorKind::ALL
        .iter()
        .map(|kind| {
            let name = format!("{kind:?}");
            (response::error_number(*kind).to_string(), name)
        })
        .collect();
    assert_eq!(listed, kinds);
}

/// Returns the right that a request needs, in the words of the page.
fn role_told(verb: &NativeVerb) -> String {
    let (own, of_all) = (verb.takes.right(), verb.takes_of_all.map(Verb::right));
    match of_all.filter(|of_all| *of_all != own) {
        Some(of_all) => format!("{}, of other tenants {}", own.name(), of_all.name()),
        None => own.name().to_string(),
    }
}

/// By name of a request: the right that it needs, the client methods that send it, and the messages that answer it.
type Requests = BTreeMap<String, (String, BTreeSet<String>, BTreeSet<String>)>;

#[test]
fn the_page_says_what_each_request_takes_who_sends_it_and_what_answers_it() {
    // A request may have several rows in the table, which are merged.
    let mut listed = Requests::new();
    for row in doc_rows("## Streams") {
        let words = |cell: &str| -> BTreeSet<String> {
            cell.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').map(str::to_string).collect()
        };
        let kind = row[0].split([' ', ',']).next().unwrap().to_string();
        let (role, methods, answers) = listed.entry(kind).or_default();
        *role = row[1].clone();
        methods.extend(words(&row[2]).into_iter().filter(|word| word.contains("::")));
        let is_kind = |word: &String| FrameKind::ALL.iter().any(|kind| kind.name() == word);
        answers.extend(words(&row[3]).into_iter().filter(is_kind));
    }
    assert_eq!(listed.remove("Sealed").unwrap().0, "that of the request in it");
    let verbs = FrameKind::ALL.iter().filter_map(|kind| Some((kind.name().to_string(), kind.verb()?)));
    let verbs = verbs.map(|(name, verb)| {
        let methods = verb.clients.iter().map(|method| method.to_string()).collect();
        // `Credit` is left out, because the page describes it elsewhere.
        let answers =
            verb.answers.iter().chain(verb.later_answers).filter(|kind| **kind != FrameKind::Credit);
        (name, (role_told(verb), methods, answers.map(|kind| kind.name().to_string()).collect()))
    });
    assert_eq!(listed, verbs.collect::<Requests>());
}

#[test]
fn the_protocol_has_every_verb_of_a_node_but_those_of_keys() {
    let verbs = FrameKind::ALL.iter().filter_map(|kind| kind.verb());
    let taken: Vec<Verb> = verbs.flat_map(|verb| [Some(verb.takes), verb.takes_of_all]).flatten().collect();
    let missing = VERBS.map(|(verb, ..)| verb).into_iter().filter(|verb| !taken.contains(verb));
    assert_eq!(missing.collect::<Vec<_>>(), [Verb::ReadKeys, Verb::WriteKeys]);
}

#[test]
fn every_request_is_a_verb_or_wraps_one() {
    for kind in FrameKind::ALL {
        let is_one = kind.role() == Role::Request && *kind != FrameKind::Sealed;
        assert_eq!(kind.may_be_sealed(), is_one, "{kind:?}");
        assert_eq!(kind.verb().is_some(), is_one || *kind == FrameKind::LoadBegin, "{kind:?}");
    }
}

#[test]
fn the_page_lists_every_function() {
    let listed: Vec<(String, String)> =
        doc_rows("### Functions").into_iter().map(|r| (r[0].clone(), r[1].clone())).collect();
    assert_eq!(listed, substrait::function_names());
}

#[test]
fn the_page_has_the_limits_that_are_enforced() {
    for (name, bytes) in [
        ("payload of a frame", limits::FRAME_BYTES_MAX),
        ("a message", limits::MESSAGE_BYTES_MAX),
        ("a plan", limits::PLAN_BYTES_MAX),
        ("the window of a stream", limits::STREAM_WINDOW_BYTES),
        ("streams of a connection", limits::STREAMS_PER_CONNECTION_MAX),
        ("handles of a connection", limits::HANDLES_PER_CONNECTION_MAX),
        ("programs of all handles of a connection, in bytes", limits::HANDLE_BYTES_MAX),
        ("levels of an expression", limits::EXPR_DEPTH_MAX),
        ("expressions of a program, in bytes", limits::EXPR_BYTES_MAX),
        ("a pattern", limits::PATTERN_BYTES_MAX),
        ("compiled regular expressions of a program, in bytes", limits::PATTERNS_BYTES_MAX),
        ("values of an IN list", limits::IN_LIST_MAX),
        ("keys of a sort", limits::SORT_KEYS_MAX),
        ("relations of a plan, in all sides of its joins", limits::PLAN_RELATIONS_MAX),
        ("joins of a plan", limits::LOOKUPS_MAX),
        ("levels of joins on right sides", limits::LOOKUP_DEPTH_MAX),
        ("looked-up results of a program, in bytes", limits::LOOKUP_BYTES_MAX),
        ("bits of a key set or a filter of keys, in bytes", limits::KEY_SET_BYTES_MAX),
        ("the text of a view, in bytes", limits::VIEW_BYTES_MAX),
        ("views of a tenant", limits::VIEWS_PER_TENANT_MAX),
        ("schemas of a tenant, beside public", limits::SCHEMAS_PER_TENANT_MAX),
        ("columns", limits::COLUMNS_MAX),
        ("columns of moments", limits::MOMENT_COLUMNS_MAX),
        ("frequent values of a sketch", limits::SKETCH_TOP_MAX as usize),
    ] {
        let row = doc_rows("## Limits").into_iter().find(|r| r[0] == name);
        let row = row.unwrap_or_else(|| panic!("no limit of {name}"));
        assert_eq!(row[1].replace(' ', ""), bytes.to_string(), "{name}");
    }
}

/// Returns the hexadecimal dump of the page's worked example under `heading`.
fn doc_bytes(heading: &str) -> Vec<u8> {
    let section = DOC.split(&format!("\n### {heading}\n")).nth(1).unwrap_or_else(|| panic!("no {heading}"));
    let block = section.split("```").nth(1).unwrap();
    let hex = block.lines().skip(1).map(|line| line.split("  ").next().unwrap_or_default());
    let digits: String = hex.collect::<String>().split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

fn example_execute() -> Request {
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
    let literal = Literal::new(Value::Int(5), DataType::Int64).unwrap();
    let filter = Expr::compare(CompareOp::Gt, Expr::Column(0), Expr::Literal(literal));
    let program = Program { filter: Some(filter), ..Program::scan(name("t"), &schema, &[0]) };
    let plan = substrait::encode_program(&program, &schema).unwrap();
    Request::Execute { plan, schema: None, results: ResultForm::Plain }
}

#[test]
fn the_fingerprint_is_that_of_the_page() {
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
    let shown = format!("{:016x}", SchemaFingerprint::of(&schema).0);
    assert!(DOC.contains(&format!("nullable 64-bit integers is `{shown}`")), "{shown}");
}

#[test]
fn the_worked_examples_of_the_page_are_what_is_sent() {
    let hello = Request::Hello {
        version_min: 1,
        version_max: 1,
        token: None,
        timeout_ms: None,
        client: "example".into(),
    };
    let mut bytes = PREFACE.to_vec();
    bytes.extend(send(hello.encode().unwrap(), 0));
    assert_eq!(doc_bytes("A Hello"), bytes, "is\n{}", dump(&bytes));
    let bytes = send(example_execute().encode().unwrap(), 1);
    assert_eq!(doc_bytes("An Execute"), bytes, "is\n{}", dump(&bytes));
}

#[test]
fn the_exchange_at_the_head_of_the_page_has_what_a_client_sends() {
    let Request::Execute { plan, .. } = example_execute() else { panic!("it is another request") };
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
    let hello = Request::Hello {
        version_min: 1,
        version_max: 1,
        token: None,
        timeout_ms: None,
        client: "farpool 0.1.0".into(),
    };
    let table = Request::Table { name: name("t"), known: None, or_view: true };
    let prepare = Request::Prepare { plan, schema: Some(SchemaFingerprint::of(&schema)) };
    let execute = Request::ExecutePrepared { handle: 4, conditions: None, results: ResultForm::Auto };
    for (heading, preface, request, stream) in [
        ("Step 1: Hello", PREFACE.as_slice(), hello, 0),
        ("Step 2: Table", b"".as_slice(), table, 3),
        ("Step 3: Prepare", b"".as_slice(), prepare, 4),
        ("Step 4: Execute", b"".as_slice(), execute, 5),
        ("Step 5: Cancel", b"".as_slice(), Request::Cancel, 4),
    ] {
        let sent = send(request.encode().unwrap(), stream);
        let bytes = [preface, sent.as_slice()].concat();
        assert_eq!(doc_bytes(heading), bytes, "{heading} is\n{}", dump(&bytes));
    }
}

fn dump(bytes: &[u8]) -> String {
    let line =
        |line: &[u8]| line.iter().map(|b| format!("{b:02x} ")).collect::<String>().trim_end().to_string();
    bytes.chunks(16).map(|chunk| line(chunk) + "\n").collect()
}
