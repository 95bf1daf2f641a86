//! Requests that have an answer, and programs.
//!
//! Invariant: nothing of a request is decoded on the thread that reads the socket; that is work for the scheduler,
//! within the caller's share.

use super::connection::{Connection, Work};
use super::sink::StreamSink;
use crate::kept::Kept;
use crate::{Caller, Shape};
use arrow_schema::SchemaRef;
use farpool_columns::Table;
use farpool_model::{Error, Expr, Program, Result, ResultForm, TableName, Version};
use farpool_pipeline::{Cancel, Run};
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
            let (program, version, table) = read_plan(caller, connection, &plan)?;
            let prepared = caller.prepare(&program, version, &table)?;
            let table_schema = table.schema.clone();
            keep(connection, message.stream, plan.len(), Kept { prepared: prepared.clone(), table });
            Response::Prepared { prepared, table_schema }
        }
        Request::Execute { plan, results } => {
            let (program, version, table) = read_plan(caller, connection, &plan)?;
            let prepared = caller.prepare(&program, version, &table)?;
            let run = caller.start(prepared, table.clone(), shape(results))?;
            submit(caller, connection, message.stream, run, &table.schema, results)?;
            return Ok(Outcome::Started);
        }
        Request::ExecutePrepared { handle, conditions, results } => {
            let kept = connection.shelf.lock().get(handle);
            let kept = kept.ok_or_else(|| Error::stale(format!("nothing is kept under handle {handle}")))?;
            let conditions = conditions.map(|plan| read_conditions(&kept, &plan)).transpose()?.flatten();
            let run = caller.start_kept(&kept, conditions.as_ref(), shape(results))?;
            submit(caller, connection, message.stream, run, &kept.table.schema, results)?;
            return Ok(Outcome::Started);
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

/// Keeps what was prepared on a stream, unless the client has given the stream up.
fn keep(connection: &Connection, stream: u32, plan_bytes: usize, kept: Kept) {
    connection.shelf.lock().put(stream, plan_bytes, kept);
    if connection.outbox.with(|lanes| lanes.work(stream).is_none()) {
        connection.shelf.lock().remove(stream);
    }
}

fn shape(results: ResultForm) -> Shape {
    match results {
        ResultForm::Plain | ResultForm::Compressed(_) => Shape::Batches,
        ResultForm::Auto | ResultForm::Packed => Shape::BatchesAndRowGroups,
    }
}

/// Has a run go on a stream, which its sink will end.
fn submit(
    caller: &Caller,
    connection: &Arc<Connection>,
    stream: u32,
    run: Arc<Run>,
    table_schema: &SchemaRef,
    results: ResultForm,
) -> Result<()> {
    let (prepared, table_schema) = (run.prepared().clone(), table_schema.clone());
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

/// The program in a plan, and the table as it was when the plan was read; or the version that the plan names, if the
/// client holds a program that reads it.
fn read_plan(
    caller: &Caller,
    connection: &Connection,
    plan: &[u8],
) -> Result<(Program, Version, Arc<Table>)> {
    let found = OnceCell::new();
    let schema_of = |name: &TableName| {
        let (version, table) = caller.source(name)?;
        let schema = table.schema.clone();
        // A plan reads one table; were it looked up twice, the first look counts.
        drop(found.set((name.clone(), version, table)));
        Ok(schema)
    };
    let program = substrait::decode_program(plan, &schema_of)?;
    let Some((_, newest, table)) = found.into_inner().filter(|(name, ..)| *name == program.table) else {
        return Err(Error::invalid("the plan reads no table, or more than one"));
    };
    let version = program.version.unwrap_or(newest);
    let held = (version != newest).then(|| connection.shelf.lock().table(&program.table, version));
    match held.flatten().filter(|held| held.schema == table.schema) {
        Some(held) => Ok((program, version, held)),
        None => Ok((program, newest, table)),
    }
}

/// The conditions in a plan over the table of a program that is kept.
fn read_conditions(kept: &Kept, plan: &[u8]) -> Result<Option<Expr>> {
    let schema_of = |name: &TableName| match *name == kept.prepared.effective.table {
        true => Ok(kept.table.schema.clone()),
        false => Err(Error::invalid("conditions are over another table than the program")),
    };
    Ok(substrait::decode_program(plan, &schema_of)?.filter)
}
