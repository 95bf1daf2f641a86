//! Requests that have an answer, and programs.
//!
//! Invariant: nothing of a request is decoded on the thread that reads the socket; that is work for the scheduler,
//! within the caller's share.

use super::connection::{Connection, Work};
use super::sink::StreamSink;
use crate::{Caller, Shape};
use farpool_columns::Table;
use farpool_model::{Error, Program, Result, ResultForm, TableName, Version};
use farpool_pipeline::Cancel;
use farpool_wire::{FrameKind, Message, Outgoing, Request, Response, substrait};
use std::cell::OnceCell;
use std::sync::Arc;

/// What came of a request that was looked at.
enum Outcome {
    /// The last message of its stream, or several.
    Answer(Vec<Outgoing>),
    /// Something was started that will answer.
    Started,
    /// What the rows of a table hold is to be told, which may take long.
    Statistics(TableName),
}

/// Opens a stream for the request in `message`, and has it looked at.
///
/// # Errors
/// When the client may not open the stream, so that the connection cannot go on. What is wrong with the
/// request itself is answered on its stream.
pub(super) fn begin(connection: &Arc<Connection>, message: Message) -> Result<()> {
    let cancel = Cancel::new();
    let stream = message.stream;
    connection.outbox.open(stream, message.bytes_on_wire, Work::Request(cancel.clone()))?;
    if !is_request(message.kind) {
        let kind = message.kind.name();
        connection.fail(stream, Error::invalid(format!("{kind} does not belong here")));
        return Ok(());
    }
    let (to, of) = (connection.clone(), connection.clone());
    let work = move |caller: &Caller| carry_out(caller, &of, &message);
    let caller = connection.caller.until(cancel);
    let asker = caller.clone();
    caller.spawn(work, move |outcome| match outcome {
        Ok(Outcome::Answer(messages)) => to.end(stream, messages),
        Ok(Outcome::Started) => {}
        Ok(Outcome::Statistics(table)) => tell_statistics(to, asker, stream, table),
        Err(error) => to.fail(stream, error),
    });
    Ok(())
}

/// Whether a message of this kind asks for something by itself.
fn is_request(kind: FrameKind) -> bool {
    use FrameKind::{Drop, Execute, Prepare, Statistics, Status, Table, Tables};
    matches!(kind, Prepare | Execute | Tables | Table | Drop | Statistics | Status)
}

fn carry_out(caller: &Caller, connection: &Arc<Connection>, message: &Message) -> Result<Outcome> {
    let response = match Request::decode(message, None)? {
        Request::Prepare { plan } => {
            let (program, version, table) = read_plan(caller, &plan)?;
            let prepared = caller.prepare(&program, version, &table)?;
            Response::Prepared { prepared, table_schema: table.schema.clone() }
        }
        Request::Execute { plan, results } => {
            return execute(caller, connection, message.stream, &plan, results).map(|()| Outcome::Started);
        }
        Request::Tables => Response::Tables(caller.tables()?),
        Request::Table { name, known } => {
            caller.table(&name, known)?.map_or(Response::Unchanged, Response::Table)
        }
        Request::Statistics { table, columns: None } => return Ok(Outcome::Statistics(table)),
        Request::Statistics { table, columns: Some(columns) } => {
            let columns: Vec<usize> = columns.into_iter().map(|column| column as usize).collect();
            Response::Statistics(Box::new(caller.known_statistics(&table, &columns)?))
        }
        Request::Drop { table } => {
            caller.drop_table(&table)?;
            Response::Dropped
        }
        Request::Status => Response::Status(caller.status()?),
        other => return Err(Error::invalid(format!("{} does not belong here", other.kind().name()))),
    };
    response.encode().map(Outcome::Answer)
}

/// Answers with what the rows of a table hold, which may have to be found out first. Only so many requests of a tenant
/// occupy threads for that; its others wait in line, and those that were cancelled meanwhile find nothing out.
fn tell_statistics(connection: Arc<Connection>, caller: Caller, stream: u32, table: TableName) {
    let Some(runtime) = connection.runtime.clone() else { return };
    runtime.spawn(async move {
        let turns = caller.profile_turns();
        let Ok(_turn) = turns.acquire().await else { return };
        let to = connection.clone();
        let told = tokio::task::spawn_blocking(move || match caller.statistics(&table) {
            Ok(statistics) => connection.answer(stream, &Response::Statistics(Box::new(statistics))),
            Err(error) => connection.fail(stream, error),
        });
        if told.await.is_err() {
            to.fail(stream, Error::internal("a defect stopped the profile of a table"));
        }
    });
}

/// Starts a program; its sink will end the stream.
fn execute(
    caller: &Caller,
    connection: &Arc<Connection>,
    stream: u32,
    plan: &[u8],
    results: ResultForm,
) -> Result<()> {
    let (program, version, table) = read_plan(caller, plan)?;
    let table_schema = table.schema.clone();
    let prepared = caller.prepare(&program, version, &table)?;
    let shape = match results {
        ResultForm::Plain | ResultForm::Compressed(_) => Shape::Batches,
        ResultForm::Auto | ResultForm::Packed => Shape::BatchesAndRowGroups,
    };
    let run = caller.start(prepared.clone(), table, shape)?;
    let answers = Response::Prepared { prepared, table_schema }.encode()?;
    let open = connection.outbox.with(|lanes| {
        let Some(work) = lanes.work(stream) else { return false };
        *work = Work::Run(run.clone());
        answers.into_iter().all(|message| lanes.push(stream, message))
    });
    if open {
        let sink = Arc::new(StreamSink::new(connection.clone(), stream, &run, results));
        caller.submit(run, sink);
        connection.outbox.flush();
    }
    Ok(())
}

/// The program in a plan, and the table as it was when the plan was read.
fn read_plan(caller: &Caller, plan: &[u8]) -> Result<(Program, Version, Arc<Table>)> {
    let found = OnceCell::new();
    let schema_of = |name: &TableName| {
        let (version, table) = caller.source(name)?;
        let schema = table.schema.clone();
        // A plan reads one table; were it looked up twice, the first look counts.
        drop(found.set((name.clone(), version, table)));
        Ok(schema)
    };
    let program = substrait::decode_program(plan, &schema_of)?;
    match found.into_inner() {
        Some((name, version, table)) if name == program.table => Ok((program, version, table)),
        _ => Err(Error::invalid("the plan reads no table, or more than one")),
    }
}
