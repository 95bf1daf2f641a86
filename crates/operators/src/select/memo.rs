//! Results of a filter on one row group that are kept between steps, so that each step can bind the filter again at
//! little cost.
//!
//! Invariant: results are stored in the order of a pre-order walk over the tree of the filter: one list for
//! conditions, and one for ANDs and ORs.

use super::compile::{Filter, Form, Leaf, Predicate};
use super::order::Order;
use crate::evaluate::Frame;
use crate::pace::Pace;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use farpool_columns::{Dictionary, RowGroup};
use farpool_model::{Error, Result, limits};
use std::slice::Iter;

/// State of a filter on one row group, kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct FilterMemo {
    /// For each AND and OR, the evaluation order of its operands as learnt so far.
    orders: Vec<Order>,
    /// For each condition, its results on dictionary entries; `None` if it is not evaluated on a dictionary.
    matches: Vec<Option<Matches>>,
    /// Number of conditions that were evaluated on their dictionaries completely.
    asked: usize,
}

/// Results of a condition on the entries of a dictionary, as far as they were evaluated.
#[derive(Debug)]
struct Matches {
    bits: BooleanBufferBuilder,
    /// Whether the condition is NULL for some entry. Then the dictionary codes do not decide the condition.
    has_null: bool,
}

/// Position in a memo of the AND, OR or condition that is bound next.
pub(super) struct Known<'a> {
    orders: Iter<'a, Order>,
    matches: Iter<'a, Option<Matches>>,
}

impl Filter {
    /// Evaluates the filter's conditions on the dictionaries of `group` and keeps the results for [`Filter::bind`].
    /// Returns false if the step ends before that is finished.
    ///
    /// # Errors
    /// `Invalid` when a condition fails on a value, which does not happen because only conditions that cannot fail
    /// are evaluated on dictionaries.
    pub(crate) fn ask_dictionaries(
        &self,
        group: &RowGroup,
        memo: &mut FilterMemo,
        pace: &mut dyn Pace,
    ) -> Result<bool> {
        let mut leaves = Vec::new();
        let is_new = memo.orders.is_empty() && memo.matches.is_empty();
        visit(&self.root, &mut |predicate| match predicate {
            Predicate::And(of) | Predicate::Or(of) if is_new => {
                memo.orders.push(Order::new(of.costs.clone()));
            }
            Predicate::Leaf(leaf) => leaves.push(&**leaf),
            _ => {}
        });
        memo.matches.resize_with(leaves.len(), || None);
        for (leaf, matches) in leaves.into_iter().zip(&mut memo.matches).skip(memo.asked) {
            if let Some((column, dictionary)) = leaf.dictionary(group)
                && !ask(leaf, column, dictionary, matches, pace)?
            {
                return Ok(false);
            }
            memo.asked += 1;
        }
        Ok(true)
    }
}

impl Leaf {
    /// Returns the column of a condition that is evaluated on dictionary entries instead of rows, and the dictionary;
    /// `None` for other conditions.
    pub(super) fn dictionary<'a>(&self, group: &'a RowGroup) -> Option<(usize, Dictionary<'a>)> {
        let column = match &self.form {
            Form::Bytes { column, .. } => *column,
            Form::Keys { columns, .. } if columns.len() == 1 => columns[0],
            _ => return None,
        };
        let dictionary = group.chunks[column].dictionary().filter(|_| !self.general.is_fallible())?;
        Some((column, dictionary))
    }
}

/// Evaluates the condition on the dictionary entries for which this has not been done. Returns false if the step ends
/// before that is finished.
fn ask(
    leaf: &Leaf,
    column: usize,
    dictionary: Dictionary<'_>,
    matches: &mut Option<Matches>,
    pace: &mut dyn Pace,
) -> Result<bool> {
    let values = dictionary.values();
    let new = || Matches { bits: BooleanBufferBuilder::new(values.len()), has_null: false };
    let matches = matches.get_or_insert_with(new);
    while matches.bits.len() < values.len() {
        let count = limits::BLOCK_ROWS.min(values.len() - matches.bits.len());
        let piece = values.slice(matches.bits.len(), count);
        let found = leaf.general.array(&Frame::new(count, vec![(column, piece)]))?;
        matches.has_null |= found.null_count() > 0;
        matches.bits.append_buffer(found.as_boolean().values());
        if matches.bits.len() < values.len() && pace.ends() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl FilterMemo {
    /// Returns a cursor at the first AND or OR and the first condition.
    pub(super) fn known(&self) -> Known<'_> {
        Known { orders: self.orders.iter(), matches: self.matches.iter() }
    }
}

impl<'a> Known<'a> {
    /// Returns the evaluation order of the next AND or OR.
    pub(super) fn order(&mut self) -> Result<&'a Order> {
        self.orders.next().ok_or_else(|| Error::internal("a junction of another filter"))
    }

    /// Returns for which dictionary entries the next condition is true; `None` if the dictionary does not decide it.
    pub(super) fn matches(&mut self) -> Result<Option<BooleanBuffer>> {
        let matches = self.matches.next().ok_or_else(|| Error::internal("a condition of another filter"))?;
        let told = matches.as_ref().filter(|matches| !matches.has_null);
        Ok(told.map(|matches| matches.bits.finish_cloned()))
    }
}

fn visit<'a>(predicate: &'a Predicate, see: &mut dyn FnMut(&'a Predicate)) {
    see(predicate);
    match predicate {
        Predicate::And(of) | Predicate::Or(of) => of.parts.iter().for_each(|part| visit(part, see)),
        Predicate::Not(inner) => visit(inner, see),
        Predicate::Known(_) | Predicate::IsNull(_) | Predicate::Leaf(_) => {}
    }
}
