//! Tests of the definition, of the generated tables by a plain join of their own, and of the ratios.

use super::data::{build, probe, rows};
use super::definition::{Definition, Goal, KeyForm, MATCHES, PAYLOAD_MAX, Point, Shape};
use super::results::{PointResult, check};
use crate::places;
use crate::suite::queries::SideResult;
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type};
use std::collections::{HashMap, HashSet};

const FORMS: [KeyForm; 3] = [KeyForm::Dense, KeyForm::Sparse, KeyForm::Text];

fn definitions() -> [Definition; 2] {
    [false, true].map(|quick| places::definition_for("joins", quick, None).expect("it can be read"))
}

/// Returns the values of a column as text.
fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let column = batch.column_by_name(column).expect("the column is there");
    let strings = cast(column, &DataType::Utf8).expect("it has a text form");
    strings.as_string::<i32>().iter().flatten().map(str::to_string).collect()
}

#[test]
fn points_are_few_different_and_possible() {
    for definition in definitions() {
        let names: Vec<String> = definition
            .tables
            .iter()
            .flat_map(|pair| pair.points.iter().map(|p| p.name(pair.shape())))
            .collect();
        assert!(names.len() <= 60, "{} points", names.len());
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "a point is there twice");
        for pair in &definition.tables {
            let shape = pair.shape();
            assert_eq!(shape.distinct() * shape.duplicates, shape.build, "{shape}");
            for point in &pair.points {
                assert!(MATCHES.contains(&point.matches) && point.payload <= PAYLOAD_MAX, "{point:?}");
                assert!(shape.distinct() * point.matches >= 100, "{shape} has no match of {point:?}");
            }
        }
    }
}

#[test]
fn every_dimension_varies() {
    let [full, quick] = definitions();
    let varied = |definition: &Definition| {
        let points = definition.tables.iter().flat_map(|pair| pair.points.iter().map(|p| (pair.shape(), *p)));
        let points: Vec<(Shape, Point)> = points.collect();
        let count = |of: &dyn Fn(&(Shape, Point)) -> u64| points.iter().map(of).collect::<HashSet<_>>().len();
        [
            count(&|(shape, _)| shape.build),
            count(&|(shape, _)| shape.duplicates),
            count(&|(shape, _)| shape.keys as u64),
            count(&|(_, point)| point.matches),
            count(&|(_, point)| point.payload as u64),
        ]
    };
    assert_eq!(varied(&full), [5, 2, 3, 4, 5]);
    assert_eq!(varied(&quick), [2, 2, 3, 4, 4]);
}

#[test]
fn a_part_of_the_points_is_named() {
    let [mut definition, _] = definitions();
    definition.retain(|name| name.contains("16 Ki × 4") && name.contains("10 %"));
    let [pair] = &*definition.tables else { panic!("{:?}", definition.tables) };
    assert_eq!(pair.points, [Point { matches: 10, payload: 1 }]);
    assert_eq!(pair.points[0].name(pair.shape()), "dense 16 Ki × 4, 10 %, payload 1");
}

#[test]
fn statements_sum_the_payload() {
    assert_eq!(
        Point { matches: 10, payload: 2 }.sql(),
        "SELECT count(*) AS n, sum(f.v) AS v, sum(d.p1) AS p1, sum(d.p2) AS p2 FROM probe f JOIN build d ON f.k = d.k10"
    );
    assert_eq!(
        Point { matches: 100, payload: 0 }.sql(),
        "SELECT count(*) AS n, sum(f.v) AS v FROM probe f JOIN build d ON f.k = d.k100"
    );
}

/// The share of rows with a match is within four standard deviations of what the column is named for, and every match is
/// there as many times as the shape says.
#[test]
fn rows_match_as_often_as_columns_say() {
    const ROWS: u64 = 40_000;
    for keys in FORMS {
        for duplicates in [1, 4] {
            let shape = Shape { keys, build: 4_000, duplicates };
            let build = build(shape, 0..shape.build).expect("it is generated");
            let probe = texts(&probe(shape, 0..ROWS).expect("it is generated"), "k");
            assert!(probe.iter().collect::<HashSet<_>>().len() as u64 > shape.distinct() * 99 / 100);
            for matches in MATCHES {
                let mut held: HashMap<String, u64> = HashMap::new();
                texts(&build, &format!("k{matches}"))
                    .into_iter()
                    .for_each(|key| *held.entry(key).or_default() += 1);
                assert_eq!(held.len() as u64, shape.distinct(), "{shape}");
                assert!(held.values().all(|count| *count == duplicates), "{shape}");
                let found = probe.iter().filter(|key| held.contains_key(*key)).count() as f64;
                let share = matches as f64 / 100.0;
                let deviation = (ROWS as f64 * share * (1.0 - share)).sqrt();
                let error = (found - ROWS as f64 * share).abs();
                assert!(error <= 4.0 * deviation, "{shape}, {matches} %: {found} rows of {ROWS}");
            }
        }
    }
}

/// No range of keys tells rows with a match from those without: each part of the keys has its share.
#[test]
fn matches_are_spread_over_all_keys() {
    let shape = Shape { keys: KeyForm::Dense, build: 4_000, duplicates: 1 };
    let build = build(shape, 0..shape.build).expect("it is generated");
    for matches in MATCHES {
        let keys: Vec<u64> =
            texts(&build, &format!("k{matches}")).iter().map(|key| key.parse().expect("a number")).collect();
        for first in (0..4_000).step_by(500) {
            let kept = keys.iter().filter(|key| (first..first + 500).contains(*key)).count() as u64;
            assert_eq!(kept, 5 * matches, "{matches} %, keys from {first}");
        }
    }
}

#[test]
fn keys_have_their_forms() {
    let keys = |keys| {
        let shape = Shape { keys, build: 1_000, duplicates: 1 };
        let batch = build(shape, 0..1_000).expect("it is generated");
        (batch.column(0).data_type().clone(), texts(&batch, "k100"), batch)
    };
    let (kind, dense, _) = keys(KeyForm::Dense);
    assert_eq!(kind, DataType::Int32);
    assert_eq!(dense, (0..1_000).map(|key| key.to_string()).collect::<Vec<_>>());
    let (kind, _, batch) = keys(KeyForm::Sparse);
    assert_eq!(kind, DataType::Int64);
    let sparse = batch.column(0).as_primitive::<Int64Type>().values();
    let quarters: HashSet<i64> = sparse.iter().map(|key| key >> 62).collect();
    assert_eq!(quarters.len(), 4, "they are spread over all 64 bits");
    let (_, text, _) = keys(KeyForm::Text);
    assert!(text.iter().all(|key| key.len() == 12), "{:?}", text.first());
}

#[test]
fn rows_do_not_depend_on_batches() {
    for keys in FORMS {
        let shape = Shape { keys, build: 64, duplicates: 4 };
        for (table, batch) in [("build", build as fn(_, _) -> _), ("probe", probe)] {
            let batch = |rows| batch(shape, rows).expect("it is generated");
            let (whole, parts) = (batch(0..64), [batch(0..7), batch(7..64)]);
            assert_eq!(whole, concat_batches(&whole.schema(), &parts).expect("schemas agree"));
            let streamed = rows(table, shape, 64).expect("it is there").next().expect("a batch");
            assert_eq!(streamed.expect("it is generated"), whole);
        }
    }
}

fn result(times: &[(&str, f64)], explained: &str) -> PointResult {
    let side = |median_ms| SideResult { median_ms, ..SideResult::default() };
    PointResult {
        name: String::new(),
        shape: Shape { keys: KeyForm::Dense, build: 16, duplicates: 1 },
        point: Point { matches: 100, payload: 1 },
        joined: 0,
        bytes_plain: 0,
        memory_ms: 0.0,
        sides: times.iter().map(|(name, ms)| (name.to_string(), side(*ms))).collect(),
        explained: explained.to_string(),
    }
}

#[test]
fn ratios_are_to_the_fastest_rival() {
    let points = [
        result(&[("duckdb", 20.0), ("polars", 10.0), ("embedded on", 5.0), ("remote on", 2.0)], ""),
        result(&[("duckdb", 10.0), ("embedded on", 8.0)], ""),
    ];
    assert_eq!((points[0].ratio("embedded on"), points[1].ratio("remote on")), (Some(0.5), None));
    let goals = ["embedded on", "remote on"].map(|of| Goal { of: of.to_string(), at_most: 0.7 });
    let table = check(&goals, &points).table();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[1].contains("at 1 of 2 points") && lines[1].contains("missed"), "{table}");
    assert!(lines[2].contains("at 1 of 1 points") && lines[2].contains("met"), "{table}");
}

#[test]
fn joins_that_stay_in_the_engine_have_a_reason() {
    let reason = |explained: &str| result(&[], explained).reason().map(str::to_string);
    assert_eq!(reason("probe v1 at embedded: 9 rows\n  lookup     exact     k = k100 in build\n"), None);
    assert_eq!(
        reason("probe v1 at embedded: 9 rows\n  lookup     refused   f.k = d.k100 (it is too large)\n")
            .as_deref(),
        Some("lookup     refused   f.k = d.k100 (it is too large)")
    );
    assert!(reason("").is_some());
}
