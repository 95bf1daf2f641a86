//! Compares the results of the suite `ibex` with its goals. A missed goal is reported and does not fail the run.

use super::Part;
use super::definition::Goals;
use super::measure::CaseResult;
use super::stage::Side;
use crate::suite;

/// The query of TPC-H that is compared with the pool's own client.
const Q1: f64 = 1.0;

/// Returns the goals of all parts that have results.
pub fn of(cases: &[CaseResult], goals: &Goals) -> suite::Goals {
    let mut checked = suite::Goals::default();
    let of = |part: Part| cases.iter().filter(move |case| case.part == part);
    for case in of(Part::Sizes) {
        let what = format!("GROUP BY, {}: times faster than heap tables", case.name);
        checked.at_least(what, goals.groups, case.ratio(Side::Heap, Side::Pool));
    }
    for case in of(Part::Filters) {
        let what = format!("{}: times faster than heap tables", case.name);
        checked.at_least(what, goals.filters, case.ratio(Side::Heap, Side::Pool));
    }
    for part in [Part::Aggregates, Part::Predicates] {
        if let Some((first, last)) = of(part).next().zip(of(part).next_back()) {
            let ratio = last.ms(Side::Pool).zip(first.ms(Side::Pool)).map(|(last, first)| last / first);
            checked.at_most(format!("{}: time, by {}", last.name, first.name), goals.flat, ratio);
        }
    }
    for case in of(Part::Tpch).filter(|case| case.at == Q1) {
        let what = "TPC-H Q1 through PostgreSQL: time, by farpool alone".to_string();
        checked.at_most(what, goals.q1_of_alone, case.ratio(Side::Pool, Side::Alone));
    }
    checked
}
