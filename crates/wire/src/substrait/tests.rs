//! Tests of Substrait plans: a program that is encoded as a plan and decoded again is the same, plans made by
//! DataFusion are decoded to the right programs, and hostile plans are rejected.

use super::proto::{self, RelType, RexType};
use super::*;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use farpool_model::{
    Aggregate, AggregateFunction, ArithmeticOp, CompareOp, DatePart, ErrorKind, Expr, KeyFilter, KeySet,
    Literal, NamedExpr, NullHandling, Output, Pattern, Program, SortKey, StateFunction, TableName, Value,
    Version, limits,
};
use proptest::prelude::*;
use prost::Message;
use std::sync::Arc;

mod joins;

/// Returns every type except timestamps in UTC, whose constants take the zone of the compared expression.
fn types() -> Vec<DataType> {
    let stamps = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond]
        .into_iter()
        .flat_map(|unit| [None, Some("Europe/Berlin")].map(|zone| (unit, zone)))
        .map(|(unit, zone)| DataType::Timestamp(unit, zone.map(Into::into)));
    [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(15, 2),
        DataType::Decimal128(38, 0),
        DataType::Decimal128(9, -3),
        DataType::Date32,
        DataType::Utf8View,
        DataType::BinaryView,
    ]
    .into_iter()
    .chain(stamps)
    .collect()
}

fn any_type() -> impl Strategy<Value = DataType> {
    proptest::sample::select(types())
}

fn any_literal() -> impl Strategy<Value = Literal> {
    any_literal_of(any_type())
}

fn any_literal_of(data_type: impl Strategy<Value = DataType>) -> impl Strategy<Value = Literal> {
    (data_type, any::<i128>(), any::<f64>(), ".{0,12}", any::<bool>(), 0..8).prop_map(
        |(data_type, int, float, text, bool, null)| {
            let value = match &data_type {
                _ if null == 0 => Value::Null,
                DataType::Boolean => Value::Bool(bool),
                DataType::Float32 => Value::Float((float as f32).into()),
                DataType::Float64 => Value::Float(float),
                DataType::Utf8View => Value::Text(text),
                DataType::BinaryView => Value::Bytes(text.into_bytes()),
                other => {
                    let (min, max) = farpool_model::literal::integer_range(other).unwrap();
                    let span = max.wrapping_sub(min).wrapping_add(1);
                    Value::Int(if span <= 0 { int } else { min + int.rem_euclid(span) })
                }
            };
            Literal::new(value, data_type).unwrap()
        },
    )
}

fn any_compare() -> impl Strategy<Value = CompareOp> {
    use CompareOp::*;
    proptest::sample::select(vec![Eq, NotEq, Lt, LtEq, Gt, GtEq])
}

fn any_arithmetic() -> impl Strategy<Value = ArithmeticOp> {
    use ArithmeticOp::*;
    proptest::sample::select(vec![Add, Subtract, Multiply, Divide, Modulo])
}

/// Generates expressions of any shape: they need not be well typed, since the node reports type errors.
fn any_expr(columns: usize) -> BoxedStrategy<Expr> {
    let leaf = prop_oneof![
        4 => (0..columns).prop_map(Expr::Column),
        3 => any_literal().prop_map(Expr::Literal),
        1 => ".{0,20}".prop_map(|reason| Expr::opaque(reason, Vec::new())),
    ];
    leaf.prop_recursive(6, 60, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let several = proptest::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            (any_compare(), boxed.clone(), boxed.clone()).prop_map(|(op, l, r)| Expr::Compare(op, l, r)),
            (".{0,20}", several.clone()).prop_map(|(reason, inputs)| Expr::opaque(reason, inputs)),
            several.clone().prop_map(Expr::And),
            several.prop_map(Expr::Or),
            boxed.clone().prop_map(Expr::Not),
            boxed.clone().prop_map(Expr::IsNull),
            (boxed.clone(), proptest::collection::vec(any_literal(), 0..5))
                .prop_map(|(value, list)| Expr::InList(value, list)),
            (boxed.clone(), any::<i64>(), proptest::collection::vec(0i64..1000, 1..9)).prop_map(
                |(value, first, above)| {
                    let keys: Vec<i64> = above.iter().map(|v| first.saturating_add(*v)).collect();
                    Expr::InSet(value, KeySet::new(&keys).unwrap())
                }
            ),
            (proptest::collection::vec(inner.clone(), 1..4), proptest::collection::vec(any::<u64>(), 1..99))
                .prop_map(|(values, hashes)| Expr::InFilter(values, KeyFilter::new(hashes, 16).unwrap())),
            (boxed.clone(), ".{0,9}", any::<bool>()).prop_map(|(value, pattern, case_insensitive)| {
                Expr::Like { value, pattern, case_insensitive }
            }),
            (boxed.clone(), "[a-c(.|+]{0,5}", any::<bool>()).prop_map(
                |(value, pattern, case_insensitive)| {
                    match Pattern::new(&pattern, case_insensitive) {
                        Ok(pattern) => Expr::Regex { value, pattern },
                        Err(_) => Expr::Not(value),
                    }
                }
            ),
            (any_arithmetic(), boxed.clone(), boxed.clone())
                .prop_map(|(op, l, r)| Expr::Arithmetic(op, l, r)),
            boxed.clone().prop_map(Expr::Negate),
            (boxed.clone(), any_type()).prop_map(|(value, to)| Expr::Cast(value, to)),
            (proptest::sample::select(DatePart::all().collect::<Vec<_>>()), boxed.clone())
                .prop_map(|(part, value)| Expr::Extract(part, value)),
            (proptest::collection::vec((inner.clone(), inner), 1..3), proptest::option::of(boxed))
                .prop_map(|(branches, otherwise)| Expr::Case { branches, otherwise }),
        ]
    })
    .boxed()
}

fn any_aggregate(columns: usize) -> impl Strategy<Value = Aggregate> {
    let sketch = |text: &str| AggregateFunction::from(StateFunction::Sketch(text.parse().unwrap()));
    let sketches = [sketch(""), sketch("distinct=14"), sketch("frequency=6x13 second_moment=6x13 top=64")];
    let listwise = [StateFunction::Moments(NullHandling::Listwise).into()];
    let functions = AggregateFunction::NAMED.iter().copied().chain(sketches).chain(listwise);
    let function = proptest::sample::select(functions.collect::<Vec<_>>());
    (".{0,9}", function, 0..columns, proptest::option::of(any_expr(columns))).prop_map(
        |(name, function, column, filter)| {
            let of = types()[column % types().len()].clone();
            let candidates =
                [of.clone(), DataType::Int64, DataType::UInt64, DataType::Float64, DataType::BinaryView];
            let of = vec![of; if function.takes(2) { 1 + name.len() } else { 1 }];
            let data_type = candidates.into_iter().find(|t| function.accepts(&of, t));
            match data_type {
                Some(data_type) => {
                    let arguments = vec![Expr::Column(column); of.len()];
                    Aggregate { name, function, arguments, filter, data_type }
                }
                None => Aggregate {
                    name,
                    function: AggregateFunction::Count,
                    arguments: Vec::new(),
                    filter,
                    data_type: DataType::Int64,
                },
            }
        },
    )
}

/// Generates a program over a table that has one column of every type, so that each aggregate finds an argument of a
/// suitable type.
fn any_program() -> impl Strategy<Value = (Program, SchemaRef)> {
    (0..types().len()).prop_flat_map(|extra| {
        let types = types();
        let width = types.len() + extra;
        let fields =
            (0..width).map(|i| Field::new(format!("c{i}"), types[i % types.len()].clone(), i % 3 > 0));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let named = (".{0,9}", any_expr(width)).prop_map(|(name, expr)| NamedExpr { name, expr });
        let output = prop_oneof![
            proptest::collection::vec(named.clone(), 0..5).prop_map(Output::Rows),
            (proptest::collection::vec(named, 0..3), proptest::collection::vec(any_aggregate(width), 0..4))
                .prop_map(|(keys, aggregates)| Output::Aggregate { keys, aggregates }),
        ];
        let filter = proptest::option::of(any_expr(width));
        let version = proptest::option::of(any::<u64>().prop_map(Version));
        let limit = proptest::option::of(0..=i64::MAX as u64);
        let key = (any::<proptest::sample::Index>(), any::<bool>(), any::<bool>());
        let order = proptest::collection::vec(key, 0..3);
        (version, filter, output, limit, order).prop_map(move |(version, filter, output, limit, order)| {
            let table = TableName::new("a table").unwrap();
            let width = match &output {
                Output::Rows(columns) => columns.len(),
                Output::Aggregate { keys, aggregates } => keys.len() + aggregates.len(),
            };
            let order = if limit.is_some() && width > 0 { order } else { Vec::new() };
            let key = |(index, descending, nulls_first): (proptest::sample::Index, bool, bool)| SortKey {
                column: index.index(width),
                descending,
                nulls_first,
            };
            let has_last = order.len() % 2 == 1;
            let order = order.into_iter().map(key).collect();
            let program =
                Program { table, version, lookups: Vec::new(), filter, output, having: None, order, limit };
            // Groups have columns, whose types are those of a program without errors.
            let is_grouped = matches!(program.output, Output::Aggregate { .. });
            let has_types = is_grouped && program.result_schema(&schema).is_ok();
            let last = || Expr::not(Expr::IsNull(Box::new(Expr::Column(width - 1))));
            let having = (has_last && has_types).then(last);
            (Program { having, ..program }, Arc::clone(&schema))
        })
    })
}

fn round_trip(program: &Program, schema: &SchemaRef) -> Program {
    let plan = encode_program(program, schema).unwrap();
    decode_program(&plan, &|_| Ok(Arc::clone(schema))).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_program_round_trips((program, schema) in any_program()) {
        // Compared as text, because a NaN constant is not equal to itself.
        prop_assert_eq!(format!("{:?}", round_trip(&program, &schema)), format!("{program:?}"));
    }

    #[test]
    fn every_literal_round_trips(
        literal in any_literal_of(prop_oneof![
            any_type(),
            Just(DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
        ]),
    ) {
        let names = [(types::ZONED_ANCHOR, types::ZONED_TYPE.to_string())].into();
        let written = types::write_literal(&literal).unwrap();
        let read = types::read_literal(&written, &names).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{:?}", Some(literal)));
    }
}

#[test]
fn conditions_on_groups_round_trip_beside_what_is_opaque() {
    let schema = small_schema();
    let null = |column| Expr::IsNull(Box::new(Expr::Column(column)));
    let groups = |key| Output::Aggregate {
        keys: vec![NamedExpr { name: "key".into(), expr: key }],
        aggregates: Vec::new(),
    };
    let scan = Program::scan(TableName::new("t").unwrap(), &schema, &[]);
    let known = Program { output: groups(Expr::Column(0)), having: Some(null(0)), ..scan };
    let strange = Expr::opaque("strange", vec![Expr::Column(0)]);
    let filtered = Program { filter: Some(strange.clone()), ..known.clone() };
    assert_eq!(round_trip(&filtered, &schema).having, known.having);
    let unknown = round_trip(&Program { output: groups(strange), ..known }, &schema);
    assert!(unknown.having.unwrap().opaque_reason().is_some());
}

fn small_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Int64, true),
        Field::new("s", DataType::Utf8View, true),
    ]))
}

fn scan(filter: Expr) -> Program {
    let table = TableName::new("t").unwrap();
    Program { filter: Some(filter), ..Program::scan(table, &small_schema(), &[0]) }
}

#[test]
fn the_deepest_program_that_is_allowed_travels_and_a_deeper_one_does_not() {
    let nested = |levels| (0..levels).fold(Expr::Column(0), |e, _| Expr::not(e));
    let program = scan(nested(limits::EXPR_DEPTH_MAX));
    assert_eq!(round_trip(&program, &small_schema()), program);
    let error = encode_program(&scan(nested(limits::EXPR_DEPTH_MAX + 1)), &small_schema()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit);
}

fn decode(plan: &proto::Plan) -> Result<Program> {
    decode_program(&plan.encode_to_vec(), &|_| Ok(small_schema()))
}

fn expression(rex: RexType) -> Bytes {
    proto::Expression { rex_type: Some(rex) }.encode_to_vec().into()
}

fn relation(relation: RelType) -> Bytes {
    proto::Rel { rel_type: Some(relation) }.encode_to_vec().into()
}

fn field(index: i32) -> Bytes {
    let field = proto::StructItem { field: index, child: None };
    let segment = proto::ReferenceSegment { reference_type: Some(proto::SegmentType::StructField(field)) };
    let reference_type = Some(proto::ReferenceType::DirectReference(segment));
    expression(RexType::Selection(proto::FieldReference { reference_type, root_type: None }))
}

fn call(function_reference: u32, arguments: &[Bytes]) -> Bytes {
    let argument = |value: &Bytes| {
        let arg_type = Some(proto::ArgType::Value(value.clone()));
        proto::FunctionArgument { arg_type }.encode_to_vec().into()
    };
    expression(RexType::ScalarFunction(proto::ScalarFunction {
        function_reference,
        arguments: arguments.iter().map(argument).collect(),
        ..Default::default()
    }))
}

fn table() -> Bytes {
    let named = proto::NamedTable { names: vec!["t".into()], advanced_extension: None };
    relation(RelType::Read(proto::ReadRel {
        read_type: Some(proto::ReadType::NamedTable(named)),
        ..Default::default()
    }))
}

fn plan(input: Bytes, functions: &[(&str, &str)]) -> proto::Plan {
    let rel = proto::PlanRel { rel_type: Some(proto::PlanRelType::Rel(input)) };
    let declaration = |(anchor, (_, name)): (u32, &(&str, &str))| {
        let function =
            proto::Declared { uri_reference: anchor, anchor, name: name.to_string(), urn_reference: 0 };
        let mapping_type = Some(proto::MappingType::Function(function));
        proto::SimpleExtensionDeclaration { mapping_type }.encode_to_vec().into()
    };
    proto::Plan {
        relations: vec![rel.encode_to_vec().into()],
        extensions: (1..).zip(functions).map(declaration).collect(),
        extension_uris: (1..)
            .zip(functions)
            .map(|(anchor, (urn, _))| proto::Urn { anchor, urn: urn.to_string() })
            .collect(),
        ..Default::default()
    }
}

fn filter(condition: Bytes, input: Bytes) -> Bytes {
    relation(RelType::Filter(proto::FilterRel { input, condition, ..Default::default() }))
}

fn project(expressions: Vec<Bytes>, mapping: Option<Vec<i32>>, input: Bytes) -> Bytes {
    let emit = mapping.map(|output_mapping| proto::Emit { output_mapping });
    let common = Some(proto::RelCommon { emit, ..Default::default() });
    relation(RelType::Project(proto::ProjectRel { common, input, expressions, advanced_extension: None }))
}

#[test]
fn projections_and_filters_above_one_another_become_one_program() {
    // SELECT x + b FROM (SELECT a + a AS x, b FROM t WHERE a = b) WHERE x = b
    let functions = [
        (
            "https://github.com/substrait-io/substrait/blob/main/extensions/functions_comparison.yaml",
            "EQUAL:any_any",
        ),
        ("", "add:i64_i64"),
    ];
    let inner = filter(call(1, &[field(0), field(1)]), table());
    let middle = project(vec![call(2, &[field(0), field(0)])], Some(vec![3, 1]), inner);
    let upper = filter(call(1, &[field(0), field(1)]), middle);
    let top = project(vec![call(2, &[field(0), field(1)])], Some(vec![2]), upper);
    let program = decode(&plan(top, &functions)).unwrap();
    let x = || Expr::arithmetic(ArithmeticOp::Add, Expr::Column(0), Expr::Column(0));
    let equal = |left| Expr::compare(CompareOp::Eq, left, Expr::Column(1));
    assert_eq!(program.filter, Some(Expr::And(vec![equal(Expr::Column(0)), equal(x())])));
    let sum = Expr::arithmetic(ArithmeticOp::Add, x(), Expr::Column(1));
    assert_eq!(program.output, Output::Rows(vec![NamedExpr { name: "column_0".into(), expr: sum }]));
}

#[test]
fn a_function_of_a_foreign_extension_is_opaque_and_the_rest_is_not() {
    let functions = [("extension:org.example:strange", "equal"), ("", "and"), ("", "is_null")];
    let condition = call(2, &[call(1, &[field(0), field(1)]), call(3, &[field(0)])]);
    let program = decode(&plan(filter(condition, table()), &functions)).unwrap();
    let Some(Expr::And(parts)) = program.filter else { panic!("no conjunction") };
    let reads = vec![Expr::Column(0), Expr::Column(1)];
    assert_eq!(parts[0], Expr::opaque("function equal of extension:org.example:strange", reads));
    assert_eq!(parts[1], Expr::IsNull(Box::new(Expr::Column(0))));
}

#[test]
fn relations_without_a_meaning_here_are_named() {
    let cases = [
        (RelType::HashJoin(Bytes::new()), "a join"),
        (RelType::Cross(Bytes::new()), "a cross product"),
        (RelType::Window(Bytes::new()), "window functions"),
        (RelType::Set(Bytes::new()), "a set operation"),
        (RelType::Write(Bytes::new()), "a change of data"),
    ];
    for (rel, what) in cases {
        let error = decode(&plan(relation(rel), &[])).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(what), "{error}");
    }
    let limited =
        relation(RelType::Fetch(proto::FetchRel { input: table(), offset: Some(3), ..Default::default() }));
    assert!(decode(&plan(limited, &[])).unwrap_err().message.contains("offset"));
}

fn sort(place: i32, direction: i32, input: Bytes) -> Bytes {
    let sort_kind = Some(proto::SortKind::Direction(direction));
    let sorts = vec![proto::SortField { expr: field(place), sort_kind }.encode_to_vec().into()];
    relation(RelType::Sort(proto::SortRel { input, sorts, ..Default::default() }))
}

fn fetch(count: i64, input: Bytes) -> Bytes {
    relation(RelType::Fetch(proto::FetchRel { input, count: Some(count), ..Default::default() }))
}

#[test]
fn a_sort_names_columns_of_the_result_wherever_it_stands() {
    // SELECT b, a FROM t ORDER BY a DESC NULLS FIRST LIMIT 3, with the projection last.
    let sorted = project(vec![field(1), field(0)], Some(vec![3, 4]), fetch(3, sort(0, 3, table())));
    let program = decode(&plan(sorted, &[])).unwrap();
    assert_eq!(program.order, [SortKey { column: 1, descending: true, nulls_first: true }]);
    assert_eq!(program.limit, Some(3));
}

#[test]
fn sorts_without_a_meaning_here_say_why() {
    let cases = [
        (sort(0, 1, table()), "a sort without a limit"),
        (fetch(1, sort(0, 5, table())), "without a direction"),
        (sort(0, 1, fetch(1, table())), "after a limit"),
        (fetch(1, sort(0, 1, sort(1, 1, table()))), "after another"),
        (filter(field(0), fetch(1, sort(0, 1, table()))), "a filter after a sort"),
        (project(vec![field(1)], Some(vec![3]), fetch(1, sort(0, 1, table()))), "leaving out a column"),
        (
            fetch(1, relation(RelType::Sort(proto::SortRel { input: table(), ..Default::default() }))),
            "1 to 64 keys",
        ),
    ];
    for (relation, what) in cases {
        let error = decode(&plan(relation, &[])).unwrap_err();
        assert!(error.message.contains(what), "{what}: {error}");
    }
}

#[test]
fn projections_that_double_one_another_are_refused_before_they_grow() {
    let mut input = table();
    for _ in 0..60 {
        input = project(vec![call(1, &[field(0), field(0)])], Some(vec![3, 1, 2]), input);
    }
    let error = decode(&plan(input, &[("", "add")])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit, "{error}");
}

fn constant(value: Value, data_type: DataType) -> Bytes {
    let literal = Literal::new(value, data_type).unwrap();
    expression(RexType::Literal(super::types::write_literal(&literal).unwrap()))
}

fn text(text: &str) -> Bytes {
    constant(Value::Text(text.into()), DataType::Utf8View)
}

#[test]
fn a_long_constant_counts_each_time_that_it_is_referred_to() {
    let once = project(vec![text(&"x".repeat(1 << 20))], None, table());
    assert!(decode(&plan(once.clone(), &[])).is_ok());
    let often = project(vec![field(3); 100], None, once.clone());
    assert_eq!(decode(&plan(often, &[])).unwrap_err().kind, ErrorKind::OverLimit);
    let moved = project(Vec::new(), Some(vec![3; 100]), once);
    assert_eq!(decode(&plan(moved, &[])).unwrap_err().kind, ErrorKind::OverLimit);
}

#[test]
fn a_set_of_keys_counts_each_time_that_it_is_referred_to() {
    let keys = KeySet::new(&[0, 8_000_000]).unwrap();
    let keys = constant(Value::Bytes(keys.to_bytes()), DataType::BinaryView);
    let once = project(vec![call(1, &[field(0), keys])], None, table());
    let functions = &[(functions::FARPOOL, "in_set")];
    assert!(decode(&plan(once.clone(), functions)).is_ok());
    let often = project(vec![field(3); 100], None, once);
    assert_eq!(decode(&plan(often, functions)).unwrap_err().kind, ErrorKind::OverLimit);
}

#[test]
fn names_that_are_quoted_for_each_use_are_short() {
    let long = "f".repeat(limits::NAME_BYTES_MAX + 1);
    for declared in [("", long.as_str()), (&long, "not")] {
        let error = decode(&plan(filter(call(1, &[field(0)]), table()), &[declared])).unwrap_err();
        assert_eq!(error.kind, ErrorKind::OverLimit, "{error}");
    }
    let many = vec![("", "not"); 2000];
    assert_eq!(decode(&plan(table(), &many)).unwrap_err().kind, ErrorKind::OverLimit);
}

#[test]
fn patterns_are_compiled_once_and_are_bounded_together() {
    let functions = &[(functions::FARPOOL, "regexp_is_match")];
    let compiled = |patterns: &[String]| {
        let matches = patterns.iter().map(|pattern| call(1, &[field(2), text(pattern)])).collect();
        let places = (3..3 + patterns.len() as i32).collect();
        let program = decode(&plan(project(matches, Some(places), table()), functions)).unwrap();
        let Output::Rows(columns) = program.output else { panic!("rows") };
        let pattern = |column: &NamedExpr| column.expr.pattern().map(Pattern::bytes);
        columns.iter().filter_map(pattern).collect::<Vec<usize>>()
    };
    let same = compiled(&vec!["a+b".to_string(); 1000]);
    assert_eq!(same.len(), 1000);
    let large: Vec<String> = (0..200).map(|i| format!(r"\w{{30}}{i}")).collect();
    let done = compiled(&large);
    assert!(!done.is_empty() && done.len() < large.len(), "{}", done.len());
    assert!(done.iter().sum::<usize>() <= limits::PATTERNS_BYTES_MAX);
    let broken: Vec<String> = (0..200).map(|i| format!(r"{}\p{{x{i}}}", r"\w".repeat(1000))).collect();
    assert!(compiled(&[broken, vec!["a".to_string()]].concat()).is_empty(), "parsing is counted too");
}

#[test]
fn nesting_is_counted_before_it_is_followed() {
    let mut deep = field(0);
    for _ in 0..2_000 {
        deep = call(1, &[deep]);
    }
    let error = decode(&plan(filter(deep, table()), &[("", "not")])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit, "{error}");
    let mut input = table();
    for _ in 0..2_000 {
        input = filter(field(0), input);
    }
    let error = decode(&plan(input, &[])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OverLimit, "{error}");
}

#[test]
fn what_a_plan_takes_is_told_before_it_is_taken() {
    let list = (0..1000).map(|value| Literal::new(Value::Int(value), DataType::Int64).unwrap());
    let list = Expr::InList(Box::new(Expr::Column(0)), list.collect());
    let regex = |text: &str| {
        let pattern = farpool_model::Pattern::new(text, false).unwrap();
        Expr::Regex { value: Box::new(Expr::Column(2)), pattern }
    };
    let schema_of = |_: &TableName| Ok(small_schema());
    for filter in [list, regex("a.*b[0-9]{3}"), Expr::IsNull(Box::new(Expr::Column(1)))] {
        let program = scan(filter);
        let plan = encode_program(&program, &small_schema()).unwrap();
        let told = std::cell::RefCell::new(Vec::new());
        let decode = |limit: usize| {
            decode_program_within(&plan, &schema_of, &|bytes| {
                told.borrow_mut().push(bytes);
                if bytes <= limit { Ok(()) } else { Err(Error::over_limit("no more")) }
            })
        };
        let decoded = decode(usize::MAX).unwrap();
        let most = told.borrow().iter().copied().max().unwrap();
        assert!(most >= 2 * decoded.check_size().unwrap() + plan.len(), "{most}");
        // With a lower limit, decoding stops at the first step that would exceed the limit.
        told.take();
        assert_eq!(decode(most - 1).unwrap_err().message, "no more");
        assert_eq!(told.borrow().iter().filter(|bytes| **bytes >= most).count(), 1);
        told.take();
        assert!(decode(0).is_err() && told.borrow().len() == 1);
    }
}

#[test]
fn a_plan_that_does_not_fit_the_table_says_where() {
    let program = scan(Expr::IsNull(Box::new(Expr::Column(2))));
    let plan = encode_program(&program, &small_schema()).unwrap();
    let decode_over =
        |fields: Vec<Field>| decode_program(&plan, &|_| Ok(Arc::new(Schema::new(fields.clone()))));
    let renamed = vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)];
    assert!(decode_over(renamed).unwrap_err().message.contains("\"s\""));
    let retyped =
        small_schema().fields().iter().map(|f| Field::new(f.name(), DataType::Int64, true)).collect();
    assert!(decode_over(retyped).unwrap_err().message.contains("Utf8View"));
    // A table with the same columns in another order is accepted, because columns are matched by name.
    let turned: Vec<Field> = small_schema().fields().iter().rev().map(|f| f.as_ref().clone()).collect();
    assert_eq!(decode_over(turned).unwrap().filter, Some(Expr::IsNull(Box::new(Expr::Column(0)))));
}

#[test]
fn options_that_ask_for_something_else_are_refused() {
    let option = |name: &str, preference: &[&str]| proto::FunctionOption {
        name: name.into(),
        preference: preference.iter().map(|p| p.to_string()).collect(),
    };
    assert!(functions::refused_option(&[option("overflow", &["SATURATE", "SILENT"])]).is_some());
    assert!(functions::refused_option(&[option("overflow", &["ERROR", "SILENT"])]).is_none());
    assert!(functions::refused_option(&[option("unheard_of", &["X"])]).is_some());
    assert!(functions::wants_case_insensitive(&[option("case_sensitivity", &["CASE_INSENSITIVE"])]));
    assert!(!functions::wants_case_insensitive(&[option(
        "case_sensitivity",
        &["CASE_SENSITIVE", "CASE_INSENSITIVE"]
    )]));
}

/// Returns the schema of the table that the stored plans of DataFusion read.
fn items() -> SchemaRef {
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("small", DataType::Int32, true),
        Field::new("u", DataType::UInt32, true),
        Field::new("price", DataType::Decimal128(15, 2), true),
        Field::new("ship", DataType::Date32, true),
        Field::new("at", micros(None), true),
        // In the table this column has another time zone; Substrait's own types know only UTC.
        Field::new("zoned", micros(Some("Europe/Berlin")), true),
        Field::new("name", DataType::Utf8View, true),
        Field::new("score", DataType::Float64, true),
        Field::new("ok", DataType::Boolean, true),
    ]))
}

/// Formats a program over a table with these columns, as its lookups are, as text.
fn shown(program: &Program, table_schema: &SchemaRef) -> String {
    let mut text = String::new();
    for lookup in &program.lookups {
        let keys: Vec<String> =
            lookup.keys.iter().map(|key| format!("{} = {}", key.row, key.result)).collect();
        let (side, keys) = (shown(&lookup.program, table_schema), keys.join(", "));
        text += &format!("{} join ({side}) by {keys} ", lookup.kind.name());
    }
    let schema = &*program.joined_schema(table_schema).unwrap();
    if let Some(filter) = &program.filter {
        text += &format!("where {} ", filter.display(schema));
    }
    let named = |n: &NamedExpr| format!("{} as {}", n.expr.display(schema), n.name);
    match &program.output {
        Output::Rows(columns) => {
            text += &format!("rows {}", columns.iter().map(named).collect::<Vec<_>>().join(", "));
        }
        Output::Aggregate { keys, aggregates } => {
            let aggregate = |a: &Aggregate| {
                let (of, filter) = (Aggregate { filter: None, ..a.clone() }, a.filter.as_ref());
                let filter = filter.map(|e| format!(" filter {}", e.display(schema))).unwrap_or_default();
                format!("{}{filter}: {} as {}", of.display(schema), a.data_type, a.name)
            };
            let keys = keys.iter().map(named).collect::<Vec<_>>().join(", ");
            let aggregates = aggregates.iter().map(aggregate).collect::<Vec<_>>().join(", ");
            text += &format!("group by {keys} give {aggregates}");
        }
    }
    if let Some(having) = &program.having {
        text += &format!(" having {}", program.output.shown(having, schema));
    }
    if !program.order.is_empty() {
        let keys: Vec<String> =
            program.order.iter().map(|key| key.display(&format!("{}", key.column))).collect();
        text += &format!(" order {}", keys.join(", "));
    }
    if let Some(limit) = program.limit {
        text += &format!(" limit {limit}");
    }
    text.trim_end().to_string()
}

/// Decodes plans that DataFusion 55.0 has serialised. Each case has the query, the expected program, and the bytes.
#[test]
fn plans_of_datafusion_are_understood() {
    let cases = include_str!("../../testdata/datafusion_plans.txt");
    let mut wrong = Vec::new();
    for case in cases.split("\n\n") {
        let lines: Vec<&str> = case.lines().collect();
        let [sql, expected, hex] = lines.as_slice() else { panic!("a case has three lines: {case}") };
        let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        let plan: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let got = match decode_program(&plan, &|_| Ok(items())) {
            Ok(program) => {
                let row = program.joined_schema(&items()).unwrap();
                let checked = program.result_schema(&row);
                let opaque = program.expressions().into_iter().any(|e| e.opaque_reason().is_some());
                assert!(opaque || checked.is_ok(), "{sql}: {checked:?}");
                format!("= {}", shown(&program, &items()))
            }
            Err(error) => format!("! {}", error.message),
        };
        if got != *expected {
            wrong.push(format!("{sql}\n  {got}\n  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn damaged_plans_never_panic() {
    let filter = Expr::And(vec![
        Expr::compare(CompareOp::Lt, Expr::Column(0), Expr::Column(1)),
        Expr::Like { value: Box::new(Expr::Column(2)), pattern: "%a".into(), case_insensitive: true },
    ]);
    let order = vec![SortKey { column: 0, descending: true, nulls_first: false }];
    let program = Program { version: Some(Version(7)), order, limit: Some(3), ..scan(filter) };
    let plan = encode_program(&program, &small_schema()).unwrap();
    for at in 0..plan.len() {
        let _ = decode_program(&plan[..at], &|_| Ok(small_schema()));
        for flip in [0x01, 0x02, 0x08, 0x80, 0xff] {
            let mut damaged = plan.clone();
            damaged[at] ^= flip;
            let _ = decode_program(&damaged, &|_| Ok(small_schema()));
        }
    }
}
