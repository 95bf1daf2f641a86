//! Three-valued logic on bitmaps.

use crate::bits;

/// The outcome of a predicate on the rows of a batch: a bit where it is true and, if it can be NULL, a bit
/// where it is NULL. No row has both.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    pub(super) yes: Vec<u64>,
    pub(super) null: Option<Vec<u64>>,
}

impl Truth {
    /// The same outcome for all rows.
    pub(super) fn known(value: Option<bool>, rows: usize) -> Truth {
        match value {
            Some(true) => Truth { yes: bits::ones(rows), null: None },
            Some(false) => Truth { yes: bits::zeros(rows), null: None },
            None => Truth { yes: bits::zeros(rows), null: Some(bits::ones(rows)) },
        }
    }

    /// True at `yes`, except that rows outside `valid` are NULL.
    pub(super) fn with_validity(mut yes: Vec<u64>, valid: Option<Vec<u64>>, rows: usize) -> Truth {
        if let Some(valid) = &valid {
            bits::and(&mut yes, valid);
        }
        Truth { yes, null: valid.map(|valid| bits::not(&valid, rows)) }
    }

    /// The negation.
    pub(super) fn not(self, rows: usize) -> Truth {
        let mut no = bits::not(&self.yes, rows);
        if let Some(null) = &self.null {
            bits::and_not(&mut no, null);
        }
        Truth { yes: no, null: self.null }
    }

    /// `self AND other`.
    pub(super) fn and(mut self, other: Truth) -> Truth {
        if self.null.is_none() && other.null.is_none() {
            bits::and(&mut self.yes, &other.yes);
            return self;
        }
        // NULL where neither is false and not both are true.
        let mut null = self.not_false();
        bits::and(&mut null, &other.not_false());
        bits::and(&mut self.yes, &other.yes);
        bits::and_not(&mut null, &self.yes);
        Truth { yes: self.yes, null: Some(null) }
    }

    /// `self OR other`.
    pub(super) fn or(mut self, other: Truth) -> Truth {
        let null = match (self.null.take(), other.null) {
            (None, None) => None,
            (Some(null), None) | (None, Some(null)) => Some(null),
            (Some(mut l), Some(r)) => {
                bits::or(&mut l, &r);
                Some(l)
            }
        };
        bits::or(&mut self.yes, &other.yes);
        let null = null.map(|mut null| {
            bits::and_not(&mut null, &self.yes);
            null
        });
        Truth { yes: self.yes, null }
    }

    /// Where it is true or NULL.
    pub(super) fn not_false(&self) -> Vec<u64> {
        let mut bits = self.yes.clone();
        if let Some(null) = &self.null {
            bits::or(&mut bits, null);
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Option<bool>; 3] {
        [Some(false), Some(true), None]
    }

    fn value(truth: &Truth) -> Option<bool> {
        let null = truth.null.as_ref().is_some_and(|null| bits::get(null, 0));
        assert!(!(null && bits::get(&truth.yes, 0)), "no row is both true and NULL");
        (!null).then(|| bits::get(&truth.yes, 0))
    }

    #[test]
    fn the_truth_tables_are_those_of_sql() {
        for left in all() {
            assert_eq!(value(&Truth::known(left, 1).not(1)), left.map(|v| !v));
            for right in all() {
                let and = match (left, right) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
                let or = match (left, right) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                };
                assert_eq!(value(&Truth::known(left, 1).and(Truth::known(right, 1))), and);
                assert_eq!(value(&Truth::known(left, 1).or(Truth::known(right, 1))), or);
            }
        }
    }
}
