//! What is under way at a pool, as `farpool queries` shows it.

use serde::{Deserialize, Serialize};

/// One program, from the moment it was asked for to its last row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryInfo {
    /// Names it, for as long as the node runs.
    pub id: u64,
    /// Whose it is.
    pub tenant: String,
    /// What the token is called by which its client came in; empty if it has no name.
    pub token: String,
    /// What the client says it is.
    pub client: String,
    /// Where the client is.
    pub peer: String,
    /// The table that it reads.
    pub table: String,
    /// What it does, or waits for.
    pub state: QueryState,
    /// Nanoseconds since it was asked for.
    pub elapsed_ns: u64,
    /// CPU time so far, in nanoseconds.
    pub cpu_ns: u64,
    /// Rows returned so far.
    pub rows: u64,
    /// Bytes sent so far, or that wait to leave.
    pub bytes: u64,
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueryState {
    /// It waits for its turn among the programs of its tenant.
    WaitingForTurn,
    /// It waits for memory.
    WaitingForMemory,
    /// It runs, as far as there are threads for it.
    Running,
    /// Its rows wait for whoever is to read them.
    WaitingForReader,
}

impl QueryState {
    /// Every state, in the order of its number on the wire.
    pub const ALL: [QueryState; 4] = [
        QueryState::WaitingForTurn,
        QueryState::WaitingForMemory,
        QueryState::Running,
        QueryState::WaitingForReader,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            QueryState::WaitingForTurn => "waiting for its turn",
            QueryState::WaitingForMemory => "waiting for memory",
            QueryState::Running => "running",
            QueryState::WaitingForReader => "waiting for its reader",
        }
    }
}
