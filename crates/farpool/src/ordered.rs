//! Runs tasks on several threads and returns their results in the order of the tasks.
//!
//! Each free thread takes the next task and queues a channel for its results; the reader reads the channels in the
//! order of the queue. Memory is bounded, because the queue and each channel have a fixed capacity, and threads wait
//! for capacity.
//!
//! Invariant: if a thread panics, the stream ends with an error; it never ends early as if complete.

use arrow::array::RecordBatch;
use farpool_files::{Task, Tasks};
use farpool_model::{Error, Result};
use farpool_transfer::BatchStream;
use futures::stream;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of threads. Reason: more do not parse a file faster, because they wait for its bytes.
const THREADS_MAX: usize = 16;

/// Maximum number of batches of one task that wait for the reader. Reason: bounds the memory of tasks that are ahead of
/// the reader.
const BATCHES_AHEAD: usize = 4;

/// A message from the thread of a task to the reader.
enum Item {
    Batch(Result<RecordBatch>),
    /// The task is complete. A channel closed without this message means that its thread has panicked.
    End,
}

/// The tasks and the queue of their channels; locked by one thread at a time.
struct Line {
    /// The remaining tasks; `None` when all have been taken.
    tasks: Option<Tasks>,
    /// The queue of the tasks' channels, in order. An entry `None` means that there are no further tasks.
    places: Sender<Option<Receiver<Item>>>,
}

/// Returns the number of threads worth using.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// Runs the tasks that `make` returns on `threads` threads, and returns their batches as a stream, which ends after the
/// first error. Must be called within a tokio runtime, because it starts blocking tasks. Dropping the stream ends the
/// threads at their next batch.
pub(crate) fn stream_tasks(make: impl FnOnce() -> Tasks + Send + 'static, threads: usize) -> BatchStream {
    let threads = threads.max(1);
    let (places, line) = channel(threads);
    let tasks: Tasks = Box::new(std::iter::once_with(make).flatten());
    let shared = Arc::new(Mutex::new(Line { tasks: Some(tasks), places }));
    for _ in 0..threads {
        let shared = shared.clone();
        tokio::task::spawn_blocking(move || work(&shared));
    }
    drop(shared);
    Box::pin(stream::unfold(Reader { line, place: None, is_done: false }, async |mut reader| {
        let item = reader.next().await?;
        reader.is_done = item.is_err();
        Some((item, reader))
    }))
}

/// Runs one task after the other, as the body of a thread.
fn work(shared: &Mutex<Line>) {
    while let Some((task, place)) = take(shared) {
        for batch in task() {
            if place.blocking_send(Item::Batch(batch)).is_err() {
                return;
            }
        }
        // The reader may have been dropped.
        let _ = place.blocking_send(Item::End);
    }
}

/// Takes the next task and queues the channel for its batches; `None` if there are no more tasks.
fn take(shared: &Mutex<Line>) -> Option<(Task, Sender<Item>)> {
    // A thread that panicked here has taken `tasks` and queued nothing, which the reader sees as a closed queue.
    let mut line = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tasks = line.tasks.take()?;
    let Some(task) = tasks.next() else {
        let _ = line.places.blocking_send(None);
        return None;
    };
    let (sender, receiver) = channel(BATCHES_AHEAD);
    line.places.blocking_send(Some(receiver)).ok()?;
    line.tasks = Some(tasks);
    Some((task, sender))
}

/// A stream that reads the channels of the tasks in order.
struct Reader {
    line: Receiver<Option<Receiver<Item>>>,
    place: Option<Receiver<Item>>,
    is_done: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<RecordBatch>> {
        let stopped = || Some(Err(Error::internal("reading stopped: a thread of it has panicked")));
        if self.is_done {
            return None;
        }
        loop {
            let Some(place) = &mut self.place else {
                match self.line.recv().await {
                    Some(Some(place)) => self.place = Some(place),
                    Some(None) => return None,
                    None => return stopped(),
                }
                continue;
            };
            match place.recv().await {
                Some(Item::Batch(batch)) => return Some(batch),
                Some(Item::End) => self.place = None,
                None => return stopped(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use futures::StreamExt;

    fn batch(number: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![number]));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    fn task(number: i64) -> Task {
        Box::new(move || {
            // Tasks with other numbers end earlier than those whose number is divisible by 3, so that later tasks
            // finish before earlier ones.
            (0..500 * i64::from(number % 3 == 0)).for_each(|_| std::thread::yield_now());
            Box::new((0..number % 4).map(move |i| match number * 10 + i {
                991 => Err(Error::invalid("this one")),
                970 => panic!("in a task"),
                value => Ok(batch(value)),
            }))
        })
    }

    async fn read(numbers: std::ops::Range<i64>, threads: usize) -> (Vec<RecordBatch>, Option<String>) {
        let mut stream = stream_tasks(move || Box::new(numbers.map(task)), threads);
        let (mut batches, mut error) = (Vec::new(), None);
        while let Some(item) = stream.next().await {
            match item {
                Ok(batch) => batches.push(batch),
                Err(what) => error = Some(what.to_string()),
            }
        }
        (batches, error)
    }

    #[tokio::test]
    async fn order_and_errors_do_not_depend_on_the_number_of_threads() {
        let expected: Vec<_> = (0..60).flat_map(|n| (0..n % 4).map(move |i| batch(n * 10 + i))).collect();
        for threads in [1, 2, 7] {
            assert_eq!(read(0..60, threads).await, (expected.clone(), None));
            let (batches, error) = read(98..200, threads).await;
            assert!(error.unwrap().contains("this one"));
            assert_eq!(batches, [batch(980), batch(981), batch(990)]);
        }
    }

    #[tokio::test]
    async fn a_thread_that_panics_is_no_end() {
        for threads in [1, 3] {
            assert!(read(97..98, threads).await.1.unwrap().contains("panicked"));
            let makes = || -> Tasks { panic!("while tasks are made") };
            let item = stream_tasks(makes, threads).next().await;
            assert!(item.unwrap().unwrap_err().to_string().contains("panicked"));
        }
    }

    #[tokio::test]
    async fn who_has_enough_ends_the_threads() {
        let mut stream = stream_tasks(|| Box::new((1..i64::MAX).map(task)), 4);
        assert_eq!(stream.next().await.unwrap().unwrap(), batch(10));
    }
}
