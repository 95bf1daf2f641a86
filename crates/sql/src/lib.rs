//! The meaning of SQL: turns the text of a statement into a plan that means what the text means in PostgreSQL and
//! DuckDB. Provides the functions, types, rules and limits that such plans need in DataFusion. This crate knows neither
//! pools nor files.
//!
//! A statement passes through [`dialect::parse`], [`dialect::plan`], and the rules of this crate before and after the
//! engine's. It runs within a [`Scope`], which can stop it. Errors are phrased in terms of the statement ([`error`]).
//!
//! Invariant: a statement means the same whether a pool or the engine evaluates it. A form that the engine evaluates
//! incorrectly is rewritten to one that it evaluates correctly, or refused.

#![forbid(unsafe_code)]

pub mod aggregates;
mod bounded;
pub mod checked;
pub mod dialect;
pub mod error;
mod exclusions;
mod functions;
mod grouping_sets;
mod in_lists;
pub mod interrupt;
mod json_text;
pub mod literal;
mod messages;
pub mod names;
mod one_zero;
mod parameters;
mod pieces;
mod postgres;
pub mod restricted;
mod set_all;
mod shifts;
mod statements;
mod subqueries;
pub mod summarize;
mod types;
mod using;
mod written;
mod zones;

pub use bounded::{BoundedFunctions, REPEATED_ROWS, bounded, call_bytes_max, range_bytes, repeats_rows};
pub use exclusions::Exclusions;
pub use functions::LambdaParameters;
pub use grouping_sets::KeysOfSets;
pub use in_lists::members_of_each_row;
pub use interrupt::{Interrupt, Scope};
pub use json_text::{check_json, json_float, json_texts, json_writer};
pub use one_zero::{OneZero, OneZeroOfConstants};
pub use parameters::Parameters;
pub use pieces::{Piece, PieceKind, is_whole_sql, sql_pieces};
pub use postgres::PostgresMeaning;
pub use statements::{GivenTable, Statement, split_statements};
pub use subqueries::{OncePlanner, UnnestSubqueries};
pub use types::{NamedTypes, OperandTypes};
pub use using::MergedKeys;

use datafusion::prelude::SessionContext;

/// Registers all functions of this crate, some of them in place of the engine's.
pub fn register(context: &SessionContext) {
    aggregates::register(context);
    functions::register(context);
    bounded::register(context);
    set_all::register(context);
    shifts::register(context);
    types::register(context);
    written::register(context);
    zones::register(context);
}
