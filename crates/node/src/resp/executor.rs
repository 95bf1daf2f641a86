//! The state of a connection without its socket, and the loop that executes requests. A long command moves this state
//! to another thread.

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

/// Length of a turn: nanoseconds of work for one connection before others of its thread get theirs.
pub(super) const TURN_NS: u64 = 100_000;

pub(super) struct RequestExecutor {
    node: Arc<Node>,
    pub client: Client,
    pub session: Session,
    pub received: BytesMut,
    /// Parsed requests at the start of `received`.
    batch: Batch,
    /// Replies not sent yet.
    pub replies: Vec<u8>,
    /// State of the generator of pseudo-random numbers.
    random: u64,
}

/// The reason why [`RequestExecutor::carry_out`] returned.
pub(super) enum ExecutorProgress {
    /// The next request is incomplete.
    Waits,
    /// There may be more complete requests.
    HasMore,
    /// The next command waits for the end of a pause.
    Paused,
    /// The next command takes long.
    Long,
    /// The next command waits for a long command of the same tenant; the value of [`farpool_kv::Keyspace::releases`]
    /// before it was tried.
    Held(u64),
    /// The connection is to be closed.
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
        // The name is stored here and in the state that others see.
        buffers + self.session.bytes() + 2 * self.client.name().len()
    }

    pub fn error(&mut self, text: &str) {
        Replies::new(&mut self.replies, self.client.protocol()).error(text);
    }

    /// Publishes the results of a batch to other clients.
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

    /// Resets the session; waits for long commands if keys are watched.
    pub fn end(&mut self) {
        if let Some(keys) = self.client.keys() {
            self.session.reset(&keys);
        }
    }

    /// Ends the connection without waiting for long commands: watched keys and large queues are cleaned up by a thread
    /// for long commands; the connection's place is free at once.
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

    /// Executes the next command, which takes long.
    pub fn carry_out_long(&mut self) -> ExecutorProgress {
        self.session.set_mode(ExecutionMode::Long);
        let progress = self.carry_out_some(1);
        self.session.set_mode(ExecutionMode::Short);
        progress
    }

    /// Executes complete requests for the duration of a turn, or until many bytes of replies have accumulated.
    pub fn carry_out(&mut self) -> ExecutorProgress {
        self.carry_out_some(usize::MAX)
    }

    fn carry_out_some(&mut self, most: usize) -> ExecutorProgress {
        self.note_buffers();
        let RequestExecutor { node, client, session, batch, received, replies, random } = self;
        // One clock reading per command gives the start of this one and the duration of the previous one.
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
            // These commands end watches, which locks the shards of watched keys and may wait.
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
            // The client may have changed its tenant, and so its keys.
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
