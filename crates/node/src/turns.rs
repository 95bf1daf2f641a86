//! Turns: so many requests of a tenant have profiles made at once, the others wait in line, first come first served.

use farpool_model::limits;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the file's comment.
#[derive(Default)]
pub(crate) struct Turns(Mutex<Line>);

#[derive(Default)]
struct Line {
    taken: usize,
    waiting: VecDeque<Arc<Place>>,
}

struct Place {
    has_come: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// A turn, or a place in the line for one. Dropped, it goes to the next.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    place: Arc<Place>,
}

impl Turns {
    /// A turn, or the last place in line; `wake` is called when its turn has come.
    pub fn line_up(self: &Arc<Self>, wake: Box<dyn Fn() + Send + Sync>) -> Turn {
        let mut line = self.0.lock();
        let is_free = line.taken < limits::PROFILES_AWAITED_MAX;
        let place = Arc::new(Place { has_come: AtomicBool::new(is_free), wake });
        match is_free {
            true => line.taken += 1,
            false => line.waiting.push_back(place.clone()),
        }
        Turn { turns: self.clone(), place }
    }
}

impl Turn {
    /// Whether it has come.
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
        let Some(next) = line.waiting.pop_front() else {
            line.taken -= 1;
            return;
        };
        next.has_come.store(true, Ordering::Release);
        drop(line);
        (next.wake)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_turn_goes_to_whoever_has_waited_longest_and_still_does() {
        let turns = Arc::new(Turns::default());
        let woken = Arc::new(AtomicUsize::new(0));
        let line_up = || {
            let woken = woken.clone();
            turns.line_up(Box::new(move || {
                woken.fetch_add(1, Ordering::SeqCst);
            }))
        };
        let mut taken: Vec<Turn> = (0..limits::PROFILES_AWAITED_MAX).map(|_| line_up()).collect();
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
        assert!((0..limits::PROFILES_AWAITED_MAX).map(|_| line_up()).all(|turn| turn.has_come()));
    }
}
