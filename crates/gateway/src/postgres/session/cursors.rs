//! Cursors: queries whose rows FETCH returns in parts.

use super::extended::{Portal, unknown_portal};
use super::{Outcome, Place, Session, Started, columns};
use crate::postgres::commands::{Command, Direction, Kind, command};
use farpool_datafusion::Parameters;
use farpool_postgres::failure::{Failure, code};
use farpool_postgres::messages::Format;
use farpool_postgres::output::{Column, TransactionStatus};
use std::sync::Arc;

/// FETCH or MOVE of a cursor.
#[derive(Debug)]
pub(super) struct Over {
    name: String,
    rows_max: u64,
    moves: bool,
}

impl Over {
    /// Returns whether rows are left out, and not returned.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// Returns the columns of the cursor.
    pub fn columns(&self, session: &Session) -> Result<Vec<Column>, Failure> {
        let portal = session.portals.get(&self.name).ok_or_else(|| unknown_cursor(&self.name))?;
        let schema = portal.prepared.schema.as_ref().ok_or_else(|| unknown_cursor(&self.name))?;
        Ok(columns(schema, portal.formats()))
    }
}

fn unknown_cursor(name: &str) -> Failure {
    let failure = unknown_portal(name);
    Failure { message: format!("cursor \"{name}\" does not exist"), ..failure }
}

impl Session {
    /// Carries out DECLARE: begins the query, whose rows wait.
    pub(super) async fn declare(
        &mut self,
        name: &str,
        (is_binary, is_held): (bool, bool),
        text: &str,
        values: Parameters,
    ) -> Outcome {
        if self.transaction.status() == TransactionStatus::Idle && !is_held {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(Failure::new(code::NO_ACTIVE_TRANSACTION, message).into());
        }
        if self.portals.contains_key(name) {
            let message = format!("cursor \"{name}\" already exists");
            return Err(Failure::new(code::DUPLICATE_CURSOR, message).into());
        }
        let query = command(text)?;
        if query != Command::Engine(Kind::Rows) {
            return Err(Failure::new(code::SYNTAX_ERROR, "a cursor needs a query").into());
        }
        let started = self.run_engine(Kind::Rows, Place { text, offset: 0 }, values).await;
        self.entry.running.end();
        let Started::Rows(running) = started? else {
            return Err(Failure::new(code::SYNTAX_ERROR, "a cursor needs a query that returns rows").into());
        };
        let formats = if is_binary { vec![Format::Binary] } else { Vec::new() };
        let prepared = super::prepared::Prepared {
            text: text.to_string(),
            command: query,
            parameters: Vec::new(),
            schema: Some(Arc::new(running.schema().clone())),
        };
        let portal = Portal::cursor(Arc::new(prepared), running, formats, is_held);
        self.add_portal(name.to_string(), portal)
    }

    /// Returns what FETCH or MOVE goes over.
    pub(super) fn over(&self, name: &str, direction: Direction, moves: bool) -> Outcome<Over> {
        if !self.portals.contains_key(name) {
            return Err(unknown_cursor(name).into());
        }
        let rows_max = match direction {
            Direction::Forward(rows) => rows,
            Direction::All => u64::MAX,
        };
        Ok(Over { name: name.to_string(), rows_max, moves })
    }

    /// Carries out FETCH or MOVE. `formats` are those that the client wants for FETCH; the cursor's own without any.
    /// Returns the tag.
    pub(super) async fn go_over(&mut self, over: Over, formats: &[Format]) -> Outcome<String> {
        let Over { name, rows_max, moves } = over;
        let mut portal = self.portals.remove(&name).ok_or_else(|| unknown_cursor(&name))?;
        let mut count = 0;
        let own = portal.formats().to_vec();
        let formats = if formats.is_empty() { &own } else { formats };
        if let Some(running) = portal.running() {
            running.go_on(formats, self.deadline())?;
            self.entry.running.resume(&running.statement);
            let before = running.count();
            let has_ended = self.go_through(running, rows_max, !moves).await;
            self.entry.running.end();
            count = running.count() - before;
            if has_ended? {
                portal.end();
            }
        }
        self.portals.insert(name, portal);
        Ok(format!("{} {count}", if moves { "MOVE" } else { "FETCH" }))
    }

    /// Carries out CLOSE; of all cursors without a name.
    pub(super) fn close_cursors(&mut self, name: Option<&str>) -> Outcome {
        match name {
            None => self.portals.clear(),
            Some(name) => {
                self.portals.remove(name).ok_or_else(|| unknown_cursor(name))?;
            }
        }
        Ok(())
    }
}
