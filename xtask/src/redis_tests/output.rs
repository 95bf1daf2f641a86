//! Parses the output of the harness of Redis' tests, line by line.

use std::collections::BTreeSet;

/// Results of a unit of Redis' tests.
#[derive(Default)]
pub struct Output {
    /// Names of the tests that passed.
    pub passed: Vec<String>,
    pub failed: Vec<Failure>,
    /// Tests, or blocks of tests without a name, that the harness skipped, with its reason.
    pub left_out: Vec<(String, String)>,
    /// Whether the harness reached the end of the unit.
    pub is_complete: bool,
}

/// A test that failed, or a block that ended outside of a test.
pub struct Failure {
    pub test: String,
    /// Commands and settings that the node reported as absent while the test ran.
    pub absent: BTreeSet<String>,
    /// First lines of the harness' message.
    pub message: String,
}

/// Maximal number of lines of a message that are kept.
const LINES_MAX: usize = 5;

impl Failure {
    /// Creates a failure of the unit that belongs to no single test.
    pub fn of_the_unit(test: &str, message: String) -> Failure {
        Failure { test: test.to_string(), absent: BTreeSet::new(), message }
    }
}

impl Output {
    /// Parses the harness' output for a unit. Output after the end of the unit repeats earlier output, and is ignored.
    pub fn parse(text: &str) -> Output {
        let mut output = Output::default();
        let mut absent = BTreeSet::new();
        let mut is_message = false;
        for line in text.lines() {
            let Some((kind, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("]: ")) else {
                if is_message {
                    output.continue_message(line);
                }
                continue;
            };
            is_message = false;
            match kind {
                "absent" => absent.extend(rest.split(' ').map(str::to_string)),
                "ok" => {
                    absent.clear();
                    output.passed.push(rest.rsplit_once(" (").map_or(rest, |(name, _)| name).to_string());
                }
                "err" => {
                    is_message = true;
                    output.failed.push(failure(rest, std::mem::take(&mut absent)));
                }
                "ignore" => output.left_out.push(left_out(rest)),
                "exception" | "TIMEOUT" => {
                    is_message = true;
                    output.failed.push(Failure::of_the_unit(kind, rest.to_string()));
                }
                "1/1 done" => {
                    output.is_complete = true;
                    return output;
                }
                _ => {}
            }
        }
        output
    }

    /// Returns the tests that failed and used something absent, with the absent commands.
    pub fn absent(&self) -> impl Iterator<Item = (String, String)> {
        let failed = self.failed.iter().filter(|failure| !failure.absent.is_empty());
        failed.map(|failure| (failure.test.clone(), failure.absent_as_text()))
    }

    fn continue_message(&mut self, line: &str) {
        let Some(failure) = self.failed.last_mut() else { return };
        if failure.message.lines().count() < LINES_MAX {
            failure.message.push('\n');
            failure.message.push_str(line);
        }
    }
}

impl Failure {
    pub fn absent_as_text(&self) -> String {
        self.absent.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// Parses `NAME in tests/unit/FILE.tcl`, or the error that ended a block.
fn failure(text: &str, absent: BTreeSet<String>) -> Failure {
    let (test, message) = match text.rsplit_once(" in tests/") {
        Some((test, _)) => (test.to_string(), String::new()),
        None => ("a block".to_string(), text.to_string()),
    };
    Failure { test, absent, message }
}

/// Parses `NAME: REASON`, or only the reason for a block. There are few prefixes of reasons.
fn left_out(text: &str) -> (String, String) {
    let starts = ["Tag: ", "Not supported on ", "large memory flag"];
    let at = starts.iter().filter_map(|start| text.rfind(start)).min().unwrap_or(0);
    let (name, reason) = text.split_at(at);
    (name.trim_end_matches(": ").to_string(), reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_reasons_and_messages_are_told_apart() {
        let text = "[ok]: INCR (over) 32bit (0 ms)\n[absent]: LCS SADD\n[err]: LCS basic in tests/unit/x.tcl\nERR\n\
                    [ignore]: a: b: Tag: needs:debug denied\n[ignore]: Not supported on external server\n\
                    [absent]: FOO\n[ok]: refuses FOO (1 ms)\n[err]: other in tests/unit/x.tcl\nExpected 1\n\
                    [1/1 done]: unit/x (8 seconds)\n*** [err]: other in tests/unit/x.tcl\n";
        let output = Output::parse(text);
        assert_eq!(output.passed, ["INCR (over) 32bit", "refuses FOO"]);
        let failed: Vec<_> =
            output.failed.iter().map(|f| (&*f.test, f.absent_as_text(), &*f.message)).collect();
        let expected =
            [("LCS basic", "LCS SADD".to_string(), "\nERR"), ("other", String::new(), "\nExpected 1")];
        assert_eq!(failed, expected);
        let left_out: Vec<_> = output.left_out.iter().map(|(name, why)| (&**name, &**why)).collect();
        let expected = [("a: b", "Tag: needs:debug denied"), ("", "Not supported on external server")];
        assert_eq!(left_out, expected);
        assert!(output.is_complete);
        assert!(!Output::parse("[ok]: a (0 ms)\n").is_complete);
    }
}
