//! The programs in progress at a pool, as `farpool queries` shows them.

use serde::{Deserialize, Serialize};

/// One program, from its request to its last row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryInfo {
    /// Identifies the program as long as the node runs.
    pub id: u64,
    /// The tenant that the program belongs to.
    pub tenant: String,
    /// The name of the token that the client authenticated with; empty if it has no name.
    pub token: String,
    /// The name that the client gave itself.
    pub client: String,
    /// The client's address.
    pub peer: String,
    /// The table that it reads.
    pub table: String,
    /// The program's current state.
    pub state: QueryState,
    /// Nanoseconds since the program was requested.
    pub elapsed_ns: u64,
    /// CPU time so far, in nanoseconds.
    pub cpu_ns: u64,
    /// Rows returned so far.
    pub rows: u64,
    /// Bytes sent so far or waiting to be sent.
    pub bytes: u64,
}

/// The state of a program in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueryState {
    /// Waits for its turn among the programs of its tenant.
    WaitingForTurn,
    /// Waits for memory.
    WaitingForMemory,
    /// Runs, as far as worker threads are free for it.
    Running,
    /// Has rows waiting for the client to read them.
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

    /// Returns the state's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            QueryState::WaitingForTurn => "waiting for its turn",
            QueryState::WaitingForMemory => "waiting for memory",
            QueryState::Running => "running",
            QueryState::WaitingForReader => "waiting for its reader",
        }
    }
}
