//! Tests of remembered outcomes of loads: an id makes at most one load, and old or too many outcomes are dropped.

use super::*;
use farpool_memory::WorkMemory;
use farpool_model::{ErrorKind, LoadedVersion, TenantName};
use std::sync::atomic::{AtomicU64, Ordering};

struct Bench {
    work: Arc<WorkMemory>,
    account: Account,
    outcomes: Arc<Outcomes>,
    now_ns: Arc<AtomicU64>,
}

impl Bench {
    fn new(work_bytes: usize) -> Self {
        let work = WorkMemory::new(work_bytes);
        let account = work.account(&TenantName::default());
        let (outcomes, now_ns) = (Arc::new(Outcomes::default()), Arc::default());
        Bench { work, account, outcomes, now_ns }
    }

    fn begin(&self, id: u128) -> LoadRegistration {
        let now = self.now_ns.clone();
        let now_ns = move || now.load(Ordering::Relaxed);
        self.outcomes.begin(LoadId(id), (&self.account, None), now_ns, Box::new(|| {})).unwrap()
    }

    fn new_load(&self, id: u128) -> OutcomeRecorder {
        let LoadRegistration::New(recording) = self.begin(id) else { panic!("{id} is known") };
        recording
    }

    /// Asks for the outcome of the load `id`. Returns the answer (the outcome, and the newest version whose load is no
    /// longer remembered); `None` if the answer has to wait for the load to end.
    fn ask(&self, id: u128) -> Option<(LoadOutcome, Version)> {
        let told = Arc::new(Mutex::new(None));
        let (teller, now_ns) = (told.clone(), self.now_ns.load(Ordering::Relaxed));
        let then = move |outcome, forgotten| *teller.lock() = Some((outcome, forgotten));
        self.outcomes.ask(LoadId(id), &self.account, now_ns, then).unwrap();
        told.lock().take()
    }

    fn bytes_used(&self) -> u64 {
        self.work.usage().bytes_used
    }
}

fn loaded(version: u64) -> LoadOutcome {
    let version = Version(version);
    LoadOutcome::Loaded(LoadedVersion { version, rows: 1, bytes_plain: 2, bytes_encoded: 3 })
}

#[test]
fn an_id_has_one_load_and_all_hear_of_it() {
    let bench = Bench::new(1 << 20);
    let first = bench.new_load(1);
    let LoadRegistration::Known(again) = bench.begin(1) else { panic!("a second load") };
    assert!(bench.ask(1).is_none() && !again.has_ended());
    let heard = Arc::new(Mutex::new(None));
    let hearer = heard.clone();
    again.wait(Box::new(move |outcome| *hearer.lock() = Some(outcome.clone()))).unwrap();
    first.settle(loaded(7));
    drop(first);
    assert_eq!(*heard.lock(), Some(loaded(7)));
    assert_eq!((again.outcome(), bench.ask(1)), (Some(loaded(7)), Some((loaded(7), Version(0)))));
    let LoadRegistration::Known(_) = bench.begin(1) else { panic!("a second load") };
}

#[test]
fn a_load_that_is_asked_for_before_it_comes_does_not_begin_any_more() {
    let bench = Bench::new(1 << 20);
    assert_eq!(bench.ask(1).unwrap().0, LoadOutcome::NotLoaded);
    let LoadRegistration::Known(late) = bench.begin(1) else { panic!("it begins") };
    assert_eq!(late.outcome(), Some(LoadOutcome::NotLoaded));
    // A load whose recorder is dropped before its end counts as not loaded.
    drop(bench.new_load(2));
    assert_eq!(bench.ask(2).unwrap().0, LoadOutcome::NotLoaded);
}

#[test]
fn whoever_asks_ends_a_load_that_is_under_way() {
    let bench = Bench::new(1 << 20);
    let ended = Arc::new(AtomicU64::new(0));
    let counter = ended.clone();
    let end = Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let LoadRegistration::New(load) =
        bench.outcomes.begin(LoadId(1), (&bench.account, None), || 0, end).unwrap()
    else {
        panic!("known")
    };
    assert!(bench.ask(1).is_none());
    assert_eq!(ended.load(Ordering::Relaxed), 1);
    for _ in 1..LOAD_OUTCOME_WAITERS_MAX {
        bench.ask(1);
    }
    let error = bench.outcomes.ask(LoadId(1), &bench.account, 0, |_, _| {}).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    drop(load);
    assert!(bench.ask(1).is_some());
}

#[test]
fn outcomes_are_forgotten_when_they_are_old_or_too_many_and_their_memory_comes_back() {
    let bench = Bench::new(64 << 20);
    let most = LOAD_OUTCOMES_MAX as u64;
    for id in 0..most + 10 {
        bench.new_load(u128::from(id)).settle(loaded(id + 1));
    }
    assert_eq!(bench.bytes_used(), most * LOAD_OUTCOME_BYTES as u64);
    assert_eq!(bench.ask(10).unwrap(), (loaded(11), Version(10)));
    // The outcome of load 9 was dropped. The answer includes the newest version whose load is no longer remembered.
    assert_eq!(bench.ask(9).unwrap(), (LoadOutcome::NotLoaded, Version(10)));
    bench.now_ns.store(LOAD_OUTCOME_MS * 1_000_000, Ordering::Relaxed);
    let under_way = bench.new_load(u128::MAX);
    bench.outcomes.forget_old(LOAD_OUTCOME_MS * 1_000_000 + 1);
    assert_eq!(bench.bytes_used(), LOAD_OUTCOME_BYTES as u64, "one is under way");
    drop(under_way);
    bench.outcomes.forget_old(u64::MAX);
    assert_eq!(bench.bytes_used(), 0);
    assert_eq!(bench.ask(most.into()).unwrap().1, Version(most + 10));
}

#[test]
fn a_tenant_without_memory_forgets_its_own_oldest() {
    let bench = Bench::new(8 * LOAD_OUTCOME_BYTES);
    let other = bench.work.account(&TenantName::new("other").unwrap());
    let others = Arc::new(Outcomes::default());
    let LoadRegistration::New(kept) = others.begin(LoadId(1), (&other, None), || 0, Box::new(|| {})).unwrap()
    else {
        panic!()
    };
    kept.settle(loaded(1));
    for id in 0..20 {
        bench.new_load(id).settle(loaded(id as u64 + 2));
    }
    let (newest, forgotten) = bench.ask(19).unwrap();
    assert_eq!(newest, loaded(21));
    assert!((10..21).contains(&forgotten.0), "{forgotten:?}");
    let LoadRegistration::Known(record) =
        others.begin(LoadId(1), (&other, None), || 0, Box::new(|| {})).unwrap()
    else {
        panic!("forgotten for another tenant")
    };
    assert_eq!(record.outcome(), Some(loaded(1)));
    // All loads are in progress, so no outcome can be forgotten to make room.
    let mut under_way = Vec::new();
    let error = loop {
        let id = LoadId(30 + under_way.len() as u128);
        match bench.outcomes.begin(id, (&bench.account, None), || 0, Box::new(|| {})) {
            Ok(LoadRegistration::New(recording)) => under_way.push(recording),
            Ok(LoadRegistration::Known(_)) => panic!("known"),
            Err(error) => break error,
        }
        assert!(under_way.len() < 8);
    };
    assert_eq!(error.kind, ErrorKind::OverLimit);
    // There is no memory for the text of a failed load's error either, so the text is dropped.
    under_way[0].settle(LoadOutcome::Failed(Error::invalid("x".repeat(4000))));
    let Some((LoadOutcome::Failed(error), _)) = bench.ask(30) else { panic!("no outcome") };
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("no memory"), "{error}");
}
