//! A simulated client: a state machine that moves bytes when it is told to, and checks every message that
//! comes against the model.
//!
//! Invariant: an answer is whole and right for a version that was the newest between request and answer, or it
//! is an error that the model explains.

use crate::log::Log;
use crate::model::{Model, Span};
use crate::query::Query;
use crate::random::Random;
use crate::rows::{Cell, rows_of, schema};
use bytes::{BufMut, BytesMut};
use farpool_model::{
    Compression, Error, ErrorKind, Prepared, Receipt, ResultForm, Status, TableInfo, TableName,
};
use farpool_wire::socket::Pipe;
use farpool_wire::{
    Assembler, FrameKind, Grants, Message, PREFACE, Request, Response, Socket, check_preface, split_frame,
    substrait,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind as IoErrorKind, IoSlice};

/// The forms of results that a simulated client can read.
const FORMS: [ResultForm; 3] =
    [ResultForm::Plain, ResultForm::Compressed(Compression::Lz4), ResultForm::Compressed(Compression::Zstd)];

/// What a check gives: an error says what the node did wrong.
pub type Checked<T = ()> = Result<T, String>;

/// A request that has not been answered.
#[derive(Debug)]
struct Open {
    asked: Asked,
    step: u64,
    prepared: Option<Prepared>,
    rows: Vec<Vec<Cell>>,
    grants: Grants,
    /// Credit that the node may have, and has not been sent.
    credit: u64,
}

#[derive(Debug)]
enum Asked {
    Execute(Query),
    Prepare(Query),
    Tables,
    Table(String),
    Status,
}

/// See the file's comment.
#[derive(Debug)]
pub struct Client {
    /// By which events name it.
    pub number: usize,
    /// Whose tables it sees, by index.
    pub tenant: usize,
    tenant_name: String,
    socket: Pipe,
    outgoing: BytesMut,
    incoming: BytesMut,
    assembler: Assembler,
    is_welcome: bool,
    /// It has ended its side and waits for the node to do so.
    is_leaving: bool,
    /// The node has ended its side.
    has_ended: bool,
    last_stream: u32,
    open: BTreeMap<u32, Open>,
    cancelled: BTreeSet<u32>,
    /// Programs that were answered to their end.
    pub programs: u64,
}

impl Client {
    /// A client that wants to say hello.
    pub fn new(number: usize, tenant: usize, tenant_name: String, socket: Pipe) -> Checked<Self> {
        let token = Some(token_of(&tenant_name));
        let mut client = Client {
            number,
            tenant,
            tenant_name,
            socket,
            outgoing: BytesMut::from(&PREFACE[..]),
            incoming: BytesMut::new(),
            assembler: Assembler::new(),
            is_welcome: false,
            is_leaving: false,
            has_ended: false,
            last_stream: 0,
            open: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            programs: 0,
        };
        client
            .send(0, &Request::Hello { version_min: 1, version_max: 1, token, client: "simulated".into() })?;
        Ok(client)
    }

    /// Asks for something.
    pub fn ask(&mut self, random: &mut Random, table: String, step: u64) -> Checked<String> {
        let (asked, request) = random_request(random, table)?;
        if self.is_leaving || self.open.len() >= 20 {
            return Ok("nothing, for it is busy".into());
        }
        self.last_stream += 1;
        let told = format!("{} on stream {}: {asked:?}", request.kind().name(), self.last_stream);
        self.send(self.last_stream, &request)?;
        let (rows, grants) = Default::default();
        self.open.insert(self.last_stream, Open { asked, step, prepared: None, rows, grants, credit: 0 });
        Ok(told)
    }

    /// Cancels a request that is under way.
    pub fn cancel(&mut self, random: &mut Random) -> Checked<Option<u32>> {
        let streams: Vec<u32> = self.open.keys().copied().collect();
        if streams.is_empty() || self.is_leaving {
            return Ok(None);
        }
        let stream = random.pick(&streams);
        self.open.remove(&stream);
        self.cancelled.insert(stream);
        self.assembler.forget(stream);
        self.send(stream, &Request::Cancel)?;
        Ok(Some(stream))
    }

    /// Gives the node the credit that results have earned.
    pub fn grant(&mut self) -> Checked {
        let earned = self.open.iter_mut().map(|(stream, open)| (*stream, std::mem::take(&mut open.credit)));
        let earned: Vec<(u32, u64)> = earned.filter(|(_, bytes)| *bytes > 0).collect();
        if self.is_leaving {
            return Ok(());
        }
        earned.into_iter().try_for_each(|(stream, bytes)| self.send(stream, &Request::Credit { bytes }))
    }

    /// Ends its side of the connection; answers are no longer due.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.open.clear();
        self.outgoing.clear();
        // A pipe can always be ended.
        drop(self.socket.end_writing());
    }

    /// Whether it waits for nothing.
    pub fn is_done(&self) -> bool {
        match self.is_leaving {
            true => self.has_ended,
            false => self.open.is_empty() && self.outgoing.is_empty() && self.is_welcome,
        }
    }

    /// What it waits for.
    pub fn waits_for(&self) -> String {
        let asked: Vec<_> = self.open.iter().map(|(stream, open)| (stream, &open.asked)).collect();
        format!(
            "client {} (welcome: {}, leaving: {}) waits for {asked:?}",
            self.number, self.is_welcome, self.is_leaving
        )
    }

    /// Writes up to `most` of the bytes that it has to send. False when none could be.
    ///
    /// # Errors
    /// When the node has hung up.
    pub fn write(&mut self, most: usize) -> Checked<bool> {
        let count = most.min(self.outgoing.len());
        if count == 0 || self.has_ended {
            return Ok(false);
        }
        let outcome = self.socket.try_write_vectored(&[IoSlice::new(&self.outgoing[..count])]);
        match outcome {
            Ok(written) => drop(self.outgoing.split_to(written)),
            Err(error) if error.kind() == IoErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(format!("client {}: the node hung up: {error}", self.number)),
        }
        Ok(true)
    }

    /// Reads up to `most` bytes and checks the messages that are whole. False when there was nothing.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(&mut self, most: usize, model: &Model, log: &mut Log) -> Checked<bool> {
        if self.has_ended {
            return Ok(false);
        }
        self.incoming.reserve(most);
        let before = self.incoming.len();
        let outcome = self.socket.try_read(&mut (&mut self.incoming).limit(most));
        match outcome {
            Ok(0) => self.ended()?,
            Ok(_) => log.bytes(&self.incoming[before..]),
            Err(error) if error.kind() == IoErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(format!("client {}: reading fails: {error}", self.number)),
        }
        let checked = self.take_messages(model, log);
        checked.map(|()| true).map_err(|wrong| format!("client {}: {wrong}", self.number))
    }

    fn ended(&mut self) -> Checked {
        self.has_ended = true;
        match self.is_leaving {
            true => Ok(()),
            false => Err(format!("client {}: the node hung up", self.number)),
        }
    }

    fn take_messages(&mut self, model: &Model, log: &mut Log) -> Checked {
        if !self.is_welcome && self.incoming.len() < PREFACE.len() {
            return Ok(());
        }
        if !self.is_welcome && check_preface(&self.incoming) == Ok(true) {
            drop(self.incoming.split_to(PREFACE.len()));
        }
        while let Some((header, payload)) = split_frame(&mut self.incoming).map_err(told)? {
            if self.is_leaving || self.cancelled.contains(&header.stream) {
                continue;
            }
            if let Some(message) = self.assembler.push(header, payload).map_err(told)? {
                self.take(&message, model, log)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &Message, model: &Model, log: &mut Log) -> Checked {
        if message.stream == 0 {
            return self.take_notice(message);
        }
        let stream = message.stream;
        let Some(open) = self.open.get_mut(&stream) else {
            return Err(format!("{} came on stream {stream}, which is not open", message.kind.name()));
        };
        let span = Span { first: open.step, last: log.step };
        let tenant = &self.tenant_name;
        let has_ended = open.take(message, tenant, model, span).map_err(|wrong| {
            format!("stream {stream}, {:?} since event {}: {wrong}", open.asked, span.first)
        })?;
        if has_ended {
            log.event(format!(
                "client {} has its answer on stream {stream}: {}",
                self.number,
                message.kind.name()
            ));
            self.programs += u64::from(message.kind == FrameKind::Receipt);
            self.open.remove(&stream);
        }
        Ok(())
    }

    /// Takes a message about the connection itself.
    fn take_notice(&mut self, message: &Message) -> Checked {
        match Response::decode(message, None).map_err(told)? {
            Response::Hello { tenant, .. } if tenant.as_str() == self.tenant_name && !self.is_welcome => {
                self.is_welcome = true;
                Ok(())
            }
            Response::Ping => self.send(0, &Request::Pong),
            other => Err(format!("{other:?} came on stream 0")),
        }
    }

    fn send(&mut self, stream: u32, request: &Request) -> Checked {
        for message in request.encode().map_err(told)? {
            message.frames(stream).iter().for_each(|piece| self.outgoing.extend_from_slice(piece));
        }
        Ok(())
    }
}

/// The token with which a tenant's clients come.
pub fn token_of(tenant: &str) -> String {
    format!("the-token-of-{tenant}-which-is-long-enough")
}

fn random_request(random: &mut Random, table: String) -> Checked<(Asked, Request)> {
    let plan = |query: &Query| substrait::encode_program(&query.program(), &schema()).map_err(told);
    let name = TableName::new(&table).map_err(told)?;
    Ok(match random.below(20) {
        0 => (Asked::Tables, Request::Tables),
        1 => (Asked::Table(table), Request::Table { name, known: None }),
        2 => (Asked::Status, Request::Status),
        3 => {
            let query = Query::random(random, table);
            let plan = plan(&query)?;
            (Asked::Prepare(query), Request::Prepare { plan })
        }
        _ => {
            let query = Query::random(random, table);
            let plan = plan(&query)?;
            (Asked::Execute(query), Request::Execute { plan, results: random.pick(&FORMS) })
        }
    })
}

impl Open {
    /// Checks a message; true when it is the last one.
    fn take(&mut self, message: &Message, tenant: &str, model: &Model, span: Span) -> Checked<bool> {
        let schema = self.prepared.as_ref().map(|prepared| prepared.schema.clone());
        let response = Response::decode(message, schema.as_ref()).map_err(told)?;
        match (response, &self.asked) {
            (Response::Error(error), asked) => asked.explains(&error, model, span).map(|()| true),
            (Response::Prepared { prepared, .. }, Asked::Prepare(query)) => {
                check_prepared(&prepared, query, model, span).map(|()| true)
            }
            (Response::Prepared { prepared, .. }, Asked::Execute(query)) if self.prepared.is_none() => {
                check_prepared(&prepared, query, model, span)?;
                self.prepared = Some(prepared);
                Ok(false)
            }
            (Response::Batch(batch), Asked::Execute(_)) if self.prepared.is_some() => {
                self.rows.extend(rows_of(&batch)?);
                self.credit += self.grants.taken(message.bytes_on_wire).unwrap_or(0);
                Ok(false)
            }
            (Response::Receipt(receipt), Asked::Execute(query)) => {
                let rows = std::mem::take(&mut self.rows);
                let prepared = self.prepared.as_ref().ok_or("a receipt came before the answers")?;
                check_result(query, prepared, rows, &receipt, model, span).map(|()| true)
            }
            (Response::Tables(tables), Asked::Tables) => check_list(&tables, model, span).map(|()| true),
            (Response::Table(table), Asked::Table(_)) => check_table(&table, model, span).map(|()| true),
            (Response::Status(status), Asked::Status) => check_status(&status, tenant).map(|()| true),
            (other, _) => Err(format!("{} does not belong here", other.kind().name())),
        }
    }
}

impl Asked {
    /// Whether the request may have failed like this.
    fn explains(&self, error: &Error, model: &Model, span: Span) -> Checked {
        let table = match self {
            Asked::Execute(query) | Asked::Prepare(query) => &query.table,
            Asked::Table(table) => table,
            Asked::Tables | Asked::Status => return Err(format!("it failed: {error}")),
        };
        match error.kind == ErrorKind::NotFound && model.was_absent_within(table, span) {
            true => Ok(()),
            false => Err(format!("it failed: {error}")),
        }
    }
}

fn check_prepared(prepared: &Prepared, query: &Query, model: &Model, span: Span) -> Checked {
    if !prepared.is_exact() {
        return Err(format!("not everything is done at the node: {:?}", prepared.answers));
    }
    let found = model.rows_within(&query.table, prepared.version, span);
    found.map(|_| ()).ok_or_else(|| format!("{} was not the newest version meanwhile", prepared.version))
}

fn check_result(
    query: &Query,
    prepared: &Prepared,
    answer: Vec<Vec<Cell>>,
    receipt: &Receipt,
    model: &Model,
    span: Span,
) -> Checked {
    if receipt.rows_returned != answer.len() as u64 {
        return Err(format!("{} rows came, and by the receipt {}", answer.len(), receipt.rows_returned));
    }
    let rows = model.rows_within(&query.table, prepared.version, span).ok_or("its version is not known")?;
    query.check(&rows, answer)
}

fn check_table(table: &TableInfo, model: &Model, span: Span) -> Checked {
    let name = table.name.as_str();
    let Some(rows) = model.rows_within(name, table.version, span) else {
        return Err(format!("{} of {name} was not the newest version meanwhile", table.version));
    };
    match table.rows == rows.len() as u64 {
        true => Ok(()),
        false => Err(format!("{name} has {} rows, and by the node {}", rows.len(), table.rows)),
    }
}

fn check_list(tables: &[TableInfo], model: &Model, span: Span) -> Checked {
    tables.iter().try_for_each(|table| check_table(table, model, span))?;
    let missing = model.names().into_iter().find(|name| {
        !model.was_absent_within(name, span) && tables.iter().all(|table| table.name.as_str() != name)
    });
    missing.map_or(Ok(()), |name| Err(format!("the list lacks table {name}")))
}

fn check_status(status: &Status, tenant: &str) -> Checked {
    if status.tenants.iter().any(|other| other.tenant != tenant) {
        return Err(format!("it tells of other tenants: {status:?}"));
    }
    match status.memory_bytes_used <= status.memory_bytes_limit {
        true => Ok(()),
        false => Err(format!("more memory is in use than there is: {status:?}")),
    }
}

fn told(error: Error) -> String {
    error.to_string()
}
