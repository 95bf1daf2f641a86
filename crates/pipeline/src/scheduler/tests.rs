//! Fairness, back-pressure, cancelling and panics, with tasks that only count.

use super::*;
use farpool_model::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// A clock that stands still.
#[derive(Debug)]
struct Standing;

impl Clock for Standing {
    fn now_ns(&self) -> u64 {
        0
    }
    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

/// A task of `steps` steps of `bytes` each, which panics at step `panic_at`.
struct Counting {
    steps: u64,
    bytes: u64,
    panic_at: Option<u64>,
    taken: AtomicU64,
    error: Mutex<Option<Error>>,
    waker: Mutex<Option<Waker>>,
}

impl Counting {
    fn new(steps: u64, bytes: u64) -> Arc<Self> {
        Arc::new(Counting {
            steps,
            bytes,
            panic_at: None,
            taken: AtomicU64::new(0),
            error: Mutex::default(),
            waker: Mutex::default(),
        })
    }
}

impl Task for Counting {
    fn step(&self, _: &dyn Clock) -> Result<Step> {
        if let Some(error) = self.error() {
            return Err(error);
        }
        let step = self.taken.fetch_add(1, SeqCst);
        assert_ne!(Some(step), self.panic_at, "step {step} panics");
        Ok(if step >= self.steps { Step::Done } else { Step::Batches(vec![empty_batch()]) })
    }
    fn cancel(&self) {
        self.error.lock().get_or_insert(Error::cancelled());
        if let Some(waker) = &*self.waker.lock() {
            waker();
        }
    }
    fn error(&self) -> Option<Error> {
        self.error.lock().clone()
    }
    fn bytes_scanned(&self) -> u64 {
        self.taken.load(SeqCst).min(self.steps) * self.bytes
    }
    fn add_cpu(&self, _ns: u64) {}
    fn receipt(&self) -> Receipt {
        Receipt { bytes_scanned: self.bytes_scanned(), ..Receipt::default() }
    }
    fn on_stop(&self, waker: Waker) {
        *self.waker.lock() = Some(waker);
    }
}

fn empty_batch() -> RecordBatch {
    RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty()))
}

/// A sink with room for `room` batches.
struct Bounded {
    room: AtomicUsize,
    batches: AtomicUsize,
    panics: bool,
    outcomes: Mutex<Vec<Result<Receipt>>>,
    after_end: AtomicBool,
}

impl Bounded {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Bounded {
            room: AtomicUsize::new(room),
            batches: AtomicUsize::new(0),
            panics: false,
            outcomes: Mutex::default(),
            after_end: AtomicBool::new(false),
        })
    }

    fn outcome(&self) -> Option<Result<Receipt>> {
        let outcomes = self.outcomes.lock();
        assert!(outcomes.len() <= 1, "finish was called twice");
        outcomes.first().cloned()
    }
}

impl Sink for Bounded {
    fn ready(&self) -> bool {
        self.batches.load(SeqCst) < self.room.load(SeqCst)
    }
    fn batch(&self, _batch: RecordBatch) {
        assert!(!self.panics, "this sink panics");
        if !self.outcomes.lock().is_empty() {
            self.after_end.store(true, SeqCst);
        }
        self.batches.fetch_add(1, SeqCst);
    }
    fn encoded(&self, _group: RowGroup) {
        panic!("nothing here ships row groups");
    }
    fn finish(&self, outcome: Result<Receipt>) {
        self.outcomes.lock().push(outcome);
    }
}

const NO_CLOCK: &dyn WorkerThread = &|| 0;

#[track_caller]
fn work(scheduler: &Scheduler, turns: usize) {
    for _ in 0..turns {
        assert!(scheduler.work(NO_CLOCK));
    }
}

fn submit(scheduler: &Scheduler, task: &Arc<Counting>, sink: &Arc<Bounded>) {
    scheduler.submit_task(&Arc::default(), task.clone(), sink.clone());
}

#[test]
fn two_runs_share_equally_by_bytes_not_by_steps() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let (small, large) = (Counting::new(u64::MAX, 10), Counting::new(u64::MAX, 70));
    let sink = Bounded::new(usize::MAX);
    submit(&scheduler, &small, &sink);
    submit(&scheduler, &large, &sink);
    for _ in 0..1_000 {
        work(&scheduler, 1);
        assert!(small.bytes_scanned().abs_diff(large.bytes_scanned()) <= 70);
    }
    assert!(large.bytes_scanned() > 8_000);
}

#[test]
fn runs_of_one_region_share_what_the_region_gets() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let (greedy, modest): (Arc<Region>, Arc<Region>) = Default::default();
    let sink = Bounded::new(usize::MAX);
    let many: Vec<_> = (0..9).map(|_| Counting::new(u64::MAX, 10)).collect();
    let one = Counting::new(u64::MAX, 10);
    many.iter().for_each(|task| scheduler.submit_task(&greedy, task.clone(), sink.clone()));
    scheduler.submit_task(&modest, one.clone(), sink.clone());
    work(&scheduler, 1_800);
    assert!(one.bytes_scanned().abs_diff(9_000) <= 10);
    assert!(many.iter().all(|task| task.bytes_scanned().abs_diff(1_000) <= 10));
}

#[test]
fn a_newcomer_starts_from_the_present() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let sink = Bounded::new(usize::MAX);
    let (old, new) = (Counting::new(u64::MAX, 10), Counting::new(u64::MAX, 10));
    submit(&scheduler, &old, &sink);
    work(&scheduler, 1_000);
    submit(&scheduler, &new, &sink);
    work(&scheduler, 100);
    assert!(new.bytes_scanned().abs_diff(500) <= 10, "{}", new.bytes_scanned());
}

#[test]
fn a_run_with_a_full_sink_does_not_stall_another_and_saves_up_nothing() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let (stuck_sink, sink) = (Bounded::new(3), Bounded::new(usize::MAX));
    let (stuck, other) = (Counting::new(u64::MAX, 10), Counting::new(u64::MAX, 10));
    submit(&scheduler, &stuck, &stuck_sink);
    submit(&scheduler, &other, &sink);
    work(&scheduler, 1_003);
    assert_eq!((stuck.bytes_scanned(), other.bytes_scanned()), (30, 10_000));
    stuck_sink.room.store(usize::MAX, SeqCst);
    scheduler.wake();
    work(&scheduler, 100);
    assert!(stuck.bytes_scanned().abs_diff(530) <= 10, "{}", stuck.bytes_scanned());
}

#[test]
fn steps_that_read_nothing_cost_cpu_time() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let sink = Bounded::new(usize::MAX);
    let (merging, scanning) = (Counting::new(u64::MAX, 0), Counting::new(u64::MAX, 10));
    submit(&scheduler, &merging, &sink);
    submit(&scheduler, &scanning, &sink);
    let time = AtomicU64::new(0);
    for _ in 0..1_200 {
        scheduler.work(&|| time.fetch_add(50, SeqCst));
    }
    // 50 ns against 10 bytes: one step to five.
    assert!(merging.taken.load(SeqCst).abs_diff(200) <= 2);
    assert!(scanning.taken.load(SeqCst).abs_diff(1_000) <= 2);
}

#[test]
fn a_run_that_is_done_hands_its_receipt_over_once() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let (task, sink) = (Counting::new(5, 10), Bounded::new(usize::MAX));
    submit(&scheduler, &task, &sink);
    assert_eq!(scheduler.running(), 1);
    work(&scheduler, 6);
    assert_eq!(sink.outcome().unwrap().unwrap().bytes_scanned, 50);
    assert_eq!(sink.batches.load(SeqCst), 5);
    assert_eq!((scheduler.running(), Arc::strong_count(&task)), (0, 1));
}

#[test]
fn a_cancelled_run_is_dropped_by_the_next_idle_worker() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let (task, sink) = (Counting::new(u64::MAX, 10), Bounded::new(1));
    submit(&scheduler, &task, &sink);
    std::thread::scope(|scope| {
        // The worker sleeps because the sink is full: only the cancelling itself can wake it.
        scope.spawn(|| while scheduler.work(NO_CLOCK) {});
        while sink.batches.load(SeqCst) < 1 {
            std::thread::yield_now();
        }
        task.cancel();
        while sink.outcome().is_none() {
            std::thread::yield_now();
        }
        scheduler.shutdown();
    });
    assert_eq!(sink.outcome().unwrap().unwrap_err().kind, ErrorKind::Cancelled);
    assert_eq!(Arc::strong_count(&task), 1);
}

#[test]
fn a_panic_ends_only_the_run_that_it_is_in() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let mut bad = Counting::new(100, 10);
    Arc::get_mut(&mut bad).unwrap().panic_at = Some(3);
    let mut bad_sink = Bounded::new(usize::MAX);
    Arc::get_mut(&mut bad_sink).unwrap().panics = true;
    let (good, sink, sink_of_bad) =
        (Counting::new(100, 10), Bounded::new(usize::MAX), Bounded::new(usize::MAX));
    let unlucky = Counting::new(100, 10);
    submit(&scheduler, &bad, &sink_of_bad);
    submit(&scheduler, &unlucky, &bad_sink);
    submit(&scheduler, &good, &sink);
    while scheduler.running() > 0 {
        work(&scheduler, 1);
    }
    let error = sink_of_bad.outcome().unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    assert!(error.message.contains("step 3 panics"), "{error}");
    assert_eq!(bad_sink.outcome().unwrap().unwrap_err().kind, ErrorKind::Internal);
    assert_eq!(sink.outcome().unwrap().unwrap().bytes_scanned, 1_000);
}

#[test]
fn shutting_down_ends_all_runs_and_refuses_new_ones() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let (task, sink, late) = (Counting::new(u64::MAX, 10), Bounded::new(usize::MAX), Bounded::new(1));
    submit(&scheduler, &task, &sink);
    work(&scheduler, 3);
    scheduler.shutdown();
    assert!(!scheduler.work(NO_CLOCK));
    submit(&scheduler, &task, &late);
    for sink in [sink, late] {
        assert_eq!(sink.outcome().unwrap().unwrap_err().kind, ErrorKind::Unavailable);
    }
    assert_eq!(scheduler.running(), 0);
}

#[test]
fn many_workers_finish_many_runs_and_no_batch_follows_the_end() {
    let scheduler = Scheduler::new(Arc::new(Standing));
    let runs: Vec<_> = (0..40).map(|_| (Counting::new(200, 10), Bounded::new(usize::MAX))).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while scheduler.work(NO_CLOCK) {});
        }
        runs.iter().for_each(|(task, sink)| submit(&scheduler, task, sink));
        while scheduler.running() > 0 {
            std::thread::yield_now();
        }
        while runs.iter().any(|(_, sink)| sink.outcome().is_none()) {
            std::thread::yield_now();
        }
        scheduler.shutdown();
    });
    for (_, sink) in &runs {
        assert_eq!(sink.outcome().unwrap().unwrap().bytes_scanned, 2_000);
        assert_eq!(sink.batches.load(SeqCst), 200);
        assert!(!sink.after_end.load(SeqCst));
    }
}
