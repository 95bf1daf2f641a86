//! Turns: permissions to proceed, which limit how many requests of a tenant are in progress at the same time (a
//! semaphore with a first-in, first-out queue).

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A callback that is called when a queued request gets its turn.
type Wake = Box<dyn Fn() + Send + Sync>;

/// The turns of one tenant and the queue of requests that wait for one.
pub(crate) struct Turns(Mutex<TurnQueue>);

struct TurnQueue {
    at_once_max: usize,
    taken: usize,
    waiting: VecDeque<Arc<QueuedTurn>>,
}

struct QueuedTurn {
    has_come: AtomicBool,
    wake: Wake,
}

/// A turn, or a place in the queue for one. Dropping it releases the turn to the next request in the queue, or leaves
/// the queue.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    place: Arc<QueuedTurn>,
}

impl Turns {
    /// Creates turns for at most `at_once_max` requests at the same time.
    pub fn new(at_once_max: usize) -> Self {
        Turns(Mutex::new(TurnQueue { at_once_max, taken: 0, waiting: VecDeque::new() }))
    }

    /// Changes the maximum number of requests at the same time. Turns already taken are not revoked.
    pub fn set_at_once_max(&self, at_once_max: usize) {
        let mut line = self.0.lock();
        line.at_once_max = at_once_max;
        let come = line.call();
        drop(line);
        come.iter().for_each(|place| (place.wake)());
    }

    /// Takes a turn if one is free, and otherwise the last place in the queue; `wake` is then called when the turn
    /// comes. Does not block.
    pub fn line_up(self: &Arc<Self>, wake: Wake) -> Turn {
        let mut line = self.0.lock();
        line.add(self.clone(), wake)
    }

    /// Does the same as [`Turns::line_up`], but returns `None` if no turn is free and `waiting_max` requests wait
    /// already.
    pub fn line_up_within(self: &Arc<Self>, waiting_max: usize, wake: Wake) -> Option<Turn> {
        let mut line = self.0.lock();
        (line.is_free() || line.waiting.len() < waiting_max).then(|| line.add(self.clone(), wake))
    }

    /// Returns the number of turns that are taken, and the number of requests that wait for one.
    pub fn count(&self) -> (usize, usize) {
        let line = self.0.lock();
        (line.taken, line.waiting.len())
    }
}

impl TurnQueue {
    fn is_free(&self) -> bool {
        self.taken < self.at_once_max
    }

    fn add(&mut self, turns: Arc<Turns>, wake: Wake) -> Turn {
        let is_free = self.is_free();
        let place = Arc::new(QueuedTurn { has_come: AtomicBool::new(is_free), wake });
        match is_free {
            true => self.taken += 1,
            false => self.waiting.push_back(place.clone()),
        }
        Turn { turns, place }
    }

    /// Gives free turns to the requests that have waited longest; returns these, which the caller must wake after
    /// releasing the lock.
    fn call(&mut self) -> Vec<Arc<QueuedTurn>> {
        let free = self.at_once_max.saturating_sub(self.taken).min(self.waiting.len());
        self.taken += free;
        let come: Vec<_> = self.waiting.drain(..free).collect();
        come.iter().for_each(|place| place.has_come.store(true, Ordering::Release));
        come
    }
}

impl Turn {
    /// Returns whether the request has its turn (true) or still waits in the queue.
    pub fn has_come(&self) -> bool {
        self.place.has_come.load(Ordering::Acquire)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = self.turns.0.lock();
        if !self.has_come() {
            line.waiting.retain(|place| !Arc::ptr_eq(place, &self.place));
            return;
        }
        line.taken -= 1;
        let come = line.call();
        drop(line);
        come.iter().for_each(|place| (place.wake)());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const AT_ONCE: usize = 4;

    fn lining_up(turns: &Arc<Turns>, woken: &Arc<AtomicUsize>, waiting_max: usize) -> Option<Turn> {
        let woken = woken.clone();
        let wake = move || {
            woken.fetch_add(1, Ordering::SeqCst);
        };
        turns.line_up_within(waiting_max, Box::new(wake))
    }

    #[test]
    fn a_turn_goes_to_whoever_has_waited_longest_and_still_does() {
        let (turns, woken) = (Arc::new(Turns::new(AT_ONCE)), Arc::default());
        let line_up = || lining_up(&turns, &woken, usize::MAX).unwrap();
        let mut taken: Vec<Turn> = (0..AT_ONCE).map(|_| line_up()).collect();
        assert!(taken.iter().all(Turn::has_come));
        let [gives_up, first, second] = [line_up(), line_up(), line_up()];
        drop(gives_up);
        assert_eq!((first.has_come(), second.has_come()), (false, false));
        taken.pop();
        assert_eq!((first.has_come(), second.has_come()), (true, false));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        drop(first);
        assert!(second.has_come());
        drop((taken, second));
        assert!((0..AT_ONCE).map(|_| line_up()).all(|turn| turn.has_come()));
    }

    #[test]
    fn no_more_wait_than_may() {
        let (turns, woken) = (Arc::new(Turns::new(1)), Arc::default());
        let line_up = |waiting_max| lining_up(&turns, &woken, waiting_max);
        let taken = line_up(0).unwrap();
        assert!(line_up(0).is_none());
        let waiting = line_up(1).unwrap();
        assert!(line_up(1).is_none());
        assert_eq!(turns.count(), (1, 1));
        drop(taken);
        assert!(waiting.has_come() && line_up(1).is_some_and(|turn| !turn.has_come()));
    }

    #[test]
    fn a_lower_number_counts_for_those_to_come() {
        let (turns, woken) = (Arc::new(Turns::new(2)), Arc::default());
        let line_up = || lining_up(&turns, &woken, usize::MAX).unwrap();
        let taken = [line_up(), line_up()];
        let waiting = [line_up(), line_up()];
        turns.set_at_once_max(1);
        let [first, second] = taken;
        drop(first);
        assert!(waiting.iter().all(|turn| !turn.has_come()));
        drop(second);
        assert_eq!(waiting.iter().filter(|turn| turn.has_come()).count(), 1);
        turns.set_at_once_max(9);
        assert!(waiting.iter().all(Turn::has_come));
        assert_eq!(woken.load(Ordering::SeqCst), 2);
    }
}
