//! Tests of the native protocol's messages: encoding and decoding gives an equal message, and each side refuses
//! messages that only the other side may send.

mod frames;
mod page;

use super::*;
use crate::message::{Assembler, Message, Outgoing};
use arrow_array::{Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use farpool_model::status::TenantStatus;
use farpool_model::*;
use proptest::prelude::*;
use std::sync::Arc;

pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("d", DataType::Decimal128(38, 2), true),
        Field::new("s", DataType::Utf8View, true),
        Field::new("f", DataType::Float64, false),
    ]))
}

pub(crate) fn rows() -> RecordBatch {
    let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(vec![Some(1), None]))]).unwrap()
}

pub(crate) fn name(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

/// Assembles the messages of the frames in `bytes`, as a peer does with the bytes from a socket.
fn receive(bytes: &[u8]) -> Result<Vec<Message>> {
    let mut assembler = Assembler::new();
    let mut messages = Vec::new();
    let mut rest = bytes;
    while let Some((header, after)) = rest.split_first_chunk() {
        let header = FrameHeader::decode(header)?;
        let (payload, after) = after.split_at(header.length as usize);
        messages.extend(assembler.push(header, Bytes::copy_from_slice(payload))?);
        rest = after;
    }
    assert_eq!(assembler.incomplete_bytes(), 0);
    Ok(messages)
}

fn send(outgoing: Vec<Outgoing>, stream: u32) -> Vec<u8> {
    let announced: u64 = outgoing.iter().map(Outgoing::bytes_on_wire).sum();
    let bytes = outgoing.into_iter().flat_map(|message| message.frames(stream)).collect::<Vec<_>>().concat();
    assert_eq!(bytes.len() as u64, announced);
    bytes
}

/// Returns the stream for a kind of message: 0 for kinds that belong to the connection itself.
fn stream_for(kind: FrameKind) -> u32 {
    if kind.is_keepalive() { 0 } else { 7 }
}

pub(crate) fn view(text: &str) -> View {
    View::new(name("v"), text).unwrap()
}

/// Returns the examples of all kinds. Each kind that this side `sends` must have one; a `Sealed` contains another message
/// and has tests of its own.
fn examples_of_all<M>(examples: fn(FrameKind) -> Vec<M>, sends: fn(FrameKind) -> bool) -> Vec<M> {
    let of_kind = |kind: &FrameKind| {
        let examples = examples(*kind);
        assert_eq!(!examples.is_empty(), sends(*kind) && *kind != FrameKind::Sealed, "{kind:?}");
        examples
    };
    FrameKind::ALL.iter().flat_map(of_kind).collect()
}

#[test]
fn every_request_round_trips() {
    for request in examples_of_all(Request::examples, FrameKind::is_from_client) {
        let stream = stream_for(request.kind());
        let messages = receive(&send(request.encode().unwrap(), stream)).unwrap();
        assert_eq!(messages.len(), 1);
        assert_eq!((messages[0].kind, messages[0].stream), (request.kind(), stream));
        assert_eq!(Request::decode(&messages[0], Some(&rows().schema())).unwrap(), request);
        assert!(!format!("{request:?}").contains("secret"));
    }
}

#[test]
fn a_view_has_a_name_and_a_short_text_in_both_directions() {
    let text = |bytes: usize| "x".repeat(bytes);
    for (name, text, kind) in [
        ("v", text(limits::VIEW_BYTES_MAX + 1), ErrorKind::OverLimit),
        ("v", text(0), ErrorKind::Invalid),
        ("", text(1), ErrorKind::Invalid),
        ("\u{1b}", text(1), ErrorKind::Invalid),
    ] {
        let create = proto::CreateView { name: name.into(), text: text.clone(), replace: false };
        let body = request::body(&create);
        let message = Message { kind: FrameKind::CreateView, stream: 1, bytes_on_wire: 0, body };
        assert_eq!(Request::decode(&message, None).unwrap_err().kind, kind);
        let body = request::body(&proto::ViewInfo { name: name.into(), text });
        let message = Message { kind: FrameKind::ViewInfo, stream: 1, bytes_on_wire: 0, body };
        assert_eq!(Response::decode(&message, None).unwrap_err().kind, kind);
    }
}

#[test]
fn chunks_are_asked_for_in_order() {
    let most = limits::FETCHED_GROUPS_MAX as u32;
    let numbers = [
        (vec![], ErrorKind::Invalid),
        (vec![3, 3], ErrorKind::Invalid),
        (vec![5, 2], ErrorKind::Invalid),
        ((0..=most).collect(), ErrorKind::OverLimit),
    ];
    for (numbers, kind) in numbers {
        let outlines = Request::Outlines { handle: 1, columns: numbers.clone(), first: 0, known: 0 };
        let by_columns = Request::Fetch { handle: 1, columns: numbers.clone(), row_groups: vec![1] };
        let by_groups = Request::Fetch { handle: 1, columns: vec![1], row_groups: numbers.clone() };
        for request in [outlines, by_columns, by_groups] {
            assert_eq!(request.encode().unwrap_err().kind, kind);
        }
        let outlines = proto::OutlinesRequest { handle: 1, columns: numbers.clone(), first: 0, known: 0 };
        let by_columns = proto::Fetch { handle: 1, columns: numbers.clone(), row_groups: vec![1] };
        let by_groups = proto::Fetch { handle: 1, columns: vec![1], row_groups: numbers };
        for (kind_of_frame, body) in [
            (FrameKind::Outlines, request::body(&outlines)),
            (FrameKind::Fetch, request::body(&by_columns)),
            (FrameKind::Fetch, request::body(&by_groups)),
        ] {
            let message = Message { kind: kind_of_frame, stream: 1, bytes_on_wire: 0, body };
            assert_eq!(Request::decode(&message, None).unwrap_err().kind, kind);
        }
    }
    for cut in 0..12 {
        let body = Bytes::from(vec![0xff; cut]);
        let message = Message { kind: FrameKind::Chunk, stream: 1, bytes_on_wire: 0, body };
        assert_eq!(Response::decode(&message, None).unwrap_err().kind, ErrorKind::Corrupt);
    }
}

#[test]
fn statistics_are_asked_of_columns_in_order() {
    let ask = |columns: Vec<u32>| Request::Statistics { table: name("t"), columns: Some(columns) };
    for (columns, kind) in [
        (vec![], ErrorKind::Invalid),
        (vec![3, 3], ErrorKind::Invalid),
        (vec![5, 2], ErrorKind::Invalid),
        (vec![1, limits::COLUMNS_MAX as u32], ErrorKind::OverLimit),
    ] {
        assert_eq!(ask(columns.clone()).encode().unwrap_err().kind, kind);
        let body = request::body(&proto::StatisticsRequest { name: "t".into(), columns: columns.clone() });
        let message = Message { kind: FrameKind::Statistics, stream: 1, bytes_on_wire: 0, body };
        let read = Request::decode(&message, None);
        match columns.is_empty() {
            // An empty list is what clients send that do not know the field `columns`.
            true => assert_eq!(read.unwrap(), Request::Statistics { table: name("t"), columns: None }),
            false => assert_eq!(read.unwrap_err().kind, kind),
        }
    }
}

pub(crate) fn table_info() -> TableInfo {
    let literal =
        |value, field: usize| Literal::new(value, schema().field(field).data_type().clone()).unwrap();
    let column = |min, max| ColumnStatistics {
        null_count: 3,
        min,
        max,
        distinct_count: Some(0),
        distinct_estimate: Some(7),
        bytes_encoded: 99,
        spread: None,
    };
    let spread = |value, field, bins: &[u64]| {
        Some(Arc::new(Spread {
            frequent: vec![(literal(value, field), 4)],
            bins: bins.to_vec(),
            low: -2.0,
            width: 0.5,
            quantiles: bins.iter().map(|bin| *bin as f64).take(1).collect(),
            quantile_error: 0.01,
        }))
    };
    TableInfo {
        name: name("t"),
        version: Version(u64::MAX),
        schema: schema(),
        rows: 10,
        bytes_plain: 20,
        bytes_encoded: 30,
        columns: vec![
            ColumnStatistics {
                spread: spread(Value::Int(5), 0, &[1, 0, u64::MAX]),
                ..column(Some(literal(Value::Int(i64::MIN.into()), 0)), Some(literal(Value::Int(5), 0)))
            },
            column(Some(literal(Value::Int(i128::MIN), 1)), Some(literal(Value::Int(-1), 1))),
            ColumnStatistics {
                spread: spread(Value::Text("z".into()), 2, &[]),
                ..column(None, Some(literal(Value::Text("zz".into()), 2)))
            },
            ColumnStatistics::default(),
        ],
        rows_profiled: Some(9),
        encryption: Some(Tier::Strict),
        bytes_resident: Some(5),
        is_pinned: true,
    }
}

pub(crate) fn statistics(columns: usize, of: &[u32]) -> TableStatistics {
    let state = |byte: u8| Some(Bytes::from(vec![byte; 3]));
    let mut states = vec![ColumnStates { sketch: state(1), histogram: state(2) }; columns];
    states[1] = ColumnStates::default();
    let moments = Some(MomentsState { columns: of.to_vec(), state: Bytes::from_static(b"m") });
    TableStatistics { table: table_info(), columns: states, moments }
}

#[test]
fn states_are_of_columns_that_the_table_has() {
    for (columns, of) in [(3, [0, 1]), (5, [0, 1]), (4, [0, 4])] {
        let response = Response::Statistics(Box::new(statistics(columns, &of)));
        let messages = receive(&send(response.encode().unwrap(), 9)).unwrap();
        assert_eq!(Response::decode(&messages[0], None).unwrap_err().kind, ErrorKind::Corrupt);
    }
}

#[test]
fn a_spread_is_small_and_of_its_column() {
    let sound = table_info().columns[0].spread.clone().unwrap();
    let text = (Literal::new(Value::Text("x".into()), schema().field(2).data_type().clone()).unwrap(), 1);
    let damaged = [
        Spread { bins: vec![1; limits::SPREAD_BINS_MAX + 1], ..Spread::clone(&sound) },
        Spread { frequent: vec![text], ..Spread::clone(&sound) },
        Spread { width: 0.0, ..Spread::clone(&sound) },
        Spread { low: f64::NAN, ..Spread::clone(&sound) },
        Spread { quantiles: vec![2.0, 1.0], ..Spread::clone(&sound) },
        Spread { quantiles: vec![f64::NAN], ..Spread::clone(&sound) },
        Spread { quantiles: vec![0.0; limits::SPREAD_QUANTILES_MAX + 1], ..Spread::clone(&sound) },
        Spread { quantile_error: 1.5, ..Spread::clone(&sound) },
    ];
    for spread in damaged {
        let mut info = table_info();
        info.columns[0].spread = Some(Arc::new(spread));
        let messages = receive(&send(Response::Table(info).encode().unwrap(), 9)).unwrap();
        assert!(Response::decode(&messages[0], None).is_err());
    }
}

#[test]
fn lists_of_a_node_have_limits() {
    let decode = |kind, body| Response::decode(&Message { kind, stream: 1, body, bytes_on_wire: 0 }, None);
    let answer = request::body(&proto::OperatorAnswer { answer: 1, ..Default::default() });
    let receipt = proto::Receipt { operators: vec![answer; limits::ANSWERS_MAX + 1], ..Default::default() };
    let error = decode(FrameKind::Receipt, request::body(&receipt)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    let tables = proto::TableList {
        tables: vec![Bytes::new(); limits::TABLES_PER_TENANT_MAX + 1],
        ..Default::default()
    };
    let error = decode(FrameKind::TableList, request::body(&tables)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    let views = vec!["v".into(); limits::VIEWS_PER_TENANT_MAX + 1];
    let views = proto::TableList { views, ..Default::default() };
    let error = decode(FrameKind::TableList, request::body(&views)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    let schemas = vec!["s".into(); limits::SCHEMAS_PER_TENANT_MAX + 1];
    let schemas = proto::TableList { schemas, ..Default::default() };
    let error = decode(FrameKind::TableList, request::body(&schemas)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
    let wide = Schema::new(vec![Field::new("", DataType::Boolean, true); limits::COLUMNS_MAX]);
    let wide = TableInfo {
        schema: Arc::new(wide),
        columns: vec![ColumnStatistics::default(); limits::COLUMNS_MAX],
        ..table_info()
    };
    let wide = request::body(&crate::table::write_table(&wide).unwrap());
    let count = limits::LISTED_COLUMNS_MAX / limits::COLUMNS_MAX + 1;
    let error = decode(
        FrameKind::TableList,
        request::body(&proto::TableList { tables: vec![wide; count], ..Default::default() }),
    );
    assert_eq!(error.unwrap_err().kind, ErrorKind::OverLimit);
}

/// Two lookups, one in the program of the other, over tables with other columns than the scanned one.
pub(crate) fn prepared_with_lookups() -> Prepared {
    let other = |columns: &[usize]| Arc::new(schema().project(columns).unwrap());
    let lookup = |table: &str, columns: &[usize], program: Option<Program>| Lookup {
        kind: LookupKind::Left,
        program: program
            .unwrap_or_else(|| Program::scan(TableName::parse(table).unwrap(), &other(columns), &[0])),
        table_schema: other(columns),
        given: None,
        keys: vec![LookupKey { row: 0, result: 0 }],
        residual: None,
        mark: "mark".to_string(),
    };
    let inner = Program::scan(name("u"), &other(&[0, 2]), &[0, 1]);
    let inner = Program { lookups: vec![lookup("s.v", &[0], None)], ..inner };
    let mut prepared = prepared();
    prepared.effective.lookups = vec![lookup("u", &[0, 2], Some(inner))];
    prepared.answers.insert(0, OperatorAnswer { operator: Operator::Lookup, ..prepared.answers[0].clone() });
    prepared
}

pub(crate) fn prepared() -> Prepared {
    let filter = Expr::compare(CompareOp::Lt, Expr::Column(0), Expr::Column(0));
    let effective = Program { filter: Some(filter), ..Program::scan(name("t"), &schema(), &[2]) };
    let answer = |answer, reason: Option<&str>| OperatorAnswer {
        operator: Operator::Filter,
        detail: "a < a".into(),
        answer,
        reason: reason.map(str::to_string),
    };
    Prepared {
        version: Version(3),
        answers: vec![
            answer(Answer::Exact, None),
            answer(Answer::Superset, Some("why")),
            answer(Answer::Refused, Some("")),
        ],
        schema: effective.result_schema(&schema()).unwrap(),
        effective,
    }
}

pub(crate) fn receipt() -> Receipt {
    Receipt {
        rows_scanned: 1,
        rows_skipped: 2,
        rows_returned: 3,
        rows_bypassed: 8,
        bytes_scanned: 4,
        bytes_skipped: 5,
        bytes_from_disk: 3,
        bytes_again: 1,
        bytes_from_cache: 7,
        bytes_shared: 2,
        rows_known: 11,
        bytes_on_wire: 6,
        bytes_saved: 0,
        cpu_ns: 7,
        elapsed_ns: u64::MAX,
        waited_ns: 9,
        bytes_plain: 8,
        encoding: Encoding::Mixed,
        encrypted: false,
        operators: prepared().answers,
        lookups: vec![LookupReceipt { table: "side".into(), rows: 3, bytes: 4, elapsed_ns: 5 }],
    }
}

pub(crate) fn status() -> Status {
    let tenant = TenantStatus {
        tenant: "x".into(),
        memory_bytes_used: 1,
        tables: 2,
        weight: 3,
        memory_bytes_limit: Some(4),
        work_bytes_limit: Some(5),
        programs_limit: Some(6),
        programs_waiting_limit: Some(0),
        result_bytes_limit: Some(7),
        connections_limit: None,
        ..Default::default()
    };
    Status {
        version: "0.1".into(),
        huge_pages: "none".into(),
        memory_bytes_limit: 5,
        tenants: vec![tenant],
        ..Default::default()
    }
}

pub(crate) fn queries() -> Vec<QueryInfo> {
    let query = |state| QueryInfo {
        id: u64::MAX,
        tenant: "ann".into(),
        token: String::new(),
        client: "farpool 1".into(),
        peer: "[::1]:5".into(),
        table: "t".into(),
        state,
        elapsed_ns: 1,
        cpu_ns: 2,
        rows: 3,
        bytes: 4,
    };
    QueryState::ALL.map(query).to_vec()
}

#[test]
fn every_response_round_trips() {
    for response in examples_of_all(Response::examples, FrameKind::is_from_node) {
        let stream = stream_for(response.kind());
        let messages = receive(&send(response.encode().unwrap(), stream)).unwrap();
        assert_eq!(Response::decode(&messages[0], Some(&rows().schema())).unwrap(), response);
    }
}

#[test]
fn long_bounds_of_strings_stay_at_home() {
    let mut table = table_info();
    let long = Literal::new(Value::Text("x".repeat(1 << 20)), DataType::Utf8View).unwrap();
    table.columns[2].min = Some(long);
    let messages = receive(&send(Response::Table(table).encode().unwrap(), 1)).unwrap();
    assert_eq!(Response::decode(&messages[0], None).unwrap(), {
        let mut table = table_info();
        table.columns[2].min = None;
        Response::Table(table)
    });
}

#[test]
fn an_endless_error_text_still_fits_its_frame() {
    let response = Response::Error(Error::invalid("ü".repeat(1 << 20)).advise("x".repeat(1 << 20)));
    let messages = receive(&send(response.encode().unwrap(), 1)).unwrap();
    let Response::Error(error) = Response::decode(&messages[0], None).unwrap() else { panic!() };
    assert!(error.message.starts_with("üü"));
}

#[test]
fn an_error_of_a_later_version_is_taken_for_a_defect_with_its_text_unchanged() {
    let later = proto::Error { kind: 77, message: "text".into(), ..proto::Error::default() };
    let body = prost::Message::encode_to_vec(&later).into();
    let message = Message { kind: FrameKind::Error, stream: 1, body, bytes_on_wire: 0 };
    assert_eq!(Response::decode(&message, None).unwrap(), Response::Error(Error::internal("text")));
}

#[test]
fn each_side_refuses_what_the_other_sends() {
    for kind in FrameKind::ALL {
        let message = Message { kind: *kind, stream: 1, body: Bytes::new(), bytes_on_wire: 0 };
        if !kind.is_from_client() {
            assert!(Request::decode(&message, None).is_err());
        }
        if !kind.is_from_node() {
            assert!(Response::decode(&message, None).is_err());
        }
    }
}

#[test]
fn rows_without_a_schema_are_refused() {
    let messages = receive(&send(Response::Batch(rows()).encode().unwrap(), 1)).unwrap();
    assert_eq!(Response::decode(&messages[0], None).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn a_batch_of_rows_without_columns_is_a_message_too() {
    let options = RecordBatchOptions::new().with_row_count(Some(9));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let messages = receive(&send(Response::Batch(batch.clone()).encode().unwrap(), 1)).unwrap();
    assert_eq!(Response::decode(&messages[0], Some(&batch.schema())).unwrap(), Response::Batch(batch));
}
