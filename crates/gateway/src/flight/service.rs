//! The requests of the protocol, and who answers each.

use super::answers::{DataStream, Sent, schema_bytes, schema_fingerprint};
use super::ingest::ingest;
use super::metadata;
use super::options::{Options, SessionAnswer, of_request};
use super::prepared::{Prepared, handle, in_milliseconds, is_of_java};
use super::statements::{Asked, no_transactions, outside_of_transactions, plan, run, told_schema};
use super::status::{defect, malformed, not_done, status};
use super::updates::{update, update_prepared};
use super::uploads::Upload;
use super::users::{User, Users};
use crate::Gateway;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, Command,
    DoPutPreparedStatementResult, DoPutUpdateResult, ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Criteria, Empty,
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, PollInfo,
    PutResult, SchemaResult, Ticket as FlightTicket,
};
use arrow_schema::Schema;
use farpool_datafusion::Parameters;
use farpool_model::{Error, limits};
use farpool_wire::flight::{Ticket, TicketTarget};
use futures::{Stream, StreamExt, stream};
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Response, Status, Streaming};

/// The messages that answer a request.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The actions that are done, with their descriptions.
const ACTIONS: &[(&str, &str)] = &[
    ("CreatePreparedStatement", "Prepares a statement"),
    ("ClosePreparedStatement", "Forgets a prepared statement"),
    ("CancelFlightInfo", "Cancels the statement of a FlightInfo"),
    ("CancelQuery", "Cancels the statement of a FlightInfo"),
    ("SetSessionOptions", "Sets options of the session: schema, statement_timeout"),
    ("GetSessionOptions", "Returns the options of the session"),
    ("CloseSession", "Ends the session"),
];

/// The server of Arrow Flight SQL. Clones are the same server.
#[derive(Clone)]
pub(super) struct Service(Arc<State>);

struct State {
    gateway: Arc<Gateway>,
    users: Users,
}

/// The user who sends a request, and the options of the session.
struct Caller {
    user: Arc<User>,
    options: Options,
}

impl Service {
    /// Creates a server over the pools of a gateway.
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Service(Arc::new(State { gateway, users: Users::default() }))
    }

    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.0.gateway
    }

    pub(super) fn users(&self) -> &Users {
        &self.0.users
    }

    /// Forgets what users have not used for long.
    pub fn forget_unused(&self) {
        self.0.users.forget_unused();
    }

    async fn caller(&self, headers: &MetadataMap, extensions: &Extensions) -> Result<Caller, Status> {
        let user = self.user(headers, extensions).await?;
        let options = of_request(&user, headers)?;
        Ok(Caller { user, options })
    }

    /// Plans what a descriptor asks for: returns the columns of its result, and the ticket for it.
    async fn planned(
        &self,
        caller: &Caller,
        descriptor: &FlightDescriptor,
    ) -> Result<(Arc<Schema>, FlightTicket), Status> {
        let command = command(&descriptor.cmd)?;
        if let Some(schema) = metadata::answer_schema(&command)? {
            // The question is its own ticket.
            return Ok((schema, FlightTicket::new(descriptor.cmd.clone())));
        }
        let Caller { user, options } = caller;
        let id = rand::random();
        let (asked, values, target) = match command {
            Command::CommandStatementQuery(query) => {
                outside_of_transactions(query.transaction_id.as_deref())?;
                let asked = Asked::of(&query.query, options)?;
                let target =
                    TicketTarget::Text { in_schema: asked.in_schema.clone(), text: asked.text.clone() };
                (asked, Parameters::None, target)
            }
            Command::CommandPreparedStatementQuery(query) => {
                let (handle, prepared) = prepared(user, &query.prepared_statement_handle)?;
                let binding = prepared.binding();
                let target = TicketTarget::Prepared { handle, binding: binding.number };
                let values = prepared.only_values(&binding).map_err(|error| status(&error))?;
                (prepared.asked.clone(), values, target)
            }
            other => return Err(unknown(&other)),
        };
        let running = user.executions.begin(id, options.timeout);
        let query = plan(user, &asked, values, &running).await.map_err(|error| status(&error))?;
        let schema = told_schema(&query);
        if !asked.returns_rows() {
            user.allow_command(id);
        }
        let ticket = Ticket { id, schema: schema_fingerprint(&schema), target };
        let ticket = TicketStatementQuery { statement_handle: ticket.encode().into() };
        Ok((schema, FlightTicket::new(ticket.as_any().encode_to_vec())))
    }

    async fn info(&self, request: Request<FlightDescriptor>) -> Result<FlightInfo, Status> {
        let caller = self.caller(request.metadata(), request.extensions()).await?;
        let descriptor = request.into_inner();
        let (schema, ticket) = self.planned(&caller, &descriptor).await?;
        // One stream: that several could be read at different times, by different machines or not at all would make
        // each a statement of its own.
        let endpoint = FlightEndpoint::new().with_ticket(ticket);
        let info = FlightInfo::new().with_endpoint(endpoint).with_descriptor(descriptor);
        info.try_with_schema(&schema).map_err(defect)
    }

    /// Runs the statement of a ticket.
    async fn rows_of(&self, caller: &Caller, ticket: &[u8]) -> Result<Sent, Status> {
        let failed = |error: Error| status(&error);
        let Caller { user, options } = caller;
        let Ticket { id, schema, target } = Ticket::decode(ticket).map_err(failed)?;
        let (asked, values) = match target {
            TicketTarget::Text { in_schema, text } => {
                let options = Options { in_schema, timeout: options.timeout };
                (Asked::of(&text, &options)?, Parameters::None)
            }
            TicketTarget::Prepared { handle, binding } => {
                let prepared = user.statement(handle).map_err(failed)?;
                let current = prepared.binding();
                if current.number != binding {
                    return Err(failed(Error::stale("the statement was given other values since")));
                }
                (prepared.asked.clone(), prepared.only_values(&current).map_err(failed)?)
            }
        };
        if !asked.returns_rows() && !user.take_command(id) {
            let error = Error::invalid("this ticket was used before, or too long ago");
            return Err(failed(
                error.advise("a statement that changes something runs once: ask for it anew"),
            ));
        }
        let running = user.executions.begin(id, options.timeout);
        let query = plan(user, &asked, values, &running).await.map_err(failed)?;
        run(user, &asked, query, running, Some(schema)).await.map_err(failed)
    }

    async fn get(&self, request: Request<FlightTicket>) -> Result<DataStream, Status> {
        let caller = self.caller(request.metadata(), request.extensions()).await?;
        let command = command(&request.get_ref().ticket)?;
        if let Some(answer) = metadata::answer(&caller.user, &command).await? {
            return Ok(Sent::of_batch(answer).into_stream());
        }
        let sent = match command {
            Command::TicketStatementQuery(ticket) => self.rows_of(&caller, &ticket.statement_handle).await?,
            // Some clients skip asking for the ticket of a prepared statement.
            Command::CommandPreparedStatementQuery(query) => {
                let Caller { user, options } = &caller;
                let (_, prepared) = prepared(user, &query.prepared_statement_handle)?;
                let running = user.executions.begin(rand::random(), options.timeout);
                let failed = |error: Error| status(&error);
                let values = prepared.only_values(&prepared.binding()).map_err(failed)?;
                let query = plan(user, &prepared.asked, values, &running).await.map_err(failed)?;
                run(user, &prepared.asked, query, running, None).await.map_err(failed)?
            }
            other => return Err(unknown(&other)),
        };
        Ok(sent.into_stream())
    }

    async fn put(&self, request: Request<Streaming<FlightData>>) -> Result<PutResult, Status> {
        let failed = |error: Error| status(&error);
        let caller = self.caller(request.metadata(), request.extensions()).await?;
        let Caller { user, options } = &caller;
        let permit = user.upload().await.map_err(defect)?;
        let memory = user.engine.work.empty();
        let (descriptor, upload) =
            Upload::open(request.into_inner(), memory, permit).await.map_err(failed)?;
        let count = match command(&descriptor.cmd)? {
            Command::CommandStatementUpdate(command) => {
                outside_of_transactions(command.transaction_id.as_deref())?;
                drop(upload);
                let asked = Asked::of(&command.query, options)?;
                update(user, &asked, options, Parameters::None).await.map_err(failed)?
            }
            Command::CommandPreparedStatementUpdate(command) => {
                let (_, prepared) = prepared(user, &command.prepared_statement_handle)?;
                update_prepared(user, &prepared, options, upload).await.map_err(failed)?
            }
            Command::CommandPreparedStatementQuery(command) => {
                let (_, prepared) = prepared(user, &command.prepared_statement_handle)?;
                bind(user, &prepared, upload).await.map_err(failed)?;
                let result = DoPutPreparedStatementResult {
                    prepared_statement_handle: Some(command.prepared_statement_handle),
                };
                return Ok(PutResult { app_metadata: result.encode_to_vec().into() });
            }
            Command::CommandStatementIngest(command) => ingest(user, options, command, upload).await?,
            other => return Err(unknown(&other)),
        };
        let result = DoPutUpdateResult { record_count: i64::try_from(count).unwrap_or(i64::MAX) };
        Ok(PutResult { app_metadata: result.encode_to_vec().into() })
    }

    /// Carries out an action; returns its answer, and the cookie of a session that has begun or ended.
    async fn act(&self, request: &Request<Action>) -> Result<SessionAnswer, Status> {
        let body = &request.get_ref().body;
        let headers = request.metadata();
        let user = self.user(headers, request.extensions()).await?;
        let done = |message: Vec<u8>| Ok(SessionAnswer { message, cookie: None });
        match request.get_ref().r#type.as_str() {
            "CreatePreparedStatement" => {
                let wanted: ActionCreatePreparedStatementRequest = unpacked(body)?;
                outside_of_transactions(wanted.transaction_id.as_deref())?;
                let options = of_request(&user, headers)?;
                let (handle, prepared) = self.prepare(&user, &options, &wanted.query).await?;
                let writes_millis = headers.get("user-agent").is_some_and(is_of_java);
                let parameters = match writes_millis {
                    true => &in_milliseconds(&prepared.parameters),
                    false => &prepared.parameters,
                };
                let result = ActionCreatePreparedStatementResult {
                    prepared_statement_handle: handle.to_be_bytes().to_vec().into(),
                    dataset_schema: schema_bytes(&prepared.schema)?,
                    parameter_schema: schema_bytes(parameters)?,
                };
                done(result.as_any().encode_to_vec())
            }
            "ClosePreparedStatement" => {
                let wanted: ActionClosePreparedStatementRequest = unpacked(body)?;
                if let Ok(handle) = handle(&wanted.prepared_statement_handle) {
                    user.close_statement(handle);
                }
                done(Vec::new())
            }
            "CancelFlightInfo" => {
                let wanted = CancelFlightInfoRequest::decode(body.clone()).map_err(malformed)?;
                cancel(&user, &wanted.info.unwrap_or_default())?;
                done(CancelFlightInfoResult::new(CancelStatus::Cancelled).encode_to_vec())
            }
            "CancelQuery" => {
                let wanted: ActionCancelQueryRequest = unpacked(body)?;
                cancel(&user, &FlightInfo::decode(wanted.info).map_err(malformed)?)?;
                let result = ActionCancelQueryResult { result: CANCELLED };
                done(result.as_any().encode_to_vec())
            }
            "SetSessionOptions" => self.set_options(&user, headers, body),
            "GetSessionOptions" => self.get_options(&user, headers),
            "CloseSession" => Ok(self.close_session(&user, headers)),
            "BeginTransaction" | "EndTransaction" | "BeginSavepoint" | "EndSavepoint" => {
                Err(no_transactions())
            }
            "CreatePreparedSubstraitPlan" => {
                Err(not_done("plans of Substrait are not done", "send the statement as SQL"))
            }
            other => {
                Err(not_done(&format!("there is no action {other:?}"), "ListActions lists those there are"))
            }
        }
    }
}

/// The result of a cancellation that is complete (`CANCEL_RESULT_CANCELLED`).
const CANCELLED: i32 = 1;

/// Returns the command in a descriptor or a ticket.
fn command(bytes: &[u8]) -> Result<Command, Status> {
    let message = Any::decode(bytes).map_err(malformed)?;
    Command::try_from(message).map_err(malformed)
}

fn unpacked<M: ProstMessageExt>(body: &[u8]) -> Result<M, Status> {
    let unpacked: Option<M> = Any::decode(body).map_err(malformed)?.unpack().map_err(malformed)?;
    unpacked.ok_or_else(|| malformed("the body is of another action"))
}

/// Returns the status of a command that is not done.
fn unknown(command: &Command) -> Status {
    match command {
        Command::CommandStatementSubstraitPlan(_) => {
            not_done("plans of Substrait are not done", "send the statement as SQL")
        }
        other => not_done(&format!("{} is not done here", other.type_url()), "send a command of Flight SQL"),
    }
}

fn prepared(user: &User, bytes: &[u8]) -> Result<(u128, Arc<Prepared>), Status> {
    let handle = handle(bytes).map_err(|error| status(&error))?;
    Ok((handle, user.statement(handle).map_err(|error| status(&error))?))
}

/// Gives a prepared statement the values of a stream.
async fn bind(user: &User, prepared: &Prepared, mut upload: Upload) -> farpool_model::Result<()> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = upload.next().await? {
        // A batch without columns has no values: drivers send one for a statement without parameters.
        if batch.num_rows() == 0 || batch.num_columns() == 0 {
            continue;
        }
        bytes += batch.get_array_memory_size();
        if !user.has_room(bytes) {
            let most = limits::FLIGHT_STATEMENT_BYTES_MAX;
            return Err(Error::over_limit(format!(
                "the values of a user's statements may have {most} bytes"
            ))
            .advise("send them in several requests, or close statements that are not needed any more"));
        }
        rows.push(batch);
    }
    prepared.bind(rows);
    Ok(())
}

/// Cancels the statement of a result.
fn cancel(user: &User, info: &FlightInfo) -> Result<(), Status> {
    let tickets = info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref());
    let mut is_known = false;
    for ticket in tickets {
        if let Command::TicketStatementQuery(ticket) = command(&ticket.ticket)? {
            let ticket = Ticket::decode(&ticket.statement_handle).map_err(|error| status(&error))?;
            is_known |= user.executions.cancel(ticket.id) | user.take_command(ticket.id);
        }
    }
    match is_known {
        true => Ok(()),
        false => {
            let error = Error::not_found("the statement is not running");
            Err(status(&error.advise("it has ended, or its rows were not asked for")))
        }
    }
}

/// Returns an answer of one message.
fn one<T: Send + 'static>(message: T) -> Answers<T> {
    Box::pin(stream::iter([Ok(message)]))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = DataStream;
    type DoPutStream = Answers<PutResult>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;
    type DoExchangeStream = Answers<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let (headers, extensions, mut stream) = request.into_parts();
        // With the token in the headers, clients need not send a message.
        let first = match headers.contains_key("authorization") {
            true => None,
            false => stream.message().await?,
        };
        let (headers, answer, extensions) =
            self.handshake_answer(&headers, &extensions, first).await?.into_parts();
        Ok(Response::from_parts(headers, one(answer), extensions))
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        self.caller(request.metadata(), request.extensions()).await?;
        Ok(Response::new(stream::empty().boxed()))
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.info(request).await.map(Response::new)
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        // Rows can be read at once: they are computed as they are read.
        let info = self.info(request).await?;
        PollInfo::new().with_info(info).try_with_progress(1.0).map(Response::new).map_err(defect)
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let caller = self.caller(request.metadata(), request.extensions()).await?;
        let (schema, _) = self.planned(&caller, request.get_ref()).await?;
        Ok(Response::new(SchemaResult { schema: schema_bytes(&schema)? }))
    }

    async fn do_get(&self, request: Request<FlightTicket>) -> Result<Response<Self::DoGetStream>, Status> {
        self.get(request).await.map(Response::new)
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        Ok(Response::new(one(self.put(request).await?)))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let answer = self.act(&request).await?;
        let body = answer.message;
        let messages: Answers<arrow_flight::Result> = match body.is_empty() && answer.cookie.is_none() {
            true => Box::pin(stream::empty()),
            false => one(arrow_flight::Result { body: body.into() }),
        };
        let mut response = Response::new(messages);
        if let Some(cookie) = answer.cookie {
            response.metadata_mut().insert("set-cookie", cookie);
        }
        Ok(response)
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        self.caller(request.metadata(), request.extensions()).await?;
        let action = |(name, description): &(&str, &str)| {
            Ok(ActionType { r#type: (*name).to_string(), description: (*description).to_string() })
        };
        let actions: Vec<_> = ACTIONS.iter().map(action).collect();
        Ok(Response::new(Box::pin(stream::iter(actions))))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        self.caller(request.metadata(), request.extensions()).await?;
        Err(not_done("exchanges of streams are not done", "use a query, or a bulk ingestion"))
    }
}
