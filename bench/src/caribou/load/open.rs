//! The open loop of the load generator: requests are sent when they are due, regardless of earlier replies.

use super::worker::{Input, Line, Worker};
use super::{Refused, phases};
use anyhow::{Result, bail};
use futures::future::{Either, join, select, try_join_all};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::pin::pin;
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;

/// Maximum number of requests per connection that wait for a reply. Reason: the generator's memory must not grow
/// without bound if the server is slower than the rate.
const WAITING_MAX: usize = 1 << 20;

/// Sends requests at their due times, `rate` per second, until the run ends; replies are read at the same time.
///
/// # Errors
/// Fails with [`Refused`] if a connection breaks, and if a reply is wrong.
pub async fn open(worker: &RefCell<Worker<'_>>, streams: &mut [TcpStream], rate: f64) -> Result<()> {
    let lines: Vec<RefCell<Line>> = streams.iter().map(|_| RefCell::default()).collect();
    let halves = streams.iter_mut().map(|stream| stream.split());
    let (mut readers, writers): (Vec<_>, Vec<_>) = halves.unzip();
    let reading = readers.iter_mut().zip(&lines).map(|(reader, line)| async move {
        let mut input = Input::new();
        loop {
            input.read(reader).await?;
            worker.borrow_mut().take(&mut line.borrow_mut(), &mut input)?;
        }
    });
    let reading = pin!(try_join_all(reading));
    let sending = pin!(join(phases(worker), pace(worker, &writers, &lines, rate)));
    match select(sending, reading).await {
        Either::Left(((ended, paced), _)) => {
            lines.iter().for_each(|line| worker.borrow_mut().give_up(&line.borrow()));
            ended.and(paced)
        }
        Either::Right((ended, _)) => ended.map(|_: Vec<()>| ()),
    }
}

/// Sends requests when they are due, until the run ends.
async fn pace(
    worker: &RefCell<Worker<'_>>,
    writers: &[WriteHalf<'_>],
    lines: &[RefCell<Line>],
    rate: f64,
) -> Result<()> {
    let mut pace = Pace { rate, due: Instant::now(), turn: 0, waiting: 0, to_write: Vec::new() };
    while !worker.borrow().is_over {
        pace.ask(&mut worker.borrow_mut(), lines);
        pace.write(writers, lines)?;
        // Polls the sockets without waiting: timers are too coarse for requests that are due within some microseconds.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The schedule of an open loop, which deals requests to connections in turn.
struct Pace {
    /// Requests per second.
    rate: f64,
    /// Time at which the next request is due.
    due: Instant,
    /// Index of the connection that sends the next request.
    turn: usize,
    /// Number of requests without a reply, of the connection that has the most of them.
    waiting: usize,
    /// Indices of the connections with output that is not written yet.
    to_write: Vec<usize>,
}

impl Pace {
    /// Queues the requests that are due by now.
    fn ask(&mut self, worker: &mut Worker<'_>, lines: &[RefCell<Line>]) {
        let now = Instant::now();
        while self.due <= now && self.waiting < WAITING_MAX {
            worker.ask(&mut lines[self.turn].borrow_mut(), self.due);
            self.to_write.push(self.turn);
            self.turn = (self.turn + 1) % lines.len();
            self.due += worker.gap(self.rate);
        }
        self.waiting = 0;
    }

    /// Writes as much output as the sockets accept without blocking.
    fn write(&mut self, writers: &[WriteHalf<'_>], lines: &[RefCell<Line>]) -> Result<()> {
        let mut blocked = Vec::new();
        for place in self.to_write.drain(..) {
            let mut line = lines[place].borrow_mut();
            self.waiting = self.waiting.max(line.asked.len());
            // A connection is listed once per request, but its first write takes all of its output.
            if line.output.is_empty() {
                continue;
            }
            match writers[place].try_write(&line.output) {
                Ok(count) => drop(line.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => bail!(Refused(format!("a connection broke: {error}"))),
            }
            if !line.output.is_empty() {
                blocked.push(place);
            }
        }
        self.to_write = blocked;
        Ok(())
    }
}
