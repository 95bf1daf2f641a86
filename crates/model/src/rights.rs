//! Access rules: the operations (verbs) that a node offers, the right that each needs, and whether it concerns other
//! tenants than the caller's.
//!
//! Invariant: [`VERBS`] is the only table of access rules. `Caller` in `crates/node` checks it before it does anything.

use crate::{Error, ErrorKind, Result};
use std::str::FromStr;

/// The right of a caller. Each right includes the rights before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// May list and query tables, and read keys.
    Read,
    /// May also load, change and drop tables, views and schemas, and change keys.
    Write,
    /// May also list and stop programs of other tenants, drop their tables and views, and back up the data directory.
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

/// The tenants whose data an operation shows or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Only the caller's tenant.
    Own,
    /// Every tenant.
    All,
}

macro_rules! verbs {
    ($($(#[doc = $doc:literal])* $verb:ident: $right:ident, $reach:ident;)*) => {
        /// An operation that a caller can request of a node.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Verb { $($(#[doc = $doc])* $verb,)* }

        /// The lowest right that each verb needs, and its reach.
        pub const VERBS: [(Verb, Right, Reach); [$(Verb::$verb),*].len()] =
            [$((Verb::$verb, Right::$right, Reach::$reach),)*];

        impl Verb {
            /// Returns the lowest right that the verb needs.
            pub fn right(self) -> Right {
                match self { $(Verb::$verb => Right::$right,)* }
            }
        }
    };
}

verbs! {
    /// List or describe tables and views.
    Describe: Read, Own;
    /// Return the statistics of a table.
    Statistics: Read, Own;
    /// Answer how a program would be executed.
    Prepare: Read, Own;
    /// Run a program.
    Execute: Read, Own;
    /// Create, extend or replace a table.
    Load: Write, Own;
    /// Return the outcome of a load, which ends one whose rows have not all arrived.
    LoadOutcome: Write, Own;
    /// Change a table's columns or name.
    Alter: Write, Own;
    /// Change or remove rows of a table.
    Change: Write, Own;
    /// Drop a table.
    Drop: Write, Own;
    /// Create or replace a view.
    CreateView: Write, Own;
    /// Drop a view.
    DropView: Write, Own;
    /// Create or drop a schema.
    ChangeSchemas: Write, Own;
    /// Return the state of the node as far as it concerns the caller's tenant.
    Status: Read, Own;
    /// Return the state of all tenants.
    StatusOfAll: Admin, All;
    /// List the tables and views of another tenant.
    DescribeOfAll: Admin, All;
    /// Drop a table or view of another tenant.
    DropOfAll: Admin, All;
    /// List the programs of the caller's tenant that are in progress.
    Queries: Read, Own;
    /// List the programs of all tenants that are in progress.
    QueriesOfAll: Admin, All;
    /// Stop a program of the caller's tenant.
    CancelQuery: Read, Own;
    /// Stop a program of another tenant.
    CancelQueryOfAll: Admin, All;
    /// Read the files of the data directory.
    Backup: Admin, All;
    /// Read keys and their values.
    ReadKeys: Read, Own;
    /// Change keys and their values.
    WriteKeys: Write, Own;
}

impl Verb {
    /// Checks that `right` is enough for the verb.
    ///
    /// # Errors
    /// `Denied` if it is not.
    pub fn check(self, right: Right) -> Result<()> {
        if right >= self.right() {
            return Ok(());
        }
        let message =
            format!("this takes the right to {}, and the token is for {}", self.right().name(), right.name());
        Err(Error::new(ErrorKind::Denied, message).advise("ask whoever runs the pool for another token"))
    }
}
