//! The programs that a pool is running, as `farpool queries` lists them.

use serde::{Deserialize, Serialize};

/// One running program, between its request and its last row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryInfo {
    /// Id of the program, unique while the node runs.
    pub id: u64,
    /// The tenant that the program belongs to.
    pub tenant: String,
    /// The name of the token with which the client authenticated; empty if it has no name.
    pub token: String,
    /// The client's description of itself.
    pub client: String,
    /// The network address of the client.
    pub peer: String,
    /// The table that the program reads.
    pub table: String,
    /// The program's current state.
    pub state: QueryState,
    /// Nanoseconds since the program was requested.
    pub elapsed_ns: u64,
    /// CPU time in nanoseconds that the program has used so far.
    pub cpu_ns: u64,
    /// Rows returned so far.
    pub rows: u64,
    /// Bytes of the result sent so far or waiting to be sent.
    pub bytes: u64,
}

/// The state of a running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueryState {
    /// Waits because its tenant already runs as many programs as it may at once.
    WaitingForTurn,
    /// Waits for working memory.
    WaitingForMemory,
    /// Runs, if worker threads are free.
    Running,
    /// The program has rows that the client has not read yet.
    WaitingForReader,
}

impl QueryState {
    /// Every state, in the order of their codes on the wire.
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
