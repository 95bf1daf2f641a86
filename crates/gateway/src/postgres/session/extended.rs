//! The extended protocol: Parse, Bind, Describe, Execute and Close, with portals that may stop between rows.

use super::engine::Running;
use super::explain::Explained;
use super::prepared::Prepared;
use super::{Outcome, Place, Session, Started, columns, named};
use crate::postgres::commands::{Command, Kind, command};
use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use farpool_datafusion::Parameters;
use farpool_model::limits;
use farpool_postgres::failure::{Failure, code};
use farpool_postgres::messages::{Bind, Format, Target, format_at};
use farpool_postgres::values::array_of_one;
use std::sync::Arc;

/// A prepared statement with values for its parameters, which runs once.
pub(super) struct Portal {
    pub prepared: Arc<Prepared>,
    values: Vec<ArrayRef>,
    formats: Vec<Format>,
    state: State,
    /// Whether the portal outlives its transaction.
    pub is_held: bool,
}

/// The progress of a portal.
enum State {
    Ready,
    Open(Box<Running>),
    Done,
}

impl Portal {
    /// Returns a cursor, whose statement has begun.
    pub fn cursor(
        prepared: Arc<Prepared>,
        mut running: Box<Running>,
        formats: Vec<Format>,
        is_held: bool,
    ) -> Self {
        running.set_formats(formats.clone());
        Portal { prepared, values: Vec::new(), formats, state: State::Open(running), is_held }
    }

    /// Returns the formats of the columns.
    pub fn formats(&self) -> &[Format] {
        &self.formats
    }

    /// Returns the statement if it is running; `None` before and after that.
    pub fn running(&mut self) -> Option<&mut Running> {
        match &mut self.state {
            State::Open(running) => Some(running),
            State::Ready | State::Done => None,
        }
    }

    /// Records that the statement has no more rows.
    pub fn end(&mut self) {
        self.state = State::Done;
    }
}

impl Session {
    /// Prepares a statement.
    pub(super) async fn parse(&mut self, name: String, text: String, types: &[u32]) -> Outcome {
        if !name.is_empty() && self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::new(code::DUPLICATE_STATEMENT, message).into());
        }
        self.statements.remove(&name);
        let prepared = self.described(text, types).await?;
        self.keep(name, prepared)?;
        self.link.output.parse_complete();
        Ok(())
    }

    /// Makes a portal of a prepared statement.
    pub(super) fn bind(&mut self, bind: Bind) -> Outcome {
        let Bind { portal: name, statement, formats, values, results } = bind;
        let prepared = Arc::clone(self.prepared(&statement)?);
        if values.len() != prepared.parameters.len() {
            let (given, wanted) = (values.len(), prepared.parameters.len());
            let message = format!(
                "bind message supplies {given} parameters, but prepared statement \"{statement}\" requires {wanted}"
            );
            return Err(Failure::new(code::PROTOCOL_VIOLATION, message).into());
        }
        check_formats("parameters", &formats, values.len())?;
        let columns = prepared.schema.as_ref().map_or(0, |schema| schema.fields().len());
        check_formats("columns", &results, columns)?;
        let value = |(place, value): (usize, &Option<bytes::Bytes>)| {
            let known = prepared.parameters[place];
            array_of_one(known, format_at(&formats, place), value.as_ref())
        };
        let values = values.iter().enumerate().map(value).collect::<Result<Vec<_>, _>>()?;
        if !name.is_empty() && self.portals.contains_key(&name) {
            let message = format!("cursor \"{name}\" already exists");
            return Err(Failure::new(code::DUPLICATE_CURSOR, message).into());
        }
        let portal = Portal { prepared, values, formats: results, state: State::Ready, is_held: false };
        self.add_portal(name, portal)?;
        self.link.output.bind_complete();
        Ok(())
    }

    /// Adds a portal, in place of one of this name.
    pub(super) fn add_portal(&mut self, name: String, portal: Portal) -> Outcome {
        if self.portals.len() >= limits::POSTGRES_PORTALS_MAX && !self.portals.contains_key(&name) {
            let message = format!("a session may have {} portals", limits::POSTGRES_PORTALS_MAX);
            return Err(Failure::new(code::PROGRAM_LIMIT_EXCEEDED, message).hint("close some").into());
        }
        self.portals.insert(name, portal);
        Ok(())
    }

    fn prepared(&self, name: &str) -> Result<&Arc<Prepared>, Failure> {
        self.statements.get(name).ok_or_else(|| unknown_statement(name))
    }

    /// Tells the columns of a statement or a portal, and the parameters of a statement.
    pub(super) fn describe(&mut self, target: &Target) -> Outcome {
        let (schema, formats): (Option<SchemaRef>, Vec<Format>) = match target {
            Target::Statement(name) => {
                let prepared = Arc::clone(self.prepared(name)?);
                self.link.output.parameter_description(&prepared.parameters);
                (self.result_of(&prepared), Vec::new())
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name).ok_or_else(|| unknown_portal(name))?;
                (self.result_of(&portal.prepared), portal.formats.clone())
            }
        };
        match schema {
            Some(schema) => self.link.output.row_description(&columns(&schema, &formats)),
            None => self.link.output.no_data(),
        }
        Ok(())
    }

    /// Returns the columns that a prepared statement returns now; `None` if it returns no rows.
    fn result_of(&self, prepared: &Prepared) -> Option<SchemaRef> {
        match &prepared.command {
            Command::Fetch { name, .. } => self.portals.get(name)?.prepared.schema.clone(),
            Command::Execute { name, .. } => self.statements.get(name)?.schema.clone(),
            _ => prepared.schema.clone(),
        }
    }

    /// Runs a portal, or goes on with it, up to `rows_max` rows; 0 means all of them.
    pub(super) async fn execute(&mut self, name: &str, rows_max: u64) -> Outcome {
        // The portal is taken out meanwhile, since the statement may be one about portals.
        let mut portal = self.portals.remove(name).ok_or_else(|| unknown_portal(name))?;
        let outcome = self.execute_portal(&mut portal, rows_max).await;
        self.entry.running.end();
        if outcome.is_ok() {
            self.portals.insert(name.to_string(), portal);
        }
        outcome
    }

    async fn execute_portal(&mut self, portal: &mut Portal, rows_max: u64) -> Outcome {
        let prepared = Arc::clone(&portal.prepared);
        if let State::Ready = portal.state {
            let values = match portal.values.is_empty() {
                true => Parameters::None,
                false => Parameters::Numbered(std::mem::take(&mut portal.values)),
            };
            let place = Place { text: &prepared.text, offset: 0 };
            portal.state = State::Done;
            match self.start(&prepared.command, place, values).await? {
                Started::Empty => {
                    self.link.output.empty_query();
                    return Ok(());
                }
                Started::Done(tag) => {
                    self.link.output.command_complete(&tag);
                    return Ok(());
                }
                Started::Cursor(over) => {
                    let tag = self.go_over(over, &portal.formats).await?;
                    self.link.output.command_complete(&tag);
                    return Ok(());
                }
                Started::Rows(mut running) => {
                    prepared.check_result(running.schema())?;
                    running.set_formats(portal.formats.clone());
                    portal.state = State::Open(running);
                }
            }
        }
        let State::Open(running) = &mut portal.state else {
            self.link.output.command_complete("SELECT 0");
            return Ok(());
        };
        self.entry.running.resume(&running.statement);
        // Each part of the rows has the time that a statement may take.
        running.go_on(&portal.formats, self.deadline())?;
        let before = running.count();
        let rows_max = if rows_max == 0 { u64::MAX } else { rows_max };
        match self.pump(running, rows_max).await? {
            true => {
                self.link.output.command_complete(&running.tag(before));
                portal.end();
            }
            false => self.link.output.portal_suspended(),
        }
        Ok(())
    }

    /// Drops a statement or a portal. It is no error if there is none.
    pub(super) fn close(&mut self, target: &Target) {
        match target {
            Target::Statement(_) => drop(self.statements.remove(named(target))),
            Target::Portal(_) => drop(self.portals.remove(named(target))),
        }
        self.link.output.close_complete();
    }

    /// Returns a statement with the types of its parameters and the columns of its result.
    pub(super) async fn described(&mut self, text: String, types: &[u32]) -> Outcome<Prepared> {
        let command = command(&text)?;
        self.transaction.check(&command)?;
        // A cursor has the parameters of its query.
        let planned = match &command {
            Command::Engine(Kind::Explain) => match Explained::of(&text)? {
                Some(explained) => Some(explained.text.to_string()),
                None => Some(text.clone()),
            },
            Command::Engine(_) => Some(text.clone()),
            Command::Declare { text: query, .. } => Some(query.clone()),
            _ => None,
        };
        let Some(planned) = planned else {
            let schema = command_result(&command);
            return Ok(Prepared { text, command, parameters: Vec::new(), schema });
        };
        let place =
            Place { text: &planned, offset: text.find(&planned).map_or(0, |at| text[..at].chars().count()) };
        let own = self.with_own_values(&planned, false)?;
        let place = Place { text: &own, ..place };
        let known = super::prepared::arrow_types(types)?;
        if crate::postgres::catalog::names_objects(&own) {
            self.refresh_catalog().await?;
        }
        let session = self.engine_session();
        let statement = self.entry.running.begin();
        let asked = self.transaction.shown_to((&*own).into());
        let described = async move { session.describe(&asked, &known).await };
        let deadline = None;
        let described = self.guarded(&statement, deadline, described).await;
        self.entry.running.end();
        let described = described.map_err(|stop| super::engine::placed(stop, place))?;
        let parameters = super::prepared::parameter_oids(types, &described.parameters);
        let schema = match &command {
            Command::Engine(kind) if kind.returns_rows() => {
                Some(super::engine::shown_schema(*kind, &described.schema))
            }
            _ => None,
        };
        Ok(Prepared { text, command, parameters, schema })
    }
}

/// Returns the columns of a statement that the session carries out itself; `None` if it returns no rows, or those of
/// another statement.
fn command_result(command: &Command) -> Option<SchemaRef> {
    match command {
        Command::Show(name) => Some(super::texts_schema(&[&super::shown_name(name)])),
        Command::ShowAll => Some(super::texts_schema(&["name", "setting", "description"])),
        _ => None,
    }
}

fn check_formats(what: &str, formats: &[Format], count: usize) -> Result<(), Failure> {
    match formats.len() {
        0 | 1 => Ok(()),
        given if given == count => Ok(()),
        // The columns of FETCH are known only when it runs.
        given if what == "columns" && count == 0 && given > 0 => Ok(()),
        given => {
            let message = format!("bind message has {given} formats for {count} {what}");
            Err(Failure::new(code::PROTOCOL_VIOLATION, message))
        }
    }
}

pub(super) fn unknown_statement(name: &str) -> Failure {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_string(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    Failure::new(code::INVALID_STATEMENT_NAME, message)
}

pub(super) fn unknown_portal(name: &str) -> Failure {
    Failure::new(code::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}
