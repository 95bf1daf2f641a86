//! The timeouts of a connection: pings a silent client, disconnects a client that does not answer, and ends results
//! that are not read.
//!
//! Time is measured in ticks, so that sending and receiving need not read the clock; all timeouts are exact to a tick.
//! Invariant: a client that answers pings, or still reads its results, is not disconnected.

use super::connection::{Connection, StreamWork};
use super::lanes::Stalled;
use farpool_model::{Error, limits};
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// Milliseconds per tick. Reason for 5 s: short compared with the timeouts, and a thousand connections wake a CPU only
/// a few hundred times per second.
pub(super) const TICK_MS: u64 = 5_000;

/// Number of ticks without bytes from or to a client after which it is pinged.
const ASK_TICKS: u64 = limits::CLIENT_PING_AFTER_MS / TICK_MS;

/// Number of ticks without bytes from or to a client after which it is disconnected.
const GONE_TICKS: u64 = ASK_TICKS + limits::PONG_MS_MAX / TICK_MS;

/// Number of ticks without progress after which a result that the client does not read is ended.
const UNREAD_TICKS: u32 = (limits::UNREAD_MS_MAX / TICK_MS) as u32;

/// Number of ticks without progress after which results and loads are ended while others wait for memory.
const SHORT_TICKS: u32 = 2;

const _: () = assert!(ASK_TICKS > 0 && GONE_TICKS > ASK_TICKS && UNREAD_TICKS as u64 > GONE_TICKS);

/// Checks the timeouts of a connection every `tick`, until the client must be disconnected; returns the reason.
pub(super) async fn watch_over(connection: &Connection, tick: Duration) -> Error {
    let mut silence = Silence::default();
    loop {
        sleep(tick).await;
        let is_short = connection.caller.account().is_short();
        give_up_unread(connection, is_short);
        give_up_silent_loads(connection, is_short);
        match silence.tick(connection.progress()) {
            Liveness::Alive => {}
            Liveness::Unknown => connection.outbox.ping(),
            Liveness::Gone => return gone(),
        }
        if is_short && silence.ticks >= u64::from(SHORT_TICKS) && connection.is_in_the_way() {
            return needed("the rest of a message did not come");
        }
    }
}

/// Ends requests of a client that exceed the caller's timeout; never resolves.
pub(super) async fn end_late_requests(connection: &Connection) {
    let Some(timeout) = connection.caller.timeout() else { return pending().await };
    let limit_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    loop {
        let now_ns = connection.caller.clock().now_ns();
        let left_ns = |opened_ns: u64| opened_ns.saturating_add(limit_ns).saturating_sub(now_ns);
        let open: Vec<(u32, u64)> = connection.outbox.with(|lanes| lanes.opened().collect());
        for (stream, _) in open.iter().filter(|(_, opened_ns)| left_ns(*opened_ns) == 0) {
            connection.give_up(*stream, Error::timed_out("the request", timeout));
        }
        // All requests have the same timeout, so a request opened during the sleep is not due before the earlier ones.
        let left = open.iter().map(|(_, opened_ns)| left_ns(*opened_ns)).filter(|left| *left > 0).min();
        sleep(left.map_or(timeout, Duration::from_nanos)).await;
    }
}

/// Ends programs whose client gives no credit or does not read, because they hold memory of tables and groups.
fn give_up_unread(connection: &Connection, is_short: bool) {
    let stalled = connection.outbox.with(|lanes| {
        lanes.tick();
        lanes.stalled(if is_short { SHORT_TICKS } else { UNREAD_TICKS })
    });
    if is_short {
        for Stalled { stream, .. } in stalled {
            connection.give_up(stream, needed("the result was not read"));
        }
        return;
    }
    for Stalled { stream, bytes_queued } in stalled {
        let minutes = limits::UNREAD_MS_MAX / 60_000;
        tracing::info!(stream, bytes_queued, "a result was not read for {minutes} minutes");
        let error = Error::over_limit(format!("the result was not read for {minutes} minutes"))
            .advise("read results as they come; run the query again, with a limit if it gives too many rows");
        connection.give_up(stream, error);
    }
}

/// Ends loads whose client has sent nothing for a while, if others wait for the memory that their rows take.
fn give_up_silent_loads(connection: &Connection, is_short: bool) {
    let silent: Vec<u32> = connection.outbox.with(|lanes| {
        let loads = lanes.works().filter_map(|(stream, work)| match work {
            StreamWork::Load(inbox) => Some((stream, inbox.is_silent(SHORT_TICKS))),
            _ => None,
        });
        loads.filter(|(_, silent)| *silent).map(|(stream, _)| stream).collect()
    });
    for stream in silent.into_iter().filter(|_| is_short) {
        connection.give_up(stream, needed("no rows came"));
    }
}

/// Returns the error for work that made no progress and held memory for which others waited.
fn needed(what: &str) -> Error {
    let seconds = u64::from(SHORT_TICKS) * TICK_MS / 1000;
    Error::over_limit(format!("{what} for {seconds} s, while others waited for the memory that it takes"))
        .advise("try again later; read results as they come, and send what you have begun to send")
}

fn gone() -> Error {
    let seconds = (limits::CLIENT_PING_AFTER_MS + limits::PONG_MS_MAX) / 1000;
    Error::unavailable(format!("the client does not answer: nothing came from it for {seconds} s"))
}

/// Meaning of the silence of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Liveness {
    Alive,
    /// The client has been silent for so long that it must be pinged.
    Unknown,
    Gone,
}

/// Counter of the ticks since bytes were last received from or sent to a client.
#[derive(Debug, Default)]
struct Silence {
    progress: (u64, u64),
    ticks: u64,
}

impl Silence {
    /// Counts a tick; `progress` is the result of [`Connection::progress`] now.
    fn tick(&mut self, progress: (u64, u64)) -> Liveness {
        if std::mem::replace(&mut self.progress, progress) != progress {
            self.ticks = 0;
        }
        self.ticks += 1;
        match self.ticks {
            ASK_TICKS => Liveness::Unknown,
            ticks if ticks > GONE_TICKS => Liveness::Gone,
            _ => Liveness::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_asked_about_once_and_then_ends_the_connection() {
        let mut silence = Silence::default();
        let seen: Vec<Liveness> = (0..=GONE_TICKS).map(|_| silence.tick((7, 7))).collect();
        assert_eq!(seen.iter().filter(|liveness| **liveness == Liveness::Unknown).count(), 1);
        assert_eq!(seen.iter().position(|liveness| *liveness == Liveness::Gone), Some(GONE_TICKS as usize));
    }

    #[test]
    fn whoever_answers_or_takes_bytes_is_alive() {
        for step in [(1, 0), (0, 1)] {
            let mut silence = Silence::default();
            let mut moved = (0, 0);
            for _ in 0..100 {
                moved = (moved.0 + step.0, moved.1 + step.1);
                let seen: Vec<Liveness> = (0..GONE_TICKS).map(|_| silence.tick(moved)).collect();
                assert!(!seen.contains(&Liveness::Gone));
            }
        }
    }
}
