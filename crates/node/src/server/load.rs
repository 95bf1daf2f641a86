//! Loads: rows come in on a stream, are encoded on a thread for blocking work, and become a version of a
//! table when all are there.
//!
//! Credit goes back to the client as its rows have been encoded, which is the whole of back-pressure. A
//! load holds a thread only while it encodes: a client that falls silent costs none.

use super::connection::{Connection, Work};
use super::inbox::{Inbox, Taken};
use arrow_schema::SchemaRef;
use farpool_model::{Error, Result, TableInfo};
use farpool_store::Load;
use farpool_wire::{Message, Request, Response};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Opens a stream for the load that `message` begins.
///
/// # Errors
/// When the client may not open the stream, so that the connection cannot go on. What is wrong with the
/// load itself is answered on its stream.
pub(super) fn begin(connection: &Arc<Connection>, message: &Message) -> Result<()> {
    let inbox = Arc::new(Inbox::new());
    let stream = message.stream;
    connection.outbox.open(stream, message.bytes_on_wire, Work::Load(inbox.clone()))?;
    match Request::decode(message, None) {
        Ok(request) => drop(tokio::spawn(run(connection.clone(), stream, inbox, request))),
        Err(error) => connection.fail(stream, error),
    }
    Ok(())
}

async fn run(connection: Arc<Connection>, stream: u32, inbox: Arc<Inbox>, begin: Request) {
    match load(&connection, stream, &inbox, begin).await {
        Ok(Some(table)) => connection.answer(stream, &Response::Loaded(table)),
        Ok(None) => {}
        Err(error) => connection.fail(stream, error),
    }
}

/// The table that was loaded; `None` when the client went away.
///
/// Whatever the outcome, the load has been let go, and its pages with it, when this returns an error.
async fn load(
    connection: &Arc<Connection>,
    stream: u32,
    inbox: &Inbox,
    begin: Request,
) -> Result<Option<TableInfo>> {
    let Request::LoadBegin { table, mode, schema, rows_hint } = begin else {
        return Err(Error::invalid("not the beginning of a load"));
    };
    let owner = connection.clone();
    let wire_schema = schema.clone();
    let begun = move || owner.caller.begin_load(&table, &schema, mode, rows_hint);
    let mut load = blocking(begun).await?;
    loop {
        match inbox.take().await {
            Taken::Rows(messages) => {
                let bytes = messages.iter().map(|message| message.bytes_on_wire).sum();
                let schema = wire_schema.clone();
                load = blocking(move || encode(load, &schema, messages)).await?;
                grant(connection, stream, inbox, bytes)?;
            }
            Taken::Complete => return blocking(move || load.commit()).await.map(Some),
            Taken::Gone => {
                blocking(move || {
                    drop(load);
                    Ok(())
                })
                .await?;
                return Ok(None);
            }
        }
    }
}

fn encode(mut load: Load, schema: &SchemaRef, messages: Vec<Message>) -> Result<Load> {
    for message in messages {
        match Request::decode(&message, Some(schema))? {
            Request::LoadBatch(batch) => load.push(&batch)?,
            other => return Err(Error::invalid(format!("{} in a load", other.kind().name()))),
        }
    }
    Ok(load)
}

fn grant(connection: &Connection, stream: u32, inbox: &Inbox, bytes: u64) -> Result<()> {
    inbox.grant(bytes)?;
    for message in (Response::Credit { bytes }).encode()? {
        connection.outbox.push(stream, message);
    }
    Ok(())
}

/// Does `work` on a thread for blocking work.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(Error::internal(format!("a defect stopped this load: {error}"))
            .advise("the pool goes on; please report this")),
    }
}
