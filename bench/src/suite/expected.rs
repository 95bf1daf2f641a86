//! The answer that all sides of a comparison must return.
//!
//! Invariant: a time counts only if the answer that came with it was compared with that of another side, or with a
//! recorded one.

use crate::answers::{self, Answer};
use crate::digest::Digest;
use anyhow::{Result, bail};

/// An answer to a query, or what is known of the answer.
pub trait Compared: Clone {
    /// Describes a difference; `None` if there is none.
    fn difference(&self, actual: &Self) -> Option<String>;
}

impl Compared for Answer {
    fn difference(&self, actual: &Answer) -> Option<String> {
        answers::difference(self, actual)
    }
}

impl Compared for Digest {
    fn difference(&self, actual: &Digest) -> Option<String> {
        (self != actual).then(|| format!("{actual:?}, not {self:?}"))
    }
}

/// The expected answer, and who gave it: the first side, unless an answer was known before.
#[derive(Clone, Debug)]
pub struct Expected<A>(Option<(String, A)>);

impl<A> Default for Expected<A> {
    fn default() -> Expected<A> {
        Expected(None)
    }
}

impl<A: Compared> Expected<A> {
    /// Returns an answer that is known before any side runs.
    pub fn of(by: &str, answer: A) -> Expected<A> {
        Expected(Some((by.to_string(), answer)))
    }

    /// Returns the expected answer, if any side has answered.
    pub fn answer(&self) -> Option<&A> {
        self.0.as_ref().map(|(_, answer)| answer)
    }

    /// Checks the answer of a side; the first one is what the others must return.
    ///
    /// # Errors
    /// Fails with a description of the difference.
    pub fn check(&mut self, side: &str, actual: &A) -> Result<()> {
        self.check_by(side, actual, A::difference)
    }

    fn check_by(&mut self, side: &str, actual: &A, compare: impl Fn(&A, &A) -> Option<String>) -> Result<()> {
        let (by, expected) = self.0.get_or_insert_with(|| (side.to_string(), actual.clone()));
        match compare(expected, actual) {
            Some(difference) => bail!("{side} disagrees with {by}: {difference}"),
            None => Ok(()),
        }
    }
}

impl Expected<Answer> {
    /// Returns the recorded answer of DuckDB to a query, as [`crate::places::recorded_answer`] has read it.
    pub fn recorded(text: Option<&str>) -> Result<Expected<Answer>> {
        let answer = text.map(Answer::from_recorded).transpose().map_err(anyhow::Error::msg)?;
        Ok(Expected(answer.map(|answer| ("the recorded answer".to_string(), answer))))
    }

    /// Checks the answer of a side to `sql`, whose ORDER BY must have been obeyed.
    ///
    /// # Errors
    /// Fails with a description of the difference.
    pub fn check_ordered(&mut self, side: &str, actual: &Answer, sql: &str) -> Result<()> {
        let keys = answers::order_keys(sql);
        self.check_by(side, actual, |expected, actual| {
            answers::difference(expected, actual)
                .or_else(|| answers::order_difference(&keys, expected, actual))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Expected;
    use crate::digest::Digest;

    #[test]
    fn the_first_answer_is_that_of_all() {
        let digest = |rows| Digest { rows, digest: String::new() };
        let mut expected = Expected::default();
        assert!(expected.check("one", &digest(1)).is_ok() && expected.check("other", &digest(1)).is_ok());
        let error = expected.check("third", &digest(2)).expect_err("it differs").to_string();
        assert!(error.starts_with("third disagrees with one: "), "{error}");
    }
}
