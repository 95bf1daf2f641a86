//! Evaluation order of the operands of an AND or OR in a filter, learnt from batch to batch.
//!
//! Operands that decide many rows at little cost are evaluated first: the rank of an operand is its cost divided by
//! the fraction of rows that it decides (Hellerstein and Stonebraker, "Predicate Migration", SIGMOD 1993, section
//! 3.1). Invariant: an operand that may fail comes after all operands that cannot, in the order of the query.

use std::cell::{Cell, RefCell};

/// Evaluation order of the operands of one AND or OR.
#[derive(Debug)]
pub(super) struct Order {
    places: RefCell<Vec<usize>>,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    /// Cost relative to the other operands; `u32::MAX` for an operand that may fail.
    cost: u32,
    asked: Cell<u64>,
    decided: Cell<u64>,
}

impl Order {
    /// Creates the evaluation order of operands with these costs, which ascend as in [`super::compile::Parts`].
    pub(super) fn new(costs: Vec<u32>) -> Order {
        let part = |cost| Part { cost, asked: Cell::new(0), decided: Cell::new(0) };
        let places = RefCell::new((0..costs.len()).collect());
        Order { places, parts: costs.into_iter().map(part).collect() }
    }

    /// Returns the index of the operand to evaluate as number `turn`.
    pub(super) fn part(&self, turn: usize) -> usize {
        self.places.borrow()[turn]
    }

    /// Records that an operand was evaluated on `asked` rows and decided the outcome for `decided` of them.
    pub(super) fn learn(&self, part: usize, asked: usize, decided: usize) {
        let part = &self.parts[part];
        part.asked.set(part.asked.get() + asked as u64);
        part.decided.set(part.decided.get() + decided as u64);
    }

    /// Sorts the operands by their ranks, from what was learnt so far.
    pub(super) fn settle(&self) {
        self.places.borrow_mut().sort_by(|a, b| self.parts[*a].rank().total_cmp(&self.parts[*b].rank()));
    }
}

impl Part {
    fn rank(&self) -> f64 {
        if self.cost == u32::MAX {
            return f64::INFINITY;
        }
        // Starts at one half (32 of 64 imaginary rows), so that the first few rows do not change the order.
        let share = (self.decided.get() as f64 + 32.0) / (self.asked.get() as f64 + 64.0);
        f64::from(self.cost) / share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_decide_more_for_less_go_first_and_those_that_may_fail_last() {
        let order = Order::new(vec![u32::MAX, 10, 10, 40, u32::MAX]);
        let places = |order: &Order| (0..5).map(|turn| order.part(turn)).collect::<Vec<_>>();
        order.learn(1, 8192, 80);
        order.learn(2, 8192, 4000);
        order.learn(3, 8192, 8000);
        order.learn(0, 100, 100);
        order.settle();
        assert_eq!(places(&order), [2, 3, 1, 0, 4]);
        order.learn(2, 1_000_000, 0);
        order.settle();
        assert_eq!(places(&order), [3, 1, 2, 0, 4]);
    }
}
