//! Tests facts that are derived from expressions before any row is read (type, range, whether evaluation may
//! fail). They are compared with the behaviour of Arrow's kernels.

use super::{TestTable, compile_with};
use crate::evaluate::{Compiled, Frame, array_of_ints};
use crate::plan::Paths;
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use farpool_model::literal::integer_range;
use farpool_model::{
    ArithmeticOp, CompareOp, Expr, Literal, NamedExpr, Output, Program, TableName, Value, arithmetic_type,
};
use std::sync::Arc;

fn types() -> Vec<DataType> {
    use DataType::*;
    let stamp = |unit, zone: Option<&str>| Timestamp(unit, zone.map(Into::into));
    let decimals = [(5, 2), (38, 0), (38, 38), (38, -38), (10, -3), (20, 0), (3, 0), (12, 4), (1, 1)];
    let mut types = vec![Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64];
    types.extend(decimals.map(|(precision, scale)| Decimal128(precision, scale)));
    types.extend([TimeUnit::Second, TimeUnit::Millisecond].map(|unit| stamp(unit, None)));
    types.extend([TimeUnit::Microsecond, TimeUnit::Nanosecond].map(|unit| stamp(unit, None)));
    types.extend([stamp(TimeUnit::Second, Some("Europe/Berlin")), stamp(TimeUnit::Second, Some("nowhere"))]);
    types.extend([Date32, Utf8View, BinaryView]);
    types
}

/// Returns arrays of one value each, among them the least and the greatest value of the type.
fn extremes(data_type: &DataType) -> Vec<ArrayRef> {
    let floats = [f64::MIN, f64::MAX, f64::NAN, f64::INFINITY, 5e-324, -0.0, 1.5, -3e38];
    match data_type {
        DataType::Boolean => [true, false].map(|v| Arc::new(BooleanArray::from(vec![v])) as ArrayRef).into(),
        DataType::Float32 => floats.map(|v| Arc::new(Float32Array::from(vec![v as f32])) as ArrayRef).into(),
        DataType::Float64 => floats.map(|v| Arc::new(Float64Array::from(vec![v])) as ArrayRef).into(),
        DataType::Utf8View => {
            ["", "1", "x", "1e500"].map(|v| Arc::new(StringViewArray::from(vec![v])) as ArrayRef).into()
        }
        DataType::BinaryView => vec![Arc::new(BinaryViewArray::from(vec![&b"\xff"[..]]))],
        other => {
            let (min, max) = match other {
                DataType::Decimal128(precision, _) => {
                    let most = 10_i128.pow(u32::from(*precision)) - 1;
                    (-most, most)
                }
                other => integer_range(other).unwrap(),
            };
            let values = [min, min / 2, -1, 0, 1, 99, max / 2, max].map(|v| v.clamp(min, max));
            values.map(|v| array_of_ints(other, [v].into_iter(), None).unwrap()).into()
        }
    }
}

/// Returns whether `expr` can be evaluated over a row of these columns.
fn succeeds(expr: &Expr, schema: &Schema, columns: &[ArrayRef]) -> bool {
    let compiled = Compiled::new(expr, schema).unwrap();
    let columns = columns.iter().cloned().enumerate().filter(|(i, _)| compiled.columns().contains(i));
    let result = compiled.array(&Frame::new(1, columns.collect()));
    result.is_ok_and(|array| {
        assert_eq!(array.data_type(), compiled.data_type(), "{expr}");
        true
    })
}

fn is_zoned(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(_)))
}

#[test]
fn casts_may_fail_exactly_where_arrows_kernel_does_on_some_value() {
    for from in types() {
        let schema = Schema::new(vec![Field::new("v", from.clone(), true)]);
        for to in types() {
            let cast = Expr::Cast(Box::new(Expr::Column(0)), to.clone());
            if Compiled::new(&cast, &schema).is_err() {
                continue;
            }
            let may_fail = cast.may_fail(&schema).unwrap();
            let fails = extremes(&from).into_iter().any(|value| !succeeds(&cast, &schema, &[value]));
            // A cast of a type with a time zone may succeed although it is said to fail for some values, because it
            // depends on how Arrow was built which zones are known.
            let exact = fails || is_zoned(&from) || is_zoned(&to);
            assert!(if may_fail { exact } else { !fails }, "{from} as {to}: may fail {may_fail}, {fails}");
        }
    }
}

#[test]
fn casts_of_constants_may_fail_only_if_the_constant_does_not_fit() {
    let schema = Schema::empty();
    for from in types() {
        for value in extremes(&from) {
            let literal = crate::evaluate::literal_at(&value, 0).unwrap();
            for to in types() {
                let cast = Expr::Cast(Box::new(Expr::Literal(literal.clone())), to);
                if Compiled::new(&cast, &schema).is_ok() && !cast.may_fail(&schema).unwrap() {
                    assert!(succeeds(&cast, &schema, &[]), "{cast}");
                }
            }
        }
    }
}

#[test]
fn arithmetic_fails_only_where_it_may_and_has_the_types_of_arrows_kernels() {
    use ArithmeticOp::*;
    let scales = [-38, -20, -4, -1, 0, 1, 2, 19, 34, 37, 38];
    let decimals = [1, 5, 19, 38].into_iter().flat_map(|p| scales.map(|s| (p, s)));
    let decimals = decimals.filter(|(p, s)| i16::from(*s) <= i16::from(*p));
    let decimals: Vec<_> = decimals.map(|(p, s)| DataType::Decimal128(p, s)).collect();
    let others = [DataType::Int8, DataType::Int64, DataType::UInt16, DataType::UInt64, DataType::Float32];
    let pairs = decimals.iter().flat_map(|l| decimals.iter().map(move |r| (l.clone(), r.clone())));
    let mut typed = 0;
    for (l, r) in pairs.chain(others.map(|t| (t.clone(), t))) {
        let schema = Schema::new(vec![Field::new("l", l.clone(), true), Field::new("r", r.clone(), true)]);
        for op in [Add, Subtract, Multiply, Divide, Modulo] {
            if arithmetic_type(op, &l, &r).is_err() {
                continue;
            }
            typed += 1;
            let expr = Expr::arithmetic(op, Expr::Column(0), Expr::Column(1));
            let may_fail = expr.may_fail(&schema).unwrap();
            for left in extremes(&l) {
                for right in extremes(&r) {
                    let done = succeeds(&expr, &schema, &[left.clone(), right.clone()]);
                    assert!(done || may_fail, "{l} {op:?} {r} of {left:?} and {right:?}");
                }
            }
        }
    }
    assert!(typed > 1000, "{typed}");
}

#[test]
fn what_bounds_rule_out_does_not_fail() {
    let schema = Schema::new(vec![
        Field::new("d", DataType::Decimal128(15, 2), true),
        Field::new("i", DataType::Int32, true),
        Field::new("f", DataType::Float64, true),
    ]);
    let int = |v| Expr::Literal(Literal::new(Value::Int(v), DataType::Int32).unwrap());
    let cents = |v| Expr::Literal(Literal::new(Value::Int(v), DataType::Decimal128(3, 2)).unwrap());
    let divide = |l, r| Expr::arithmetic(ArithmeticOp::Divide, l, r);
    let case = |v| Expr::Case {
        branches: vec![(Expr::IsNull(Box::new(Expr::Column(1))), int(v))],
        otherwise: Some(Box::new(int(7))),
    };
    for (expr, expected) in [
        (divide(Expr::Column(1), int(3)), false),
        (divide(Expr::Column(1), int(0)), true),
        (divide(Expr::Column(1), int(-1)), true),
        (divide(int(5), int(-1)), false),
        (divide(Expr::Column(2), Expr::Column(2)), false),
        (divide(Expr::Column(0), cents(100)), false),
        (divide(Expr::Column(0), Expr::Column(0)), true),
        (divide(Expr::Column(1), case(2)), false),
        (divide(Expr::Column(1), case(0)), true),
        (Expr::arithmetic(ArithmeticOp::Modulo, Expr::Column(1), int(-1)), false),
        (Expr::arithmetic(ArithmeticOp::Add, Expr::Column(1), int(1)), true),
        (Expr::arithmetic(ArithmeticOp::Subtract, int(i32::MIN.into()), int(1)), true),
        (Expr::arithmetic(ArithmeticOp::Multiply, int(1 << 15), int(1 << 15)), false),
        (Expr::arithmetic(ArithmeticOp::Multiply, int(1 << 16), int(1 << 15)), true),
        (Expr::arithmetic(ArithmeticOp::Add, Expr::Column(0), Expr::Column(0)), false),
        (Expr::Negate(Box::new(Expr::Column(1))), true),
        (Expr::Negate(Box::new(int(7))), false),
        (Expr::Negate(Box::new(Expr::Column(0))), false),
    ] {
        assert_eq!(expr.may_fail(&schema).unwrap(), expected, "{}", expr.display(&schema));
    }
}

/// Runs `body` on a thread with the usual stack size, on which compiling, evaluating and dropping a deeply nested
/// plan must not overflow.
#[expect(clippy::disallowed_methods, reason = "the stack of a thread is what is tested")]
fn on_a_threads_stack(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(body).unwrap();
    thread.join().unwrap();
}

#[test]
fn many_ranges_of_one_column_are_one_range_and_no_deeper() {
    let ends: ArrayRef = Arc::new(UInt64Array::from(vec![0, 5, u64::MAX]));
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::UInt64, true)]));
    let table = TestTable::new(schema.clone(), &[vec![ends]]);
    let bound = |v| Expr::Literal(Literal::new(Value::Int(v), DataType::UInt64).unwrap());
    let at_least = |v| Expr::compare(CompareOp::GtEq, Expr::Column(0), bound(v));
    let filter = Expr::And((0..20_000).map(at_least).collect());
    let program = Program {
        filter: Some(filter),
        output: Output::Rows(vec![NamedExpr::column(&schema, 0)]),
        ..Program::scan(TableName::new("t").unwrap(), &schema, &[])
    };
    on_a_threads_stack(move || {
        for paths in [Paths::ALL, Paths::NONE] {
            let plan = compile_with(&program, &schema, paths).unwrap();
            let rows = super::run_plan(&plan, &table, 1, usize::MAX).unwrap();
            assert_eq!(rows, [[Value::Int(u64::MAX.into())]]);
        }
    });
}

#[test]
fn the_deepest_expressions_are_compiled_and_run_on_a_threads_stack() {
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Int64, true)]));
    let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let levels = farpool_model::limits::EXPR_DEPTH_MAX - 2;
    let null = || Expr::IsNull(Box::new(Expr::Column(0)));
    let case = |e| Expr::Case { branches: vec![(e, null())], otherwise: Some(Box::new(null())) };
    type Level<'a> = &'a dyn Fn(Expr) -> Expr;
    let shapes: [Level<'_>; 3] = [&Expr::not, &case, &|e| Expr::Or(vec![null(), Expr::And(vec![e, null()])])];
    for (shape, levels) in shapes.into_iter().zip([levels, levels, levels / 2]) {
        let filter = (0..levels).fold(null(), |e, _| shape(e));
        let scan = Program::scan(TableName::new("t").unwrap(), &schema, &[0]);
        let program = Program { filter: Some(filter), ..scan };
        let table = TestTable::new(schema.clone(), &[vec![column.clone()]]);
        on_a_threads_stack(move || {
            for paths in [Paths::ALL, Paths::NONE] {
                let plan = compile_with(&program, &table.schema, paths).unwrap();
                assert!(super::run_plan(&plan, &table, 1, usize::MAX).unwrap().len() <= 2);
            }
        });
    }
}
