//! Tests that the verdicts of zone maps on a filter (all, some or no rows of a row group can pass) are never
//! wrong.

use super::random::{self, Random};
use super::{compile, naive, run, sorted};
use crate::Verdict;
use crate::plan::Paths;
use farpool_model::{NamedExpr, Output, Program, TableName, Value};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_verdict_holds_for_every_row(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let table = random::table(&mut random, 40);
        for _ in 0..10 {
            let filter = random::condition(&mut random, &table.schema, 2);
            let program = Program {
                table: TableName::new("t").unwrap(),
                version: None,
                lookups: Vec::new(),
                filter: Some(filter.clone()),
                output: Output::Rows(vec![NamedExpr::column(&table.schema, 0)]),
                having: None,
                order: Vec::new(),
                limit: None,
            };
            let plan = compile(&program, &table.schema).unwrap();
            let mut first = 0;
            for group in &table.groups {
                let rows = &table.rows[first..first + group.rows];
                first += group.rows;
                let passes = |row: &Vec<Value>| naive::eval(&filter, row, &table.schema).map(|v| v == Value::Bool(true));
                // A row on which the filter fails counts neither as passed nor as excluded, so it cannot contradict
                // the verdict.
                let passed: Vec<bool> = rows.iter().filter_map(|row| passes(row).ok()).collect();
                match plan.verdict(group) {
                    Verdict::None => prop_assert!(passed.iter().all(|p| !p), "None, but {filter}"),
                    Verdict::All => prop_assert!(passed.iter().all(|p| *p), "All, but {filter}"),
                    Verdict::Some => {}
                }
            }
            if let Ok(expected) = naive::run(&program, &table.schema, &table.rows) {
                let rows = run(&program, &table, Paths::ALL, 1).unwrap();
                prop_assert_eq!(sorted(rows), sorted(expected), "{}", filter);
            }
        }
    }
}
