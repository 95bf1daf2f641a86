//! Tests fairness, backpressure, cancelling, panics, and the pauses of background work. Tasks only count their
//! steps, and the clock is set by the tests.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// A clock that a test or a step advances by hand.
#[derive(Debug, Default)]
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }
    fn thread_cpu_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl Hands {
    fn pass(&self, ns: u64) {
        self.0.fetch_add(ns, SeqCst);
    }
}

/// A task of `steps` steps, each of which takes `ns` nanoseconds. It is ready while there is room for its output, and
/// panics at step `panic_at`.
struct Counting {
    hands: Arc<Hands>,
    steps: u64,
    ns: u64,
    bytes: u64,
    panic_at: Option<u64>,
    room: AtomicU64,
    taken: AtomicU64,
    cancelled: AtomicBool,
    payers: Mutex<Vec<Arc<Region>>>,
    ends: Mutex<Vec<End>>,
    after_end: AtomicBool,
}

impl Counting {
    fn service_ns(&self) -> u64 {
        self.taken.load(SeqCst) * self.ns
    }

    fn end(&self) -> Option<End> {
        let ends = self.ends.lock();
        assert!(ends.len() <= 1, "finish was called twice");
        ends.first().cloned()
    }
}

impl Task for Counting {
    fn readiness(&self) -> Readiness {
        match () {
            () if self.cancelled.load(SeqCst) => Readiness::Ended,
            () if self.taken.load(SeqCst) < self.room.load(SeqCst) => Readiness::Ready,
            () => Readiness::Waiting,
        }
    }
    fn step(&self, _clock: &dyn Clock) -> Progress {
        self.after_end.fetch_or(!self.ends.lock().is_empty(), SeqCst);
        let step = self.taken.load(SeqCst);
        assert_ne!(Some(step), self.panic_at, "step {step} panics");
        if self.taken.fetch_update(SeqCst, SeqCst, |step| (step < self.steps).then_some(step + 1)).is_err() {
            return Progress::Done;
        }
        self.hands.pass(self.ns);
        Progress::Worked
    }
    fn bytes_read(&self) -> u64 {
        self.taken.load(SeqCst) * self.bytes
    }
    fn payers(&self) -> Vec<Arc<Region>> {
        self.payers.lock().clone()
    }
    fn cancel(&self) {
        self.cancelled.store(true, SeqCst);
    }
    fn finish(&self, end: End) {
        self.ends.lock().push(end);
    }
}

struct Worker;

impl WorkerThread for Worker {}

struct Bench {
    hands: Arc<Hands>,
    scheduler: Arc<Scheduler>,
    tenant: Arc<TenantShare>,
}

impl Bench {
    fn new() -> Self {
        let hands = Arc::new(Hands::default());
        let scheduler = Scheduler::new(hands.clone());
        let tenant = scheduler.add_tenant(1);
        Bench { hands, scheduler, tenant }
    }

    fn region(&self) -> Arc<Region> {
        self.scheduler.add_region(&self.tenant)
    }

    fn task(&self, steps: u64, ns: u64) -> Counting {
        Counting {
            hands: self.hands.clone(),
            steps,
            ns,
            bytes: 0,
            panic_at: None,
            room: AtomicU64::new(u64::MAX),
            taken: AtomicU64::default(),
            cancelled: AtomicBool::default(),
            payers: Mutex::default(),
            ends: Mutex::default(),
            after_end: AtomicBool::default(),
        }
    }

    /// Submits a task that never ends, with steps of `ns` nanoseconds.
    fn endless(&self, region: &Arc<Region>, ns: u64) -> Arc<Counting> {
        self.submit(region, self.task(u64::MAX, ns))
    }

    fn submit(&self, region: &Arc<Region>, task: Counting) -> Arc<Counting> {
        let task = Arc::new(task);
        self.scheduler.submit(region, Class::Foreground, task.clone());
        task
    }

    #[track_caller]
    fn work(&self, turns: usize) {
        for _ in 0..turns {
            assert_eq!(self.scheduler.try_work(Class::Foreground), Attempt::Worked);
        }
    }
}

#[test]
fn regions_share_equally_by_time_whatever_their_steps_and_tasks() {
    let bench = Bench::new();
    let (greedy, modest) = (bench.region(), bench.region());
    let many: Vec<_> = (0..9).map(|_| bench.endless(&greedy, 70)).collect();
    let one = bench.endless(&modest, 10);
    bench.work(8_000);
    let of_many: u64 = many.iter().map(|task| task.service_ns()).sum();
    assert!(of_many.abs_diff(one.service_ns()) <= 140, "{of_many} {}", one.service_ns());
    assert!(many.iter().all(|task| task.service_ns().abs_diff(of_many / 9) <= 140));
}

#[test]
fn tenants_share_by_weight_however_many_connections_they_have() {
    let bench = Bench::new();
    let heavy = bench.scheduler.add_tenant(3);
    let of_heavy = bench.endless(&bench.scheduler.add_region(&heavy), 10);
    let regions: Vec<_> = (0..20).map(|_| bench.region()).collect();
    let of_light: Vec<_> = regions.iter().map(|region| bench.endless(region, 10)).collect();
    bench.work(8_000);
    let light: u64 = of_light.iter().map(|task| task.service_ns()).sum();
    assert!((3 * light).abs_diff(of_heavy.service_ns()) <= 80, "{light} {}", of_heavy.service_ns());
}

#[test]
fn a_step_costs_its_bytes_where_these_are_more_than_its_time() {
    let bench = Bench::new();
    let bytes_per_ns = (MEMORY_BYTES_PER_S / 1e9) as u64;
    let reading =
        bench.submit(&bench.region(), Counting { bytes: 50 * bytes_per_ns, ..bench.task(u64::MAX, 10) });
    let computing = bench.endless(&bench.region(), 10);
    bench.work(1_200);
    assert!(reading.taken.load(SeqCst).abs_diff(200) <= 2, "{}", reading.taken.load(SeqCst));
    assert!(computing.taken.load(SeqCst).abs_diff(1_000) <= 2);
}

#[test]
fn several_payers_share_the_cost_of_a_step() {
    let bench = Bench::new();
    let regions: Vec<_> = (0..3).map(|_| bench.region()).collect();
    let shared = bench.endless(&regions[0], 10);
    *shared.payers.lock() = regions[..2].to_vec();
    let own: Vec<_> = regions[1..].iter().map(|region| bench.endless(region, 10)).collect();
    bench.work(3_000);
    // The only work of the first region is the shared task, so that the region's half of that task is a third of all
    // service; the second region pays for the other half of the task.
    let (shared, second, third) = (shared.service_ns(), own[0].service_ns(), own[1].service_ns());
    assert!((shared / 2).abs_diff(third) <= 40, "{shared} {second} {third}");
    assert!(second <= 40, "{shared} {second} {third}");
}

#[test]
fn work_without_a_task_is_charged() {
    let bench = Bench::new();
    let (inline, other) = (bench.region(), bench.region());
    let (of_inline, of_other) = (bench.endless(&inline, 10), bench.endless(&other, 10));
    bench.scheduler.charge(&inline, 1_000);
    bench.work(100);
    assert_eq!((of_inline.service_ns(), of_other.service_ns()), (0, 1_000));
    bench.work(100);
    assert!(of_inline.service_ns().abs_diff(500) <= 10);
}

#[test]
fn a_newcomer_starts_from_the_present_and_what_left_leaves_nothing() {
    let bench = Bench::new();
    let old = bench.endless(&bench.region(), 10);
    bench.work(1_000);
    let new = bench.endless(&bench.region(), 10);
    bench.work(100);
    assert!(new.service_ns().abs_diff(500) <= 10, "{}", new.service_ns());
    old.cancelled.store(true, SeqCst);
    new.cancelled.store(true, SeqCst);
    bench.work(2);
    assert!(old.end().is_some() && new.end().is_some());
    assert_eq!(bench.scheduler.running(), 0);
    assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
}

#[test]
fn a_task_that_waits_does_not_stall_another_and_saves_up_nothing() {
    let bench = Bench::new();
    let region = bench.region();
    let stuck = bench.submit(&region, Counting { room: AtomicU64::new(3), ..bench.task(u64::MAX, 10) });
    let other = bench.endless(&bench.region(), 10);
    bench.work(1_003);
    assert_eq!((stuck.service_ns(), other.service_ns()), (30, 10_000));
    stuck.room.store(u64::MAX, SeqCst);
    bench.scheduler.wake_region(&region);
    bench.work(100);
    assert!(stuck.service_ns().abs_diff(530) <= 10, "{}", stuck.service_ns());
}

#[test]
fn a_task_tells_how_long_it_waited_for_workers_and_not_for_others() {
    let bench = Bench::new();
    let (region, other) = (bench.region(), bench.region());
    let task = bench.submit(&region, Counting { room: AtomicU64::new(1), ..bench.task(2, 10) });
    let id = TaskId(bench.scheduler.queue.lock().new_id() - 1);
    bench.hands.pass(7);
    bench.work(1);
    // The task waits for room for its output, so that this time does not count as waiting for workers.
    assert_eq!(bench.scheduler.try_work(Class::Foreground), Attempt::Idle(None));
    bench.hands.pass(1_000);
    task.room.store(u64::MAX, SeqCst);
    bench.scheduler.wake(id);
    bench.scheduler.charge(&region, 1_000_000);
    bench.submit(&other, bench.task(5, 10));
    bench.work(8);
    assert_eq!(task.end().unwrap().waited_ns, 7 + 50);
}

#[test]
fn a_panic_ends_only_the_task_that_it_is_in() {
    let bench = Bench::new();
    let bad = bench.submit(&bench.region(), Counting { panic_at: Some(3), ..bench.task(100, 10) });
    let good = bench.submit(&bench.region(), bench.task(100, 10));
    while bench.scheduler.running() > 0 {
        bench.work(1);
    }
    let error = bad.end().unwrap().error.unwrap();
    assert_eq!(error.kind, farpool_model::ErrorKind::Internal);
    assert!(error.message.contains("step 3 panics"), "{error}");
    assert_eq!(good.end().unwrap().error, None);
    assert_eq!(good.taken.load(SeqCst), 100);
}

#[test]
fn shutting_down_ends_all_tasks_and_refuses_new_ones() {
    let bench = Bench::new();
    let region = bench.region();
    let task = bench.endless(&region, 10);
    bench.work(3);
    bench.scheduler.shutdown();
    assert_eq!(bench.scheduler.try_work(Class::Foreground), Attempt::ShutDown);
    let late = bench.endless(&region, 10);
    for task in [task, late] {
        assert_eq!(task.end().unwrap().error.unwrap().kind, farpool_model::ErrorKind::Unavailable);
    }
    assert_eq!(bench.scheduler.running(), 0);
}

#[test]
fn background_work_rests_while_rows_come_in_but_not_for_ever() {
    let bench = Bench::new();
    let profile = Arc::new(bench.task(u64::MAX, 10));
    bench.hands.pass(5_000_000_000);
    bench.scheduler.submit(&bench.region(), Class::Background, profile.clone());
    let attempt = || bench.scheduler.try_work(Class::Background);
    assert_eq!(bench.scheduler.try_work(Class::Foreground), Attempt::Idle(None));
    assert_eq!(attempt(), Attempt::Worked);
    bench.scheduler.rows_came();
    let due_ns = bench.hands.now_ns() + REST_NS;
    assert_eq!(attempt(), Attempt::Idle(Some(due_ns)));
    bench.hands.pass(REST_NS);
    assert_eq!(attempt(), Attempt::Worked);
    let taken = profile.taken.load(SeqCst);
    for _ in 0..300 {
        bench.scheduler.rows_came();
        bench.hands.pass(REST_NS / 2);
        attempt();
    }
    // Three seconds pass, and one step of the profile is executed in each.
    assert_eq!(profile.taken.load(SeqCst) - taken, 3);
}

#[test]
fn what_somebody_waits_for_goes_before_the_background_but_for_a_step_a_second() {
    let bench = Bench::new();
    let region = bench.region();
    let profile = Arc::new(bench.task(u64::MAX, 1_000_000));
    bench.scheduler.submit(&region, Class::Background, profile.clone());
    let program = bench.submit(&region, bench.task(3_500, 1_000_000));
    while program.end().is_none() {
        assert!(bench.scheduler.work(&Worker));
    }
    assert_eq!(profile.taken.load(SeqCst), 3);
    assert!(bench.scheduler.work(&Worker) && bench.scheduler.work(&Worker));
    assert_eq!(profile.taken.load(SeqCst), 5);
}

#[test]
fn a_worker_does_what_rested_in_the_background_when_it_is_due() {
    let bench = Bench::new();
    bench.hands.pass(1);
    bench.scheduler.rows_came();
    let profile = Arc::new(bench.task(1, 10));
    bench.scheduler.submit(&bench.region(), Class::Background, profile.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| while bench.scheduler.work(&Worker) {});
        // The worker waits until background work is due, and then looks for work again.
        bench.hands.pass(REST_NS);
        while profile.end().is_none() {
            std::thread::yield_now();
        }
        bench.scheduler.shutdown();
    });
}

struct ForegroundWorker;

impl WorkerThread for ForegroundWorker {
    fn works_in_background(&self) -> bool {
        false
    }
}

#[test]
fn whichever_worker_is_woken_work_in_the_background_finds_one_that_does_it() {
    let bench = Bench::new();
    bench.hands.pass(1);
    let region = bench.region();
    let until = |task: &Counting| {
        while task.end().is_none() {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| while bench.scheduler.work(&Worker) {});
        scope.spawn(|| while bench.scheduler.work(&ForegroundWorker) {});
        for _ in 0..200 {
            bench.scheduler.rows_came();
            let profile = Arc::new(bench.task(3, 10));
            bench.scheduler.submit(&region, Class::Background, profile.clone());
            bench.hands.pass(REST_NS);
            until(&profile);
            until(&bench.submit(&region, bench.task(3, 10)));
        }
        bench.scheduler.shutdown();
    });
}

#[test]
fn a_worker_that_sleeps_is_woken_by_what_can_go_on() {
    let bench = Bench::new();
    let region = bench.region();
    let task = Arc::new(Counting { room: AtomicU64::new(1), ..bench.task(u64::MAX, 10) });
    let id = bench.scheduler.submit(&region, Class::Foreground, task.clone());
    let until = |condition: &dyn Fn() -> bool| {
        while !condition() {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| while bench.scheduler.work(&Worker) {});
        until(&|| task.taken.load(SeqCst) == 1);
        task.room.store(2, SeqCst);
        bench.scheduler.wake_region(&region);
        until(&|| task.taken.load(SeqCst) == 2);
        task.cancelled.store(true, SeqCst);
        bench.scheduler.wake(id);
        until(&|| task.end().is_some());
        bench.scheduler.shutdown();
    });
}

/// A task of two steps, of which the second can begin only after the first has ended.
#[derive(Default)]
struct OneByOne {
    taken: AtomicUsize,
    done: AtomicUsize,
    during_first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Task for OneByOne {
    fn readiness(&self) -> Readiness {
        match self.taken.load(SeqCst) == self.done.load(SeqCst) {
            true => Readiness::Ready,
            false => Readiness::Waiting,
        }
    }
    fn step(&self, _clock: &dyn Clock) -> Progress {
        self.taken.fetch_add(1, SeqCst);
        if let Some(other) = self.during_first.lock().take() {
            other();
        }
        if self.done.fetch_add(1, SeqCst) == 0 { Progress::Worked } else { Progress::Done }
    }
    fn finish(&self, _end: End) {}
}

#[test]
fn a_task_that_waits_for_its_own_step_goes_on_after_it() {
    let bench = Bench::new();
    let task = Arc::new(OneByOne::default());
    let scheduler = bench.scheduler.clone();
    // Another worker looks for work during the first step, and finds none.
    let other = move || assert_eq!(scheduler.try_work(Class::Foreground), Attempt::Idle(None));
    *task.during_first.lock() = Some(Box::new(other));
    bench.scheduler.submit(&bench.region(), Class::Foreground, task.clone());
    bench.work(2);
    assert_eq!((task.done.load(SeqCst), bench.scheduler.running()), (2, 0));
}

#[test]
fn many_workers_finish_many_tasks_and_no_step_follows_the_end() {
    let bench = Bench::new();
    let regions: Vec<_> = (0..8).map(|_| bench.region()).collect();
    let tasks = AtomicUsize::new(0);
    let submitted = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while bench.scheduler.work(&Worker) {});
        }
        let submit = |i: usize| {
            tasks.fetch_add(1, SeqCst);
            bench.submit(&regions[i % 8], bench.task(200, 1))
        };
        let submitted: Vec<_> = (0..40).map(submit).collect();
        while submitted.iter().any(|task| task.end().is_none()) {
            std::thread::yield_now();
        }
        bench.scheduler.shutdown();
        submitted
    });
    assert_eq!(submitted.len(), tasks.load(SeqCst));
    for task in &submitted {
        assert_eq!((task.taken.load(SeqCst), task.end().unwrap().error), (200, None));
        assert!(!task.after_end.load(SeqCst));
    }
}
