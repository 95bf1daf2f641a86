//! Generates seeds (initial inputs) of plans, programs and messages for the fuzz corpora.

use super::*;
use arrow_schema::{Field, Schema, SchemaRef};

pub fn programs() -> Vec<Program> {
    let schema = plan::table_schema();
    let table = || TableName::new("items").unwrap();
    let literal = |value, data_type| Expr::Literal(Literal::new(value, data_type).unwrap());
    let int = |v: i128| literal(Value::Int(v), DataType::Int64);
    let pattern = Pattern::new("^a+(b|c)", true).unwrap();
    let regex = Expr::Regex { value: Box::new(Expr::Column(7)), pattern };
    let like =
        Expr::Like { value: Box::new(Expr::Column(7)), pattern: "%a\\_b%".into(), case_insensitive: true };
    let case = Expr::Case {
        branches: vec![(Expr::Column(9), Expr::Negate(Box::new(Expr::Column(8))))],
        otherwise: Some(Box::new(Expr::Cast(Box::new(Expr::Column(0)), DataType::Float64))),
    };
    let zoned = literal(Value::Int(5), schema.field(6).data_type().clone());
    let filter = Expr::And(vec![
        Expr::compare(CompareOp::Lt, Expr::Column(0), int(7)),
        Expr::Or(vec![like, regex, Expr::not(Expr::IsNull(Box::new(Expr::Column(3))))]),
        Expr::compare(CompareOp::GtEq, Expr::Column(6), zoned),
        Expr::InList(Box::new(Expr::Column(0)), vec![Literal::new(Value::Int(1), DataType::Int64).unwrap()]),
        Expr::InSet(Box::new(Expr::Column(1)), KeySet::new(&[-5, 3, 200]).unwrap()),
        Expr::InFilter(vec![Expr::Column(1), Expr::Column(7)], KeyFilter::new(vec![5, 9], 16).unwrap()),
    ]);
    let named = |name: &str, expr| NamedExpr { name: name.into(), expr };
    let aggregate = |function, arguments, data_type| Aggregate {
        name: "x".into(),
        function,
        arguments,
        filter: Some(Expr::Column(9)),
        data_type,
    };
    let sketch = StateFunction::Sketch("distinct=12 frequency=4x9 top=7".parse().expect("parameters")).into();
    let moments = StateFunction::Moments(farpool_model::NullHandling::Listwise).into();
    let product = Expr::arithmetic(ArithmeticOp::Multiply, Expr::Column(0), int(3));
    let order = vec![
        SortKey { column: 1, descending: true, nulls_first: false },
        SortKey { column: 0, descending: false, nulls_first: true },
    ];
    vec![
        Program::scan(table(), &schema, &[0, 7]),
        Program { filter: Some(filter), limit: Some(9), ..Program::scan(table(), &schema, &[]) },
        Program {
            table: table(),
            version: Some(Version(4)),
            lookups: Vec::new(),
            filter: Some(Expr::opaque("strange", vec![Expr::Column(0)])),
            output: Output::Rows(vec![named("p", product), named("c", case)]),
            having: None,
            order: Vec::new(),
            limit: None,
        },
        Program {
            table: table(),
            version: None,
            lookups: Vec::new(),
            filter: None,
            output: Output::Aggregate {
                keys: vec![named("k", Expr::Column(4))],
                aggregates: vec![
                    aggregate(AggregateFunction::Sum, vec![Expr::Column(3)], DataType::Decimal128(25, 2)),
                    aggregate(AggregateFunction::Count, vec![], DataType::Int64),
                    aggregate(sketch, vec![Expr::Column(4)], DataType::BinaryView),
                    aggregate(moments, vec![Expr::Column(0), Expr::Column(3)], DataType::BinaryView),
                ],
            },
            having: None,
            order: Vec::new(),
            limit: None,
        },
        having(&schema),
        Program { order, limit: Some(5), ..Program::scan(table(), &schema, &[7, 3]) },
    ]
}

/// A program with a condition on the parts of a date and on the groups by it.
fn having(schema: &Schema) -> Program {
    let date =
        (0..schema.fields().len()).find(|i| *schema.field(*i).data_type() == DataType::Date32).unwrap_or(0);
    let part = Expr::Extract(DatePart::Year, Box::new(Expr::Column(date)));
    let keys = vec![NamedExpr { name: "year".into(), expr: part }];
    let aggregates = vec![Aggregate {
        name: "n".into(),
        function: AggregateFunction::Count,
        arguments: Vec::new(),
        filter: None,
        data_type: DataType::Int64,
    }];
    let many = Literal::new(Value::Int(3), DataType::Int64).expect("a number");
    Program {
        output: Output::Aggregate { keys, aggregates },
        having: Some(Expr::compare(CompareOp::Gt, Expr::Column(1), Expr::Literal(many))),
        ..Program::scan(TableName::new("items").unwrap(), schema, &[])
    }
}

/// Creates Substrait plans as farpool encodes them, and adds plans that DataFusion made for the tests of the wire
/// crate.
pub fn plan_seeds() -> Vec<Vec<u8>> {
    let schema = plan::table_schema();
    let ours = programs().into_iter().map(|p| substrait::encode_program(&p, &schema).unwrap());
    let text = include_str!("../../../../crates/wire/testdata/datafusion_plans.txt");
    let theirs = text.split("\n\n").filter_map(|case| case.lines().nth(2)).map(bytes_of_hex);
    ours.chain(theirs).chain(joined_seeds()).collect()
}

/// Creates plans with joins: one of each kind, nested ones, and hostile ones.
fn joined_seeds() -> Vec<Vec<u8>> {
    let schema = plan::table_schema();
    let scan = |columns: &[usize]| Program::scan(TableName::new("items").unwrap(), &schema, columns);
    let lookup = |kind, program: Program, row| Lookup {
        kind,
        program,
        table_schema: schema.clone(),
        given: None,
        keys: vec![LookupKey { row, result: 0 }],
        residual: None,
        mark: "m".to_string(),
    };
    let width = schema.fields().len();
    let kinds = LookupKind::ALL.map(|kind| {
        let residual = Expr::compare(CompareOp::Lt, Expr::Column(4), Expr::Column(width + 1));
        let residual = Some(residual).filter(|_| !kind.minds_nulls());
        let of_item = Lookup { residual, ..lookup(kind, scan(&[0, 4, 7]), 0) };
        let added = if kind.adds_columns() || kind.adds_mark() { width } else { 0 };
        let rows = Output::Rows(vec![NamedExpr { name: "x".into(), expr: Expr::Column(added) }]);
        Program { lookups: vec![of_item], output: rows, ..scan(&[]) }
    });
    let few = Program { limit: Some(3), ..scan(&[1]) };
    let inner = Program { lookups: vec![lookup(LookupKind::Anti, few, 1)], ..scan(&[0, 7]) };
    let nested = Program {
        lookups: vec![lookup(LookupKind::Left, inner, 0)],
        version: Some(Version(2)),
        ..scan(&[4])
    };
    let given = Lookup {
        given: Some(Arc::new(given_rows())),
        table_schema: given_schema(),
        ..lookup(LookupKind::Left, Program { table: GivenRows::name().unwrap(), ..scan(&[]) }, 0)
    };
    let of_rows =
        Output::Rows(vec![NamedExpr::column(&given_schema(), 0), NamedExpr::column(&given_schema(), 1)]);
    let of_rows = Program { output: of_rows, ..given.program.clone() };
    let given = Program { lookups: vec![Lookup { program: of_rows, ..given }], ..scan(&[0]) };
    let many = vec![lookup(LookupKind::Semi, scan(&[0]), 0); limits::LOOKUPS_MAX];
    let many = Program { lookups: many, ..scan(&[0]) };
    let sound = kinds.into_iter().chain([nested, many, given]);
    let sound = sound.map(|program| substrait::encode_program(&program, &schema).unwrap());
    sound.chain(hostile_joins()).collect()
}

/// Returns the schema of rows that go along with a plan: the first column is that of the table's first one.
fn given_schema() -> SchemaRef {
    let key = plan::table_schema().field(0).clone().with_nullable(true);
    Arc::new(Schema::new(vec![key, Field::new("s", DataType::Utf8View, true)]))
}

fn given_rows() -> GivenRows {
    let texts = ["a", "b", "a text of more than twelve bytes"].map(|text| Value::Text(text.into()));
    GivenRows::new(&given_schema(), 3, vec![vec![Value::Int(1), Value::Int(7), Value::Null], texts.into()])
        .unwrap()
}

/// Creates plans of joins only, by their bytes: nested on their right sides, and on both.
fn hostile_joins() -> [Vec<u8>; 2] {
    // A field that has bytes: its number and type, the length, the bytes.
    let field = |number: u8, content: &[u8]| {
        let (mut bytes, mut length) = (vec![number << 3 | 2], content.len());
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        [&bytes, content].concat()
    };
    let join = |left: &[u8], right: &[u8]| {
        let inner_join = [6 << 3, 1];
        field(6, &[&field(2, left), &field(3, right), &inner_join[..]].concat())
    };
    let read = field(1, &field(7, &field(1, b"items")));
    let plan = |relation: Vec<u8>| field(3, &field(1, &relation));
    let deep = (0..2 * limits::LOOKUP_DEPTH_MAX).fold(read.clone(), |right, _| join(&read, &right));
    let both = (0..6).fold(read.clone(), |side, _| join(&side, &side));
    [plan(deep), plan(both)]
}

/// Creates programs over the table of the fuzz body `run` that apply every operator to every type and encoding, and
/// adds plans that DataFusion made.
pub fn run_seeds() -> Vec<Vec<u8>> {
    let schema = run::table_schema();
    let mine = programs().into_iter().chain(typed_programs());
    let mine = mine.map(|program| substrait::encode_program(&program, schema).unwrap());
    mine.chain(plan_seeds().split_off(programs().len())).collect()
}

/// Makes, for each column, programs that filter it by a constant, group by it, take the first rows by it, and
/// test it for NULL.
pub fn typed_programs() -> Vec<Program> {
    let schema = run::table_schema();
    let table = || TableName::new("items").unwrap();
    let columns = schema.fields().iter().enumerate();
    let of = columns.flat_map(|(column, field)| {
        let data_type = field.data_type().clone();
        let value = match &data_type {
            DataType::Boolean => Value::Bool(true),
            DataType::Utf8View => Value::Text("https://example.org/a_b/7".into()),
            DataType::BinaryView => Value::Bytes(vec![0, 1]),
            DataType::Float32 | DataType::Float64 => Value::Float(0.25),
            _ => Value::Int(3),
        };
        let literal = Literal::new(value, data_type.clone()).unwrap();
        let compare = |op| Expr::compare(op, Expr::Column(column), Expr::Literal(literal.clone()));
        let is_null = Expr::IsNull(Box::new(Expr::Column(column)));
        let listed = Expr::InList(Box::new(Expr::Column(column)), vec![literal.clone()]);
        let aggregate = |function, argument: Option<usize>, data_type| Aggregate {
            name: "x".into(),
            function,
            arguments: argument.map(Expr::Column).into_iter().collect(),
            filter: (column % 3 == 0).then(|| compare(CompareOp::NotEq)),
            data_type,
        };
        let scan = Program::scan(table(), schema, &[0, column]);
        let key = NamedExpr::column(schema, column);
        let aggregates = vec![
            aggregate(AggregateFunction::Count, None, DataType::Int64),
            aggregate(AggregateFunction::Min, Some(column), data_type.clone()),
            aggregate(AggregateFunction::Max, Some(column), data_type.clone()),
            aggregate(AggregateFunction::Sum, Some(1), DataType::Int64),
        ];
        let groups = Output::Aggregate { keys: vec![key], aggregates: aggregates.clone() };
        let total = Output::Aggregate { keys: Vec::new(), aggregates };
        let key = SortKey { column: 1, descending: column % 2 == 0, nulls_first: column % 4 < 2 };
        let few = (column % 2 == 0).then(|| Expr::not(Expr::IsNull(Box::new(Expr::Column(1)))));
        let either = Expr::Or(vec![compare(CompareOp::GtEq), is_null]);
        [
            Program { filter: Some(either), ..scan.clone() },
            Program { filter: Some(Expr::not(listed)), output: groups, ..scan.clone() },
            Program { filter: Some(compare(CompareOp::LtEq)), output: total, having: few, ..scan.clone() },
            Program { order: vec![key], limit: Some(7), ..scan },
        ]
    });
    of.collect()
}

pub fn rows() -> RecordBatch {
    let schema = plan::table_schema();
    let count = 5;
    let columns = schema.fields().iter().map(|field| -> ArrayRef {
        match field.data_type() {
            DataType::Utf8View => Arc::new(StringViewArray::from(vec![
                Some("a"),
                None,
                Some("a text longer than a view"),
                Some("another text longer than a view"),
                Some(""),
            ])),
            other => new_null_array(other, count),
        }
    });
    let columns = columns.collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

pub fn message_seeds() -> Vec<Vec<u8>> {
    let schema = plan::table_schema();
    let name = || TableName::new("items").unwrap();
    let plan = substrait::encode_program(&programs()[1], &schema).unwrap();
    let requests = [
        Request::Hello {
            version_min: 1,
            version_max: 1,
            token: Some("t".into()),
            timeout_ms: None,
            client: "c".into(),
        },
        Request::Prepare { plan: plan.clone(), schema: Some(SchemaFingerprint::of(&schema)) },
        Request::Execute { plan, schema: None, results: ResultForm::Auto },
        Request::Credit { bytes: 77 },
        Request::Table { name: name(), known: Some(Version(7)), or_view: true },
        Request::LoadBegin {
            table: name(),
            options: LoadMode::Append.into(),
            schema: schema.clone(),
            rows_hint: Some(1),
            id: None,
        },
        Request::LoadBatch(rows()),
        Request::Statistics { table: name(), columns: Some(vec![0, 3, 8]) },
        Request::CreateView { view: View::new(name(), "select 1").unwrap(), replace: true },
        Request::DropView { view: name(), tenant: None },
    ];
    let answer = OperatorAnswer {
        operator: Operator::Filter,
        detail: "d".into(),
        answer: Answer::Superset,
        reason: Some("r".into()),
    };
    let effective = programs().swap_remove(3);
    let prepared = Prepared {
        version: Version(1),
        answers: vec![answer.clone()],
        schema: effective.result_schema(&schema).unwrap(),
        effective,
    };
    let columns = schema.fields().iter().map(|field| ColumnStatistics {
        max: Literal::new(Value::Int(3), field.data_type().clone()).ok(),
        spread: Some(Arc::new(spread(field.data_type()))),
        ..Default::default()
    });
    let table = TableInfo {
        name: name(),
        version: Version(2),
        rows: 1,
        bytes_plain: 2,
        bytes_encoded: 3,
        columns: columns.collect(),
        schema: schema.clone(),
        rows_profiled: None,
        encryption: None,
        bytes_resident: None,
        is_pinned: false,
    };
    let responses = [
        Response::Hello {
            version: 1,
            server: "s".into(),
            tenant: TenantName::default(),
            instance: 7,
            newest: Version(9),
            sealing: Some(Sealing { node_key: None }),
            lookups: true,
            having: true,
        },
        Response::Prepared { prepared, table_schema: schema },
        Response::Batch(rows()),
        Response::Parcel(parcel_seeds().swap_remove(0).into()),
        Response::Receipt(Receipt { operators: vec![answer], ..Default::default() }),
        Response::Tables(Listing { tables: vec![table.clone()], views: vec![name()], schemas: vec![] }),
        Response::Unchanged,
        Response::Statistics(Box::new(statistics(table))),
        Response::Status(Status { tenants: vec![Default::default()], ..Default::default() }),
        Response::Error(Error::invalid("m").advise("a")),
        Response::View(View::new(name(), "select 1").unwrap()),
    ];
    let compressed = [Compression::Lz4, Compression::Zstd]
        .map(|form| Ok(encode_batch(FrameKind::Batch, &rows(), Some(form))?.messages));
    let frames: Vec<Vec<u8>> = requests
        .iter()
        .map(|r| r.encode())
        .chain(responses.iter().map(|r| r.encode()))
        .chain(compressed)
        .map(|messages| messages.unwrap().pop().unwrap().frames(1).concat())
        .collect();
    let mut connection = PREFACE.to_vec();
    frames.iter().for_each(|frame| connection.extend_from_slice(frame));
    // A message in one frame is encoded as its kind and its body, without the rest of the frame's header.
    let single = frames.iter().map(|frame| [&frame[4..5], &frame[12..]].concat());
    single.chain([connection]).collect()
}

/// Creates the distribution (`Spread`) of a column: with bins if the type is numeric, and with a frequent value if the
/// type has small numbers as values.
pub fn spread(data_type: &DataType) -> Spread {
    let three = Literal::new(Value::Int(3), data_type.clone()).ok();
    Spread {
        frequent: three.map(|three| (three, 9)).into_iter().collect(),
        low: -4.0,
        width: 2.0,
        bins: vec![5, 0, 9],
        quantiles: vec![-1.5, 0.0, f64::INFINITY],
        quantile_error: 0.125,
    }
}

pub fn statistics(table: TableInfo) -> TableStatistics {
    let states = |bytes: &'static [u8]| ColumnStates { sketch: Some(bytes.into()), histogram: None };
    let columns = vec![states(b"state"); table.columns.len()];
    let moments = Some(MomentsState { columns: vec![0], state: (&b"moments"[..]).into() });
    TableStatistics { table, columns, moments }
}
