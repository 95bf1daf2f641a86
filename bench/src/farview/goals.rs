//! Compares the results of the benchmark suite `farview` with its goals. A missed goal is reported and does not fail
//! the run.

use super::definition::{Case, Definition};
use super::results::{CaseResult, FARPOOL, FARPOOL_HIDDEN, FARPOOL_TLS, Results, RivalInfo};
use crate::suite::Bound;
use serde::Serialize;

/// A goal and its outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// Names the side or case of the comparison: `fastest local (Polars)`, `Quack`, `6 clients`.
    pub against: String,
    /// The bound.
    pub goal: f64,
    /// Whether the bound is an upper one.
    pub at_most: bool,
    /// The measured ratio; `None` if a side did not take part.
    pub measured: Option<f64>,
    /// Whether the bound holds; `None` if nothing was measured.
    pub met: Option<bool>,
}

/// Checks the goals of a case; `earlier` has the cases that it may be compared with. `openssl_bytes_per_s` is OpenSSL's
/// speed of decryption on as many threads.
pub fn check(
    definition: &Definition,
    case: &Case,
    result: &CaseResult,
    (earlier, rivals): (&[CaseResult], &[RivalInfo]),
    openssl_bytes_per_s: Option<f64>,
) -> Vec<Checked> {
    let mut checked = Vec::new();
    if let Some(goal) = case.faster {
        let fastest = Results::fastest_local(rivals, result);
        let against = fastest.map_or("fastest local".to_string(), |name| format!("fastest local ({name})"));
        checked.push(at_least(against, goal, fastest.and_then(|name| result.ratio(name))));
    }
    for (rival, goal) in definition.goals.iter().filter(|(rival, _)| !case.without.contains(rival)) {
        checked.push(at_least(rival.clone(), *goal, result.ratio(rival)));
    }
    if let (Some(alone), Some(goal)) = (&case.alone, case.alone_at_most) {
        let same = |other: &&CaseResult| other.name == *alone && other.table_rows == result.table_rows;
        let one = earlier.iter().find(same).and_then(|one| one.median(FARPOOL));
        let measured = one.zip(result.median(FARPOOL)).map(|(one, all)| all / (one * case.clients as f64));
        checked.push(at_most(format!("{} times {alone}", case.clients), goal, measured));
    }
    if let Some(goal) = case.tls_at_most {
        checked.push(at_most(format!("{FARPOOL_TLS}, of without"), goal, result.ratio(FARPOOL_TLS)));
    }
    if let Some(goal) = case.hidden_faster {
        let fastest = Results::fastest_local(rivals, result);
        let against = fastest.map_or("fastest local".to_string(), |name| format!("fastest local ({name})"));
        let measured = fastest.and_then(|name| Some(result.median(name)? / result.median(FARPOOL_HIDDEN)?));
        checked.push(at_least(format!("{FARPOOL_HIDDEN}: {against}"), goal, measured));
    }
    if case.is_hidden() {
        let more =
            result.median(FARPOOL_HIDDEN).zip(result.median(FARPOOL)).map(|(with, without)| with - without);
        let openssl = openssl_bytes_per_s.map(|rate| result.receipt.bytes_scanned as f64 / rate * 1e3);
        let measured = more.zip(openssl).map(|(more, openssl)| more / openssl);
        let against = format!("{FARPOOL_HIDDEN}: more, of OpenSSL's time");
        checked.push(at_most(against, definition.decryption_at_most, measured));
    }
    checked
}

fn at_least(against: String, goal: f64, measured: Option<f64>) -> Checked {
    let met = Bound::AtLeast(goal).is_met(measured);
    Checked { against, goal, at_most: false, measured, met }
}

fn at_most(against: String, goal: f64, measured: Option<f64>) -> Checked {
    let met = Bound::AtMost(goal).is_met(measured);
    Checked { against, goal, at_most: true, measured, met }
}

impl Checked {
    /// Formats the goal.
    pub fn bound(&self) -> String {
        format!("{} {}×", if self.at_most { "≤" } else { "≥" }, self.goal)
    }

    /// Formats the distance to a goal that was missed.
    pub fn missed(&self) -> String {
        match (self.met, self.measured) {
            (Some(false), Some(measured)) if self.at_most => format!("by {:.2}×", measured / self.goal),
            (Some(false), Some(measured)) => format!("by {:.2}×", self.goal / measured),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::at_least;

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        let outcome = |measured| {
            let checked = at_least("Quack".to_string(), 10.0, measured);
            (checked.met, checked.missed())
        };
        assert_eq!(outcome(Some(12.0)), (Some(true), String::new()));
        assert_eq!(outcome(Some(5.0)), (Some(false), "by 2.00×".to_string()));
        assert_eq!(outcome(None), (None, String::new()));
    }
}
