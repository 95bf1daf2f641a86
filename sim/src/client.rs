//! A simulated client of a memory node: a state machine that moves bytes when the simulation calls it, and checks every
//! message that it receives against the model.
//!
//! Invariant: an answer is complete and correct for a version that was the newest between request and answer, or it is
//! an error that the model explains.

use crate::checks::{Checked, check_list, check_prepared, check_result, check_status, check_table};
use crate::model::{Rows, Span};
use crate::query::{Queries, Query};
use crate::random::Random;
use crate::rows::{Cell, rows_of, schema};
use crate::state::State;
use bytes::{BufMut, BytesMut};
use farpool_model::{Compression, Error, Prepared, ResultForm, TableName};
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

/// A request of the client that the node has not answered completely.
#[derive(Debug)]
struct Open {
    asked: Asked,
    step: u64,
    prepared: Option<Prepared>,
    /// The candidates for the rows of the version that the program reads.
    may_be: Vec<Rows>,
    rows: Vec<Vec<Cell>>,
    grants: Grants,
    /// Credit for the node to send more results, which received results have earned and which has not been granted yet.
    credit: u64,
}

/// The kind of a request, with the data needed to check its answer.
#[derive(Debug)]
pub enum Asked {
    Execute(Query),
    Prepare(Query),
    Tables,
    Table(String),
    Status,
}

/// A simulated client.
#[derive(Debug)]
pub struct Client {
    /// Number of the client in the log.
    pub number: usize,
    /// Index of the client's tenant.
    pub tenant: usize,
    tenant_name: String,
    socket: Pipe,
    outgoing: BytesMut,
    incoming: BytesMut,
    assembler: Assembler,
    is_welcome: bool,
    /// Whether the client has ended its side and waits for the node to do so.
    is_leaving: bool,
    /// Whether the node has ended its side of the connection.
    has_ended: bool,
    last_stream: u32,
    open: BTreeMap<u32, Open>,
    cancelled: BTreeSet<u32>,
    /// Number of programs that were answered to their end.
    pub programs: u64,
}

impl Client {
    /// Creates a client that sends a hello.
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
        client.send(
            0,
            &Request::Hello {
                version_min: 1,
                version_max: 1,
                token,
                timeout_ms: None,
                client: "simulated".into(),
            },
        )?;
        Ok(client)
    }

    /// Sends a random request.
    pub fn ask(
        &mut self,
        random: &mut Random,
        table: String,
        queries: Queries,
        step: u64,
    ) -> Checked<String> {
        let (asked, request) = random_request(random, table, queries)?;
        if self.is_leaving || self.open.len() >= 20 {
            return Ok("nothing, for it is busy".into());
        }
        self.last_stream += 1;
        let told = format!("{} on stream {}: {asked:?}", request.kind().name(), self.last_stream);
        self.send(self.last_stream, &request)?;
        let (may_be, rows, grants) = Default::default();
        let open = Open { asked, step, prepared: None, may_be, rows, grants, credit: 0 };
        self.open.insert(self.last_stream, open);
        Ok(told)
    }

    /// Cancels a random open request.
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

    /// Sends the node the credit that results have earned.
    pub fn grant(&mut self) -> Checked {
        let earned = self.open.iter_mut().map(|(stream, open)| (*stream, std::mem::take(&mut open.credit)));
        let earned: Vec<(u32, u64)> = earned.filter(|(_, bytes)| *bytes > 0).collect();
        if self.is_leaving {
            return Ok(());
        }
        earned.into_iter().try_for_each(|(stream, bytes)| self.send(stream, &Request::Credit { bytes }))
    }

    /// Ends the client's side of the connection; answers are no longer expected.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.open.clear();
        self.outgoing.clear();
        // Ending a pipe cannot fail.
        drop(self.socket.end_writing());
    }

    /// Returns whether the client waits for nothing.
    pub fn is_done(&self) -> bool {
        match self.is_leaving {
            true => self.has_ended,
            false => self.open.is_empty() && self.outgoing.is_empty() && self.is_welcome,
        }
    }

    /// Describes what the client waits for.
    pub fn waits_for(&self) -> String {
        let asked: Vec<_> = self.open.iter().map(|(stream, open)| (stream, &open.asked)).collect();
        format!(
            "client {} (welcome: {}, leaving: {}, ended: {}, unsent: {}) waits for {asked:?}",
            self.number,
            self.is_welcome,
            self.is_leaving,
            self.has_ended,
            self.outgoing.len()
        )
    }

    /// Writes up to `most` of the queued bytes. Returns false if none could be written.
    ///
    /// # Errors
    /// Fails if the node has closed the connection.
    pub fn write(&mut self, most: usize, state: &State) -> Checked<bool> {
        let count = most.min(self.outgoing.len());
        if count == 0 || self.has_ended {
            return Ok(false);
        }
        let outcome = self.socket.try_write_vectored(&[IoSlice::new(&self.outgoing[..count])]);
        match outcome {
            Ok(written) => drop(self.outgoing.split_to(written)),
            Err(error) if error.kind() == IoErrorKind::WouldBlock => return Ok(false),
            Err(_) if state.weather.may_part() => self.leave(),
            Err(error) => return Err(format!("client {}: the node hung up: {error}", self.number)),
        }
        Ok(true)
    }

    /// Reads up to `most` bytes and checks all complete messages. Returns false if there were no bytes.
    ///
    /// # Errors
    /// Fails if a message is wrong.
    pub fn read(&mut self, most: usize, state: &mut State) -> Checked<bool> {
        if self.has_ended {
            return Ok(false);
        }
        self.incoming.reserve(most);
        let before = self.incoming.len();
        let outcome = self.socket.try_read(&mut (&mut self.incoming).limit(most));
        match outcome {
            Ok(0) => self.ended(state)?,
            Ok(_) => state.log.bytes(&self.incoming[before..]),
            Err(error) if error.kind() == IoErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(format!("client {}: reading fails: {error}", self.number)),
        }
        let checked = self.take_messages(state);
        checked.map(|()| true).map_err(|wrong| format!("client {}: {wrong}", self.number))
    }

    fn ended(&mut self, state: &State) -> Checked {
        self.has_ended = true;
        if state.weather.may_part() {
            self.leave();
        }
        match self.is_leaving {
            true => Ok(()),
            false => Err(format!("client {}: the node hung up", self.number)),
        }
    }

    fn take_messages(&mut self, state: &mut State) -> Checked {
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
                self.take(&message, state)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, message: &Message, state: &mut State) -> Checked {
        if message.stream == 0 {
            return self.take_notice(message, state);
        }
        let stream = message.stream;
        let Some(open) = self.open.get_mut(&stream) else {
            return Err(format!("{} came on stream {stream}, which is not open", message.kind.name()));
        };
        let span = state.span_since(open.step);
        let tenant = (self.tenant, self.tenant_name.as_str());
        let has_ended = open.take(message, tenant, state, span).map_err(|wrong| {
            format!("stream {stream}, {:?} since event {}: {wrong}", open.asked, span.first)
        })?;
        if has_ended {
            state.log.event(format!(
                "client {} has its answer on stream {stream}: {}",
                self.number,
                message.kind.name()
            ));
            self.programs += u64::from(message.kind == FrameKind::Receipt);
            self.open.remove(&stream);
        }
        Ok(())
    }

    /// Handles a message about the connection itself.
    fn take_notice(&mut self, message: &Message, state: &State) -> Checked {
        match Response::decode(message, None).map_err(told)? {
            Response::Hello { tenant, .. } if tenant.as_str() == self.tenant_name && !self.is_welcome => {
                self.is_welcome = true;
                Ok(())
            }
            Response::Ping => self.send(0, &Request::Pong),
            // After such an error the node waits for its client to close the connection.
            Response::Error(error) if state.weather.explains(&error) => {
                self.leave();
                Ok(())
            }
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

/// Returns the token of a tenant's clients.
pub fn token_of(tenant: &str) -> String {
    format!("the-token-of-{tenant}-which-is-long-enough")
}

/// Returns a random request, and its kind.
pub fn random_request(random: &mut Random, table: String, queries: Queries) -> Checked<(Asked, Request)> {
    let plan = |query: &Query| substrait::encode_program(&query.program(), &schema()).map_err(told);
    let name = TableName::new(&table).map_err(told)?;
    Ok(match random.below(20) {
        0 => (Asked::Tables, Request::Tables { tenant: None, with_schemas: true }),
        1 => (Asked::Table(table), Request::Table { name, known: None, or_view: false }),
        2 => (Asked::Status, Request::Status),
        3 => {
            let query = Query::random(random, table, queries);
            let plan = plan(&query)?;
            (Asked::Prepare(query), Request::Prepare { plan, schema: None })
        }
        _ => {
            let query = Query::random(random, table, queries);
            let plan = plan(&query)?;
            (Asked::Execute(query), Request::Execute { plan, schema: None, results: random.pick(&FORMS) })
        }
    })
}

impl Open {
    /// Checks a message; returns whether it is the last one of its answer.
    fn take(
        &mut self,
        message: &Message,
        (tenant, tenant_name): (usize, &str),
        state: &State,
        span: Span,
    ) -> Checked<bool> {
        let model = &state.models[tenant];
        let schema = self.prepared.as_ref().map(|prepared| prepared.schema.clone());
        let response = Response::decode(message, schema.as_ref()).map_err(told)?;
        match (response, &self.asked) {
            (Response::Error(error), asked) => {
                state.explains(&error, tenant, asked.table(), span).map(|()| true)
            }
            (Response::Prepared { prepared, .. }, Asked::Prepare(query)) => {
                check_prepared(&prepared, query, model, span).map(|_| true)
            }
            (Response::Prepared { prepared, .. }, Asked::Execute(query)) if self.prepared.is_none() => {
                self.may_be = check_prepared(&prepared, query, model, span)?;
                self.prepared = Some(prepared);
                Ok(false)
            }
            (Response::Batch(batch), Asked::Execute(_)) if self.prepared.is_some() => {
                self.rows.extend(rows_of(&batch)?);
                self.credit += self.grants.taken(message.bytes_on_wire).unwrap_or(0);
                Ok(false)
            }
            (Response::Receipt(receipt), Asked::Execute(query)) => {
                check_result(query, &self.may_be, &self.rows, receipt.rows_returned).map(|()| true)
            }
            (Response::Tables(listing), Asked::Tables) => {
                check_list(&listing.tables, model, span).map(|()| true)
            }
            (Response::Table(table), Asked::Table(_)) => check_table(&table, model, span).map(|()| true),
            (Response::Status(status), Asked::Status) => check_status(&status, tenant_name).map(|()| true),
            (other, _) => Err(format!("{} does not belong here", other.kind().name())),
        }
    }
}

impl Asked {
    /// Returns the table of the request; an empty name if there is none.
    fn table(&self) -> &str {
        match self {
            Asked::Execute(query) | Asked::Prepare(query) => &query.table,
            Asked::Table(table) => table,
            Asked::Tables | Asked::Status => "",
        }
    }
}

fn told(error: Error) -> String {
    error.to_string()
}
