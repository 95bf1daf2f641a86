//! The types that all other crates share: schemas, pushed-down programs, planning answers, execution statistics
//! (receipts), limits, errors.
//!
//! Invariant: this crate does no IO and depends on no query engine. A [`Program`] is plain data; its semantics are
//! documented at its types, and the operators, the planner and the wire format all follow that text.

#![forbid(unsafe_code)]

pub mod aggregate;
mod alter;
pub mod answer;
mod backup;
mod brief;
pub mod cast;
mod clock;
pub mod compose;
pub mod cpu;
mod date_part;
pub mod error;
pub mod expr;
mod facts;
pub mod files;
pub mod form;
mod given;
mod integer_types;
pub mod key_filter;
pub mod key_set;
mod like;
pub mod limits;
pub mod literal;
mod load;
pub mod lookup;
pub mod name;
mod opaque;
pub mod order;
mod parameters;
pub mod partial;
mod pattern;
pub mod program;
pub mod query;
pub mod receipt;
pub mod rights;
pub mod schema;
mod sql_type;
pub mod statistic;
pub mod status;
pub mod table;
mod tier;
mod type_number;
mod view;
mod weaken;

#[cfg(test)]
mod tests;

pub use aggregate::{Accumulation, Aggregate, AggregateFunction, BitOp, Fold, Pick, StateFunction};
pub use alter::{Altered, TableChange, alter};
pub use answer::{Answer, Operator, OperatorAnswer, Prepared};
pub use backup::{BackupFile, BackupFiles};
pub use brief::brief;
pub use clock::Clock;
pub use date_part::DatePart;
pub use error::{Error, ErrorKind, Result};
pub use expr::{ArithmeticOp, CompareOp, Expr};
pub use facts::{Columns, Facts, arithmetic_type};
pub use files::{CharacterEncoding, FileCompression, FileFormat, FileSpec, OptionValue, ReadOptions};
pub use form::{Compression, Encoding, ResultForm};
pub use given::GivenRows;
pub use key_filter::KeyFilter;
pub use key_set::KeySet;
pub use like::LikePieces;
pub use literal::{Literal, Value};
pub use load::{LoadId, LoadMode, LoadOptions, LoadOutcome, LoadedVersion, Residency};
pub use lookup::{Lookup, LookupKey, LookupKind};
pub use name::{SchemaName, TableName, TenantName, Version};
pub use opaque::Opaque;
pub use order::SortKey;
pub use partial::PartialForm;
pub use pattern::Pattern;
pub use program::{NamedExpr, Output, Program};
pub use query::{QueryInfo, QueryState};
pub use receipt::{LookupReceipt, Receipt};
pub use schema::SchemaFingerprint;
pub use sql_type::{quoted, sql_name};
pub use statistic::{Counters, NullHandling, SketchParameters};
pub use status::Status;
pub use table::{ColumnStates, ColumnStatistics, MomentsState, Spread, TableInfo, TableStatistics};
pub use tier::Tier;
pub use type_number::{TYPE_NUMBERS, numbered_type, numbered_unit, type_number, unit_number};
pub use view::{Listing, Relation, View};
pub use weaken::{Weakened, weaken};
