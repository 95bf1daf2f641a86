//! State of a connection without its socket, and the loop that carries out requests. A long command moves it to another thread.

#[cfg(test)]
mod tests;

use super::batch::{Batch, Filled};
use super::clients::Buffers;
use super::host::Client;
use super::long::LongCommands;
use crate::Node;
use bytes::{Buf, BytesMut};
use farpool_kv::resp::Replies;
use farpool_kv::{Moment, Pace, PutOff, Session};
use farpool_model::limits;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Length of a turn: work for one client before others of its thread have theirs.
pub(super) const TURN_NS: u64 = 100_000;

pub(super) struct Desk {
    node: Arc<Node>,
    pub client: Client,
    pub session: Session,
    pub received: BytesMut,
    /// The requests at the beginning of `received`.
    batch: Batch,
    /// Replies that have not been sent.
    pub replies: Vec<u8>,
    /// Where random numbers come from.
    random: u64,
}

/// Reason for which [`Desk::carry_out`] returned.
pub(super) enum Progress {
    /// The rest of a command has not come yet.
    Waits,
    /// There may be more commands.
    HasMore,
    /// The next command waits for the end of a pause.
    Paused,
    /// The next command takes long.
    Long,
    /// The next command waits for a long one of the same tenant; the number of its releases before.
    Held(u64),
    /// The connection ends.
    Leaves,
}

impl Desk {
    pub fn new(node: &Arc<Node>, client: Client, number: u64) -> Self {
        let mut session = Session::default();
        session.set_pace(Pace::Short);
        Desk {
            node: Arc::clone(node),
            client,
            session,
            received: BytesMut::new(),
            batch: Batch::default(),
            replies: Vec::new(),
            random: RandomState::new().hash_one(number) | 1,
        }
    }

    /// Bytes of memory that it takes.
    pub fn bytes_held(&self) -> usize {
        let buffers = self.received.capacity() + self.replies.capacity() + self.batch.bytes_held();
        // The name is kept here, and where others see it.
        buffers + self.session.bytes() + 2 * self.client.name().len()
    }

    pub fn error(&mut self, text: &str) {
        Replies::new(&mut self.replies, self.client.protocol()).error(text);
    }

    /// Tells others what has been done.
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

    /// Ends what the client has begun; waits for long commands if keys are watched.
    pub fn end(&mut self) {
        if let Some(keys) = self.client.keys() {
            self.session.reset(&keys);
        }
    }

    /// Ends the connection's part in everything, without waiting for long commands: keys that are watched and large queues
    /// are left to a thread of theirs, the place among the connections is free at once.
    pub fn part(self, long: &Arc<LongCommands>) {
        let Desk { client, mut session, .. } = self;
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

    /// Carries out the next command, which takes long.
    pub fn carry_out_long(&mut self) -> Progress {
        self.session.set_pace(Pace::Long);
        let progress = self.carry_out_some(1);
        self.session.set_pace(Pace::Short);
        progress
    }

    /// Carries out the commands that have come whole, for the time of a turn, as long as their replies are not many.
    pub fn carry_out(&mut self) -> Progress {
        self.carry_out_some(usize::MAX)
    }

    fn carry_out_some(&mut self, most: usize) -> Progress {
        self.note_buffers();
        let Desk { node, client, session, batch, received, replies, random } = self;
        // One reading of a clock for each command tells when it began and how long the one before took.
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
                    Ok(Filled::Some) => {}
                    Ok(Filled::None) => return Progress::Waits,
                    Ok(Filled::InPart) => return Progress::HasMore,
                    Err(error) => {
                        if let Some(text) = error.reply() {
                            Replies::new(replies, client.protocol()).error(text);
                        }
                        return Progress::Leaves;
                    }
                }
            }
            if most > 1 && keys.is_some() && batch.is_next_long() {
                return Progress::Long;
            }
            let Some((args, ahead)) = batch.take(received) else { continue };
            if client.must_wait(session, &args) {
                batch.put_back();
                return Progress::Paused;
            }
            // Keys are watched no more behind these, for which their shards are taken.
            if most > 1 && session.is_watching() && client.would_reset(&args) {
                batch.put_back();
                return Progress::Long;
            }
            let releases = keys.as_ref().map_or(0, |keys| keys.releases());
            *random = next_random(*random);
            let moment = Moment { now: now_ms, random: *random };
            let mut to = Replies::new(replies, client.protocol()).within(replies_max);
            let put_off = client.execute(keys.as_deref(), session, (&args, ahead), moment, &mut to);
            if let Some(why) = put_off {
                batch.put_back();
                return match why {
                    PutOff::IsLong => Progress::Long,
                    PutOff::IsHeld => Progress::Held(releases),
                };
            }
            done += 1;
            let ended_ns = node.clock().now_ns();
            let took_ns = ended_ns.saturating_sub(now_ns);
            (now_ns, now_ms) = (ended_ns, began_ms + ended_ns.saturating_sub(began_ns) / 1_000_000);
            client.took(&args, took_ns, now_ms);
            if client.is_leaving() {
                return Progress::Leaves;
            }
            // It may be somebody else now, with other keys.
            if !ahead.is_of_keys() && !client.has_keys(keys.as_ref()) {
                keys = client.keys();
                replies_max = client.room().min(limits::RESP_OUTPUT_BYTES_MAX);
                if let Some(keys) = &keys {
                    batch.look_ahead(received, keys, session.space());
                }
            }
        }
        Progress::HasMore
    }
}

/// Returns the next number of a sequence (Marsaglia, "Xorshift RNGs", Journal of Statistical Software, 2003).
fn next_random(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}
