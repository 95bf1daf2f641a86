//! Who may do what: each verb of the node, the right that it takes, and whose things it shows or changes.
//!
//! Invariant: [`VERBS`] is the one place where this stands. [`crate::Caller`] looks here before it does anything.

use farpool_model::{Error, ErrorKind, Result};
use std::str::FromStr;

/// What a caller may do. Each right includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Look at tables and run programs.
    Read,
    /// Load, change and drop tables, and views, too.
    Write,
    /// See what other tenants do too.
    Admin,
}

impl Right {
    /// Every right.
    pub const ALL: [Right; 3] = [Right::Read, Right::Write, Right::Admin];

    /// As people write it, in the file of who may connect too.
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
        // What stands there may be a token in the wrong place: it is not repeated.
        found.ok_or_else(|| Error::invalid("a role is one of read, write and admin"))
    }
}

/// Something that a caller can ask of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// List or describe tables and views.
    Describe,
    /// Tell what the rows of a table hold.
    Statistics,
    /// Say what would be done of a program.
    Prepare,
    /// Run a program.
    Execute,
    /// Make, extend or replace a table.
    Load,
    /// Tell what became of a load, which ends one whose rows have not all come.
    LoadOutcome,
    /// Give a table other columns or another name.
    Alter,
    /// Change or remove rows of a table.
    Change,
    /// Drop a table.
    Drop,
    /// Keep a view, or another one in its place.
    CreateView,
    /// Drop a view.
    DropView,
    /// Tell the state of the node as far as it concerns the caller's tenant.
    Status,
    /// Tell the state of all tenants.
    StatusOfAll,
    /// List the tables and views of another tenant.
    DescribeOfAll,
    /// Drop a table or view of another tenant.
    DropOfAll,
    /// Tell what is under way for the caller's tenant.
    Queries,
    /// Tell what is under way for all tenants.
    QueriesOfAll,
    /// End a program of the caller's tenant.
    CancelQuery,
    /// End a program of another tenant.
    CancelQueryOfAll,
}

/// Whose things a verb shows or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Those of the caller's tenant.
    Own,
    /// Those of every tenant.
    All,
}

/// The verbs, the least right for each, and its reach.
pub const VERBS: [(Verb, Right, Reach); 19] = [
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
    (Verb::Status, Right::Read, Reach::Own),
    (Verb::StatusOfAll, Right::Admin, Reach::All),
    (Verb::DescribeOfAll, Right::Admin, Reach::All),
    (Verb::DropOfAll, Right::Admin, Reach::All),
    (Verb::Queries, Right::Read, Reach::Own),
    (Verb::QueriesOfAll, Right::Admin, Reach::All),
    (Verb::CancelQuery, Right::Read, Reach::Own),
    (Verb::CancelQueryOfAll, Right::Admin, Reach::All),
];

impl Verb {
    /// The least right that the verb takes; a verb that is not in the table takes the highest.
    pub fn right(self) -> Right {
        let row = VERBS.iter().find(|(verb, _, _)| *verb == self);
        row.map_or(Right::Admin, |(_, right, _)| *right)
    }

    /// # Errors
    /// `Denied` when `right` is not enough.
    pub fn check(self, right: Right) -> Result<()> {
        if right >= self.right() {
            return Ok(());
        }
        let message =
            format!("this takes the right to {}, and the token is for {}", self.right().name(), right.name());
        Err(Error::new(ErrorKind::Denied, message).advise("ask whoever runs the pool for another token"))
    }
}
