//! Decodes and executes requests other than loads.
//!
//! Invariant: no request is decoded on the thread that reads the socket, because decoding takes time. Workers do that,
//! within the caller's share of time.

use super::backups;
use super::changes::ChangeRequest;
use super::connection::{Connection, RequestCancel, StreamWork};
use super::plans::{PlanMemory, PlanShortage};
use super::programs::{ProgramStart, RequestedResult};
use crate::admission::cannot_wait;
use crate::version_choice::VersionChoice;
use crate::{Caller, Shape};
use farpool_catalog::{AwaitedStatistics, Commit};
use farpool_memory::Reservation;
use farpool_model::{Error, Expr, Prepared, Relation, Result, ResultForm, SchemaFingerprint, TableName};
use farpool_pipeline::{BoundProgram, Run};
use farpool_wire::sealed::{Digest, NodeProof, SealedRequest, Sealer};
use farpool_wire::{FrameKind, Message, Outgoing, Request, Response, Role, substrait};
use std::cell::RefCell;
use std::sync::Arc;

/// Consequence of executing a request.
enum RequestOutcome {
    /// The messages of the answer, after which the stream closes.
    Answer(Vec<Outgoing>),
    /// The answer to a change of tables or views, to be sent when the change is durable.
    Commit(Box<Commit<Response>>),
    /// A program or job was started that will send the answer.
    Started,
    /// Statistics that have to be computed before they can be sent.
    Statistics(Box<AwaitedStatistics>),
    /// There is too little memory for the plan: the request is to be executed again when this much is available.
    Waits(Box<QueuedRequest>, PlanShortage),
}

impl RequestOutcome {
    /// Returns the outcome of a request whose only answer is `response`.
    fn answer(response: &Response) -> Result<Self> {
        response.encode().map(RequestOutcome::Answer)
    }

    /// Returns the outcome of a change whose answer, to be sent when the change is durable, is `response`.
    fn committed(made: Commit<()>, response: Response) -> Self {
        RequestOutcome::Commit(Box::new(made.map(|()| response)))
    }

    /// Returns the outcome of a change whose answer, of the kind `done`, says only that it has been made.
    fn done(made: Commit<()>, done: FrameKind) -> Self {
        RequestOutcome::committed(made, Response::Done(done))
    }
}

/// A request to be executed by a worker.
struct QueuedRequest {
    connection: Arc<Connection>,
    message: Message,
    cancel_signal: RequestCancel,
    memory: PlanMemory,
}

/// Opens a stream for the request in `message` and submits the request to the workers.
///
/// # Errors
/// Violations of the protocol, when the client may not open the stream; the connection then ends. Errors of the request
/// itself are answered on its stream.
pub(super) fn begin(connection: &Arc<Connection>, message: Message) -> Result<()> {
    let cancel_signal = RequestCancel::default();
    let stream = message.stream;
    connection.outbox.open(stream, message.bytes_on_wire, StreamWork::Request(cancel_signal.clone()))?;
    if message.kind.role() != Role::Request {
        let kind = message.kind.name();
        connection.fail(stream, Error::invalid(format!("{kind} does not belong here")));
        return Ok(());
    }
    // The bytes of the message have been received already, so they are charged to the tenant even beyond its limit;
    // reads of further messages then wait for memory.
    let memory = PlanMemory::new(connection.caller.account().take(message.body.len()));
    QueuedRequest { connection: connection.clone(), message, cancel_signal, memory }.look();
    Ok(())
}

impl QueuedRequest {
    /// Submits the request to the workers as a task; the worker that takes it executes the request and sends the
    /// answer.
    fn look(self) {
        let (to, stream) = (self.connection.clone(), self.message.stream);
        let caller = self.connection.caller.until(self.cancel_signal.cancel.clone());
        let asker = caller.clone();
        let work = move |caller: &Caller| self.carry_out(caller);
        caller.spawn(work, move |outcome| match outcome {
            Ok(RequestOutcome::Answer(messages)) => to.end(stream, messages),
            Ok(RequestOutcome::Commit(made)) => made.then(move |durable| match durable {
                Ok(response) => to.answer(stream, &response),
                Err(error) => to.fail(stream, error),
            }),
            Ok(RequestOutcome::Started) => {}
            Ok(RequestOutcome::Statistics(statistics)) => tell_statistics(to, asker, stream, *statistics),
            Ok(RequestOutcome::Waits(request, lacked)) => request.wait_for(lacked),
            Err(error) => to.fail(stream, error),
        });
    }

    fn carry_out(mut self, caller: &Caller) -> Result<RequestOutcome> {
        if self.message.kind == FrameKind::Sealed {
            self.message = unwrap(caller, &self.connection, &self.message)?;
        }
        let request = Request::decode(&self.message, None);
        let outcome = request.and_then(|request| self.carry_out_program_request(caller, request));
        match self.memory.wait_wanted() {
            Some(lacked) => Ok(RequestOutcome::Waits(Box::new(self), lacked)),
            None => outcome,
        }
    }

    /// Carries out a request about programs, or passes it on if it is about something else.
    fn carry_out_program_request(&mut self, caller: &Caller, request: Request) -> Result<RequestOutcome> {
        let (connection, stream) = (self.connection.clone(), self.message.stream);
        match request {
            Request::Prepare { plan, schema } => {
                let program = prepare(caller, &connection, &plan, schema, &self.memory)?;
                let answers = answers(&program).encode()?;
                let held = self.memory.keep(plan.len() + program.bytes())?;
                let bound = connection.sealer(stream).map(|sealer| sealer.bind(&answers));
                keep(&connection, stream, program, held, bound);
                Ok(RequestOutcome::Answer(answers))
            }
            Request::Execute { plan, schema, results } => {
                let program = prepare(caller, &connection, &plan, schema, &self.memory)?;
                let run = caller.start(&program, None, shape(results))?;
                self.begin_run(caller, run, answers(&program), results)
            }
            Request::ExecutePrepared { handle, conditions, results } => {
                let kept = kept(&connection, stream, handle)?;
                let read = |plan: Vec<u8>| read_conditions(&kept, &plan, &self.memory);
                let conditions = conditions.map(read).transpose()?.flatten();
                let run = caller.start(&kept, conditions.as_ref(), shape(results))?;
                self.begin_run(caller, run, Response::Unchanged, results)
            }
            Request::Outlines { handle, columns, first, known } => {
                let program = kept(&connection, stream, handle)?;
                let outlines = caller.outlines(&program, &positions(&columns), first as usize, known)?;
                RequestOutcome::answer(&Response::Outlines(outlines))
            }
            Request::Fetch { handle, columns, row_groups } => {
                let program = kept(&connection, stream, handle)?;
                let run = caller.start_fetching(&program, &positions(&columns), positions(&row_groups))?;
                self.begin_run(caller, run, Response::Unchanged, ResultForm::Packed)
            }
            Request::ChangeRows { handle, rows, id } => {
                let program = kept(&connection, stream, handle)?;
                let change = ChangeRequest { connection, stream, program, rows };
                change.begin(caller, id, &self.cancel_signal, &mut self.memory)?;
                Ok(RequestOutcome::Started)
            }
            other => self.carry_out_node_request(caller, other),
        }
    }

    /// Starts a program whose rows are sent in the form `results`, after the message `answer`.
    fn begin_run(
        &mut self,
        caller: &Caller,
        run: Arc<Run>,
        answer: Response,
        results: ResultForm,
    ) -> Result<RequestOutcome> {
        let (connection, stream) = (self.connection.clone(), self.message.stream);
        let wanted = RequestedResult::Rows { answer, results };
        let held = self.memory.keep(run.need()?.program)?;
        let start = ProgramStart { connection, stream, run, wanted };
        start.begin(caller, &self.cancel_signal, &mut self.memory, held)?;
        Ok(RequestOutcome::Started)
    }

    /// Carries out a request about loads, the node or its files, or passes it on if it is about something else.
    fn carry_out_node_request(&self, caller: &Caller, request: Request) -> Result<RequestOutcome> {
        let (connection, stream) = (&self.connection, self.message.stream);
        match request {
            Request::Status => return RequestOutcome::answer(&Response::Status(caller.status()?)),
            Request::Queries => return RequestOutcome::answer(&Response::Queries(caller.queries()?)),
            Request::CancelQuery { id } => {
                caller.cancel_query(id)?;
                return RequestOutcome::answer(&Response::Done(FrameKind::QueryCancelled));
            }
            Request::LoadOutcome { id } => {
                let connection = connection.clone();
                caller.load_outcome(id, move |outcome, forgotten| {
                    connection.answer(stream, &Response::LoadEnded { outcome, forgotten });
                })?;
            }
            Request::Backup => backups::begin(caller, connection, stream)?,
            Request::BackupRead { file, offset, bytes } => {
                backups::read(caller, connection, stream, (file, offset, bytes as usize))?;
            }
            other => return carry_out_table_request(caller, other),
        }
        Ok(RequestOutcome::Started)
    }

    /// Waits in a task of its own until the memory that `lacked` says is available, then submits the request again,
    /// unless the client has cancelled it.
    fn wait_for(mut self, lacked: PlanShortage) {
        let (connection, stream) = (self.connection.clone(), self.message.stream);
        let Some(runtime) = &connection.runtime else { return connection.fail(stream, cannot_wait()) };
        let (gone, places) = (self.cancel_signal.gone.clone(), connection.caller.places());
        runtime.spawn(async move {
            let reserved = tokio::select! {
                biased;
                () = gone.notified() => return,
                reserved = self.memory.wait(lacked, &places) => reserved,
            };
            match reserved {
                Ok(()) => self.look(),
                Err(error) => self.connection.fail(stream, error),
            }
        });
    }
}

/// Decrypts the sealed request in `message` and returns the request inside it; answers on its stream are sealed
/// (encrypted) from now on.
fn unwrap(caller: &Caller, connection: &Connection, message: &Message) -> Result<Message> {
    let sealed = SealedRequest::read(message)?;
    let prepared = sealed.handle()?.and_then(|handle| connection.prepared_programs.lock().bound(handle));
    let key = caller.node().node_key();
    let identity = caller.identity();
    let proof =
        NodeProof { key: key.as_deref(), token: identity.token_key.as_deref(), shown: identity.shown };
    let sealer = Sealer::new(&sealed, prepared.as_ref(), proof)?;
    let sealer = Arc::new(sealer);
    connection.outbox.with(|lanes| lanes.set_sealer(message.stream, sealer));
    Ok(sealed.request)
}

/// Carries out a request about tables, views or schemas.
///
/// # Errors
/// `Invalid` for a message that is no request of its own; errors of the request.
fn carry_out_table_request(caller: &Caller, request: Request) -> Result<RequestOutcome> {
    Ok(match request {
        Request::Tables { tenant, with_schemas } => {
            let mut listing = caller.list(tenant.as_ref())?;
            if !with_schemas {
                listing.tables.retain(|table| table.name.is_public());
                listing.views.retain(TableName::is_public);
                listing.schemas.clear();
            }
            RequestOutcome::answer(&Response::Tables(listing))?
        }
        Request::Table { name, known, or_view: false } => {
            let table = caller.table(&name, known)?;
            RequestOutcome::answer(&table.map_or(Response::Unchanged, Response::Table))?
        }
        Request::Table { name, known, or_view: true } => {
            RequestOutcome::answer(&match caller.relation(&name, known)? {
                None => Response::Unchanged,
                Some(Relation::Table(table)) => Response::Table(table),
                Some(Relation::View(view)) => Response::View(view),
            })?
        }
        Request::Statistics { table, columns: None } => {
            let statistics = caller.await_statistics(&table)?;
            if !statistics.profile().is_settled() {
                return Ok(RequestOutcome::Statistics(Box::new(statistics)));
            }
            RequestOutcome::answer(&Response::Statistics(Box::new(statistics.get()?)))?
        }
        Request::Statistics { table, columns: Some(columns) } => {
            let known = caller.known_statistics(&table, &positions(&columns))?;
            RequestOutcome::answer(&Response::Statistics(Box::new(known)))?
        }
        other => return carry_out_catalog_change(caller, other),
    })
}

/// Carries out a change of tables, views or schemas other than a load or a change of rows.
///
/// # Errors
/// `Invalid` for a message that is no request of its own; errors of the request.
fn carry_out_catalog_change(caller: &Caller, request: Request) -> Result<RequestOutcome> {
    Ok(match request {
        Request::CreateView { view, replace } => {
            let made = caller.create_view(view.clone(), replace)?;
            RequestOutcome::committed(made, Response::View(view))
        }
        Request::DropView { view, tenant } => {
            RequestOutcome::done(caller.drop_view(&view, tenant.as_ref())?, FrameKind::Dropped)
        }
        Request::CreateSchema { schema } => {
            RequestOutcome::done(caller.create_schema(&schema)?, FrameKind::SchemaCreated)
        }
        Request::DropSchema { schema, cascade } => {
            RequestOutcome::done(caller.drop_schema(&schema, cascade)?, FrameKind::Dropped)
        }
        Request::AlterTable { table, changes } => {
            let made = caller.alter_table(&table, &changes)?;
            RequestOutcome::Commit(Box::new(made.map(Response::Table)))
        }
        Request::Drop { table, tenant: None } => {
            RequestOutcome::done(caller.drop_table(&table)?, FrameKind::Dropped)
        }
        Request::Drop { table, tenant: Some(tenant) } => {
            RequestOutcome::done(caller.drop_table_of(&tenant, &table)?, FrameKind::Dropped)
        }
        other => return Err(Error::invalid(format!("{} does not belong here", other.kind().name()))),
    })
}

/// Computes the statistics of a table and sends them. Encoding them is a job of its own, because they may be long.
fn tell_statistics(connection: Arc<Connection>, caller: Caller, stream: u32, statistics: AwaitedStatistics) {
    let asker = caller.clone();
    caller.submit_statistics(statistics, connection.runtime.clone(), move |outcome| match outcome {
        Ok(statistics) => {
            let write = move |_: &Caller| Response::Statistics(Box::new(statistics)).encode();
            asker.spawn(write, move |written| match written {
                Ok(messages) => connection.end(stream, messages),
                Err(error) => connection.fail(stream, error),
            });
        }
        Err(error) => connection.fail(stream, error),
    });
}

/// Returns the prepared program with a handle, for a request on `stream`; fails if there is none.
fn kept(connection: &Connection, stream: u32, handle: u32) -> Result<Arc<BoundProgram>> {
    let (program, bound) = {
        let mut prepared_programs = connection.prepared_programs.lock();
        (prepared_programs.get(handle), prepared_programs.bound(handle))
    };
    // The client may have reused the handle for another program. For a sealed request, the program must be the one that
    // the request means.
    let is_it = connection.sealer(stream).is_none_or(|sealer| sealer.is_bound_to(bound.as_ref()));
    let program = program.filter(|_| is_it);
    program.ok_or_else(|| Error::stale(format!("nothing is kept under handle {handle}")))
}

/// Stores a program that was prepared on a stream, with the reservation `held` for it, unless the client has cancelled
/// the stream. `bound` is the digest to which sealed answers of its runs are bound.
fn keep(
    connection: &Connection,
    stream: u32,
    program: BoundProgram,
    held: Reservation,
    bound: Option<Digest>,
) {
    connection.prepared_programs.lock().put(stream, program, held, bound);
    if connection.outbox.with(|lanes| lanes.work(stream).is_none()) {
        connection.prepared_programs.lock().remove(stream);
    }
}

fn positions(numbers: &[u32]) -> Vec<usize> {
    numbers.iter().map(|number| *number as usize).collect()
}

fn shape(results: ResultForm) -> Shape {
    match results {
        ResultForm::Plain | ResultForm::Compressed(_) => Shape::Batches,
        ResultForm::Auto | ResultForm::Packed => Shape::BatchesAndRowGroups,
    }
}

/// Returns the response to the request to prepare or run a plan: which of the program's operators the node executes.
fn answers(program: &BoundProgram) -> Response {
    let (prepared, table_schema) = (Prepared::clone(program.prepared()), program.table().schema.clone());
    Response::Prepared { prepared, table_schema }
}

/// Decodes a plan that was made for columns with the fingerprint `expected` of the table that it scans, and binds its
/// program to a version of that table. The tables of its lookups are looked up as those of any program of the caller.
fn prepare(
    caller: &Caller,
    connection: &Connection,
    plan: &[u8],
    expected: Option<SchemaFingerprint>,
    memory: &PlanMemory,
) -> Result<BoundProgram> {
    // The table that is scanned is looked up first. A table that is looked up twice has the same columns both times.
    let found: RefCell<Vec<(TableName, VersionChoice)>> = RefCell::default();
    let schema_of = |name: &TableName| {
        let mut found = found.borrow_mut();
        if let Some((_, choice)) = found.iter().find(|(known, _)| known == name) {
            return Ok(choice.schema().clone());
        }
        let expected = expected.filter(|_| found.is_empty());
        let choice = caller.choose_version(name, expected, &connection.prepared_programs)?;
        let schema = choice.schema().clone();
        found.push((name.clone(), choice));
        Ok(schema)
    };
    let program = substrait::decode_program_within(plan, &schema_of, &|bytes| memory.hold(bytes))?;
    let scanned = found.into_inner().into_iter().find(|(name, _)| *name == program.table);
    let (_, choice) = scanned.ok_or_else(|| Error::internal("a plan whose table was not looked up"))?;
    let (version, table) = choice.version(program.version, &connection.prepared_programs)?;
    caller.prepare_with(&program, version, table, &connection.prepared_programs)
}

/// Decodes a plan that has additional conditions for the prepared program `kept`; returns them as one condition, or
/// `None` if there are none.
fn read_conditions(kept: &BoundProgram, plan: &[u8], memory: &PlanMemory) -> Result<Option<Expr>> {
    let schema_of = |name: &TableName| match *name == kept.prepared().effective.table {
        true => Ok(kept.table().schema.clone()),
        false => Err(Error::invalid("conditions are over another table than the program")),
    };
    let program = substrait::decode_program_within(plan, &schema_of, &|bytes| memory.hold(bytes))?;
    if !program.lookups.is_empty() {
        return Err(Error::invalid("conditions are over the table of the program alone, without joins"));
    }
    Ok(program.filter)
}
