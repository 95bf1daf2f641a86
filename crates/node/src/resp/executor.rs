//! The executor: the state of a connection of the Redis protocol without its socket, and the loop that executes
//! requests. For a long command, one that may take longer than a step (some ten microseconds), the executor is moved to
//! another thread.

#[cfg(test)]
mod tests;

use super::batch::{Batch, FillOutcome};
use super::clients::Buffers;
use super::host::Client;
use super::long::LongCommands;
use crate::Node;
use bytes::{Buf, BytesMut};
use farpool_kv::resp::Replies;
use farpool_kv::{DeferReason, ExecutionMode, Session, TimeAndRandom};
use farpool_model::limits;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Length of a turn: nanoseconds of work for one connection before other connections of the thread get a turn.
pub(super) const TURN_NS: u64 = 100_000;

pub(super) struct RequestExecutor {
    node: Arc<Node>,
    pub client: Client,
    pub session: Session,
    pub received: BytesMut,
    /// The parsed requests at the beginning of `received`.
    batch: Batch,
    /// Replies that have not been sent yet.
    pub replies: Vec<u8>,
    /// State of the generator of pseudo-random numbers.
    random: u64,
}

/// The reason why [`RequestExecutor::carry_out`] returned, and what the connection has to do next.
pub(super) enum ExecutorProgress {
    /// The next request is incomplete: receive more bytes.
    Waits,
    /// There may be more complete requests: wait for the next turn.
    HasMore,
    /// The next command must wait for the end of a pause (`CLIENT PAUSE`).
    Paused,
    /// The next command takes longer than a step and must be executed by a thread for long commands.
    Long,
    /// The next command must wait for a shard that a long command of the same tenant holds. The number is the result of
    /// [`farpool_kv::Keyspace::releases`] before the command was tried.
    Held(u64),
    /// The connection must be closed after the replies are sent.
    Leaves,
}

impl RequestExecutor {
    pub fn new(node: &Arc<Node>, client: Client, number: u64) -> Self {
        let mut session = Session::default();
        session.set_mode(ExecutionMode::Short);
        RequestExecutor {
            node: Arc::clone(node),
            client,
            session,
            received: BytesMut::new(),
            batch: Batch::default(),
            replies: Vec::new(),
            random: RandomState::new().hash_one(number) | 1,
        }
    }

    /// Returns the bytes of memory that the state takes.
    pub fn bytes_held(&self) -> usize {
        let buffers = self.received.capacity() + self.replies.capacity() + self.batch.bytes_held();
        // The name is counted twice, because it is stored here and in the data that other clients read.
        buffers + self.session.bytes() + 2 * self.client.name().len()
    }

    pub fn error(&mut self, text: &str) {
        Replies::new(&mut self.replies, self.client.protocol()).error(text);
    }

    /// Publishes the data and the counters of the batch, for other clients to read.
    pub fn settle(&mut self) {
        self.note_buffers();
        self.client.settle(&self.session);
    }

    fn note_buffers(&mut self) {
        self.client.note_buffers(Buffers {
            received: self.received.len(),
            free: self.received.capacity() - self.received.len(),
            replies: self.replies.capacity(),
        });
    }

    /// Resets the session. Blocks on shards that long commands hold if keys are watched.
    pub fn end(&mut self) {
        if let Some(keys) = self.client.keys() {
            self.session.reset(&keys);
        }
    }

    /// Ends the connection without blocking: watched keys and large queues of commands are cleaned up by a thread for
    /// long commands. The connection is no longer counted when this returns.
    pub fn part(self, long: &Arc<LongCommands>) {
        let RequestExecutor { client, mut session, .. } = self;
        let tenant = client.tenant().cloned();
        let Some((tenant, (keys, mut memory))) = tenant.zip(client.part()) else { return };
        if session.is_watching() || session.bytes() > limits::KV_STEP_WORK_MAX {
            memory.set(session.bytes());
            let clean_up = move || {
                session.reset(&keys);
                drop(memory);
            };
            long.clean_up(&tenant, Box::new(clean_up));
        }
    }

    /// Executes the next command without a limit of time; blocks. Called on a thread for long commands.
    pub fn carry_out_long(&mut self) -> ExecutorProgress {
        self.session.set_mode(ExecutionMode::Long);
        let progress = self.carry_out_some(1);
        self.session.set_mode(ExecutionMode::Short);
        progress
    }

    /// Executes complete requests for the duration of a turn, or until many bytes of replies have accumulated. Returns
    /// the reason for stopping.
    pub fn carry_out(&mut self) -> ExecutorProgress {
        self.carry_out_some(usize::MAX)
    }

    fn carry_out_some(&mut self, most: usize) -> ExecutorProgress {
        self.note_buffers();
        let RequestExecutor { node, client, session, batch, received, replies, random } = self;
        // The clock is read once per command, which gives its start and the duration of the previous command.
        let (began_ms, began_ns) = (node.keyspaces().time().now_ms(), node.clock().now_ns());
        let (mut now_ms, mut now_ns) = (began_ms, began_ns);
        let mut replies_max = client.room().min(limits::RESP_OUTPUT_BYTES_MAX);
        let mut keys = client.keys();
        let mut done = 0;
        while replies.len() < limits::RESP_REPLIES_BYTES_MAX
            && now_ns.saturating_sub(began_ns) < TURN_NS
            && done < most
        {
            if batch.is_done() {
                received.advance(batch.clear());
                match batch.fill(received, keys.as_deref(), session.space()) {
                    Ok(FillOutcome::Some) => {}
                    Ok(FillOutcome::None) => return ExecutorProgress::Waits,
                    Ok(FillOutcome::InPart) => return ExecutorProgress::HasMore,
                    Err(error) => {
                        if let Some(text) = error.reply() {
                            Replies::new(replies, client.protocol()).error(text);
                        }
                        return ExecutorProgress::Leaves;
                    }
                }
            }
            if most > 1 && keys.is_some() && batch.is_next_long() {
                return ExecutorProgress::Long;
            }
            let Some((args, ahead)) = batch.take(received) else { continue };
            if client.must_wait(session, &args) {
                batch.put_back();
                return ExecutorProgress::Paused;
            }
            // These commands unwatch keys, which locks the shards of watched keys and may block.
            if most > 1 && session.is_watching() && client.would_reset(ahead.command()) {
                batch.put_back();
                return ExecutorProgress::Long;
            }
            let releases = keys.as_ref().map_or(0, |keys| keys.releases());
            *random = next_random(*random);
            let moment = TimeAndRandom { now: now_ms, random: *random };
            let mut to = Replies::new(replies, client.protocol()).within(replies_max);
            let put_off = client.execute(keys.as_deref(), session, (&args, ahead), moment, &mut to);
            if let Some(why) = put_off {
                batch.put_back();
                return match why {
                    DeferReason::IsLong => ExecutorProgress::Long,
                    DeferReason::IsHeld => ExecutorProgress::Held(releases),
                };
            }
            done += 1;
            let ended_ns = node.clock().now_ns();
            let took_ns = ended_ns.saturating_sub(now_ns);
            (now_ns, now_ms) = (ended_ns, began_ms + ended_ns.saturating_sub(began_ns) / 1_000_000);
            client.took(&args, took_ns, now_ms);
            if client.is_leaving() {
                return ExecutorProgress::Leaves;
            }
            // The command may have changed the client's tenant, and so its keyspace.
            if !ahead.is_of_keys() && !client.has_keys(keys.as_ref()) {
                keys = client.keys();
                replies_max = client.room().min(limits::RESP_OUTPUT_BYTES_MAX);
                if let Some(keys) = &keys {
                    batch.look_ahead(received, keys, session.space());
                }
            }
        }
        ExecutorProgress::HasMore
    }
}

/// Returns the next number of a pseudo-random sequence (Marsaglia, "Xorshift RNGs", Journal of Statistical Software,
/// 2003).
fn next_random(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}
