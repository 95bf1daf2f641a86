//! Requests that have an answer, and programs.

use super::connection::{Connection, Work};
use super::sink::StreamSink;
use farpool_columns::Table;
use farpool_model::{Error, Program, Result, ResultForm, TableName, Version, limits};
use farpool_pipeline::{Cancel, Run};
use farpool_wire::{FrameKind, Message, Request, Response, substrait};
use std::cell::OnceCell;
use std::sync::Arc;
use tokio::sync::Semaphore;

static STATISTICS_TURNS: Semaphore = Semaphore::const_new(limits::PROFILES_AWAITED_MAX);

/// Bodies up to this size are dealt with where they are read: sooner than another thread would wake.
const INLINE_BYTES_MAX: usize = 32 << 10;

/// Opens a stream for the request in `message`.
///
/// # Errors
/// When the client may not open the stream, so that the connection cannot go on. What is wrong with the
/// request itself is answered on its stream.
pub(super) fn begin(connection: &Arc<Connection>, message: Message) -> Result<()> {
    let cancel = Cancel::new();
    connection.outbox.open(message.stream, message.bytes_on_wire, Work::Request(cancel.clone()))?;
    // Dropping a table gives pages back to the system, which takes a while.
    if message.body.len() <= INLINE_BYTES_MAX && message.kind != FrameKind::Drop {
        carry_out(connection, &message);
    } else {
        let connection = connection.clone();
        tokio::task::spawn_blocking(move || {
            // Its client may have cancelled or gone while it waited for a thread.
            if !cancel.is_set() {
                drop(connection.guarded(message.stream, || {
                    carry_out(&connection, &message);
                    Ok(())
                }));
            }
        });
    }
    Ok(())
}

fn carry_out(connection: &Arc<Connection>, message: &Message) {
    match outcome(connection, message) {
        Ok(Some(response)) => connection.answer(message.stream, &response),
        Ok(None) => {}
        Err(error) => connection.fail(message.stream, error),
    }
}

/// The answer; `None` when something was started that will answer.
fn outcome(connection: &Arc<Connection>, message: &Message) -> Result<Option<Response>> {
    let Connection { node, tenant, .. } = &**connection;
    let catalog = node.catalog();
    Ok(Some(match Request::decode(message, None)? {
        Request::Prepare { plan } => {
            let (program, version, table) = read_plan(connection, &plan)?;
            let prepared = farpool_pipeline::prepare_within(&program, &table, version, node.budget())?;
            Response::Prepared { prepared, table_schema: table.schema.clone() }
        }
        Request::Execute { plan, results } => {
            return execute(connection, message.stream, &plan, results).map(|()| None);
        }
        Request::Tables => Response::Tables(catalog.tables(tenant)),
        Request::Table { name, known } => match catalog.get(tenant, &name)? {
            (version, _) if known == Some(version) => Response::Unchanged,
            _ => Response::Table(catalog.info(tenant, &name)?),
        },
        Request::Statistics { table, columns } => {
            let columns: Option<Vec<usize>> =
                columns.map(|columns| columns.into_iter().map(|column| column as usize).collect());
            match columns {
                Some(columns) => {
                    Response::Statistics(Box::new(catalog.known_statistics(tenant, &table, &columns)?))
                }
                None => {
                    tell_statistics(connection.clone(), message.stream, table);
                    return Ok(None);
                }
            }
        }
        Request::Drop { table } => {
            catalog.drop_table(tenant, &table)?;
            Response::Dropped
        }
        Request::Status => Response::Status(node.status_for(tenant)),
        other => return Err(Error::invalid(format!("{} does not belong here", other.kind().name()))),
    }))
}

/// Answers with what the rows of a table hold, which may have to be found out first. Only so many of these occupy
/// threads; the others wait in line.
fn tell_statistics(connection: Arc<Connection>, stream: u32, table: TableName) {
    tokio::spawn(async move {
        let Ok(_turn) = STATISTICS_TURNS.acquire().await else { return };
        let to = connection.clone();
        let told = tokio::task::spawn_blocking(move || {
            match connection.node.catalog().statistics(&connection.tenant, &table) {
                Ok(statistics) => {
                    connection.answer(stream, &Response::Statistics(Box::new(statistics)));
                }
                Err(error) => connection.fail(stream, error),
            }
        });
        if told.await.is_err() {
            to.fail(stream, Error::internal("a defect stopped the profile of a table"));
        }
    });
}

/// Starts a program; its sink will end the stream.
fn execute(connection: &Arc<Connection>, stream: u32, plan: &[u8], results: ResultForm) -> Result<()> {
    let (program, version, table) = read_plan(connection, plan)?;
    let table_schema = table.schema.clone();
    let budget = connection.node.budget();
    let prepared = farpool_pipeline::prepare_within(&program, &table, version, budget)?;
    let run = match results {
        ResultForm::Plain | ResultForm::Compressed(_) => Run::start_within(prepared.clone(), table, budget)?,
        ResultForm::Auto | ResultForm::Packed => Run::start_shipping(prepared.clone(), table, budget)?,
    };
    let answers = Response::Prepared { prepared, table_schema }.encode()?;
    let open = connection.outbox.with(|lanes| {
        let Some(work) = lanes.work(stream) else { return false };
        *work = Work::Run(run.clone());
        answers.into_iter().all(|message| lanes.push(stream, message))
    });
    if open {
        let sink = Arc::new(StreamSink::new(connection.clone(), stream, &run, results));
        connection.node.submit(&connection.tenant, &connection.region, run, sink);
        connection.outbox.flush();
    }
    Ok(())
}

/// The program in a plan, and the table as it was when the plan was read.
fn read_plan(connection: &Connection, plan: &[u8]) -> Result<(Program, Version, Arc<Table>)> {
    let found = OnceCell::new();
    let schema_of = |name: &TableName| {
        let (version, table) = connection.node.catalog().get(&connection.tenant, name)?;
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
