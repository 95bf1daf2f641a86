//! Access rules: each verb of the node, the right that it needs, and whether it reaches beyond the caller's
//! tenant.
//!
//! Invariant: [`VERBS`] is the only place that defines them. [`crate::Caller`] checks it before it does
//! anything.

use farpool_model::{Error, ErrorKind, Result};
use std::str::FromStr;

/// The right of a caller. Each right includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// May look at tables and run programs.
    Read,
    /// May also load, change and drop tables, views and schemas.
    Write,
    /// May also see and stop what other tenants do, and drop their tables and views.
    Admin,
}

impl Right {
    /// Every right.
    pub const ALL: [Right; 3] = [Right::Read, Right::Write, Right::Admin];

    /// Returns the name of the right, as in the access file.
    pub fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Admin => "admin",
        }
    }
}

impl FromStr for Right {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Right::ALL.into_iter().find(|right| right.name() == text);
        // The text may be a token in the wrong place, so the message does not contain it.
        found.ok_or_else(|| Error::invalid("a role is one of read, write and admin"))
    }
}

/// An operation that a caller can request of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// List or describe tables and views.
    Describe,
    /// Return the statistics of a table.
    Statistics,
    /// Answer how a program would be executed.
    Prepare,
    /// Run a program.
    Execute,
    /// Create, extend or replace a table.
    Load,
    /// Return the outcome of a load, which ends one whose rows have not all arrived.
    LoadOutcome,
    /// Change a table's columns or name.
    Alter,
    /// Change or remove rows of a table.
    Change,
    /// Drop a table.
    Drop,
    /// Create or replace a view.
    CreateView,
    /// Drop a view.
    DropView,
    /// Create or drop a schema.
    ChangeSchemas,
    /// Return the state of the node as far as it concerns the caller's tenant.
    Status,
    /// Return the state of all tenants.
    StatusOfAll,
    /// List the tables and views of another tenant.
    DescribeOfAll,
    /// Drop a table or view of another tenant.
    DropOfAll,
    /// List the programs of the caller's tenant that are in progress.
    Queries,
    /// List the programs of all tenants that are in progress.
    QueriesOfAll,
    /// Stop a program of the caller's tenant.
    CancelQuery,
    /// Stop a program of another tenant.
    CancelQueryOfAll,
    /// Read the files of the data directory.
    Backup,
    /// Read keys and their values.
    ReadKeys,
    /// Change keys and their values.
    WriteKeys,
}

/// The tenants whose data a verb shows or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Only the caller's tenant.
    Own,
    /// Every tenant.
    All,
}

/// The lowest right that each verb needs, and its reach.
pub const VERBS: [(Verb, Right, Reach); 23] = [
    (Verb::Describe, Right::Read, Reach::Own),
    (Verb::Statistics, Right::Read, Reach::Own),
    (Verb::Prepare, Right::Read, Reach::Own),
    (Verb::Execute, Right::Read, Reach::Own),
    (Verb::Load, Right::Write, Reach::Own),
    (Verb::LoadOutcome, Right::Write, Reach::Own),
    (Verb::Alter, Right::Write, Reach::Own),
    (Verb::Change, Right::Write, Reach::Own),
    (Verb::Drop, Right::Write, Reach::Own),
    (Verb::CreateView, Right::Write, Reach::Own),
    (Verb::DropView, Right::Write, Reach::Own),
    (Verb::ChangeSchemas, Right::Write, Reach::Own),
    (Verb::Status, Right::Read, Reach::Own),
    (Verb::StatusOfAll, Right::Admin, Reach::All),
    (Verb::DescribeOfAll, Right::Admin, Reach::All),
    (Verb::DropOfAll, Right::Admin, Reach::All),
    (Verb::Queries, Right::Read, Reach::Own),
    (Verb::QueriesOfAll, Right::Admin, Reach::All),
    (Verb::CancelQuery, Right::Read, Reach::Own),
    (Verb::CancelQueryOfAll, Right::Admin, Reach::All),
    (Verb::Backup, Right::Admin, Reach::All),
    (Verb::ReadKeys, Right::Read, Reach::Own),
    (Verb::WriteKeys, Right::Write, Reach::Own),
];

impl Verb {
    /// Returns the lowest right that the verb needs; the highest for a verb that is not in the table.
    pub fn right(self) -> Right {
        let row = VERBS.iter().find(|(verb, _, _)| *verb == self);
        row.map_or(Right::Admin, |(_, right, _)| *right)
    }

    /// Checks that `right` is enough for the verb.
    ///
    /// # Errors
    /// `Denied` when it is not.
    pub fn check(self, right: Right) -> Result<()> {
        if right >= self.right() {
            return Ok(());
        }
        let message =
            format!("this takes the right to {}, and the token is for {}", self.right().name(), right.name());
        Err(Error::new(ErrorKind::Denied, message).advise("ask whoever runs the pool for another token"))
    }
}
