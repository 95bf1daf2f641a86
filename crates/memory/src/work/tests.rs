//! Tests reservations of work memory: granting and waiting, for one tenant and among several, and that random
//! sequences of both stay within the limit.

#![expect(clippy::disallowed_methods, reason = "a test has threads of its own")]

use super::*;
use farpool_model::ErrorKind;
use proptest::prelude::*;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::task::Wake;
use std::task::{Context, Poll};

const LIMIT: usize = 1 << 20;

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

/// A waker that records whether it was called.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Polled {
    waiting: Pin<Box<PendingReservation>>,
    flag: Arc<Flag>,
}

impl Polled {
    fn new(account: &Account, bytes: usize) -> Self {
        Polled { waiting: Box::pin(account.reserve(bytes)), flag: Arc::default() }
    }

    fn poll(&mut self) -> Poll<Result<Reservation>> {
        let waker = Waker::from(self.flag.clone());
        self.waiting.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::Relaxed)
    }
}

#[test]
fn what_is_reserved_is_counted_until_it_is_dropped() {
    let memory = WorkMemory::new(LIMIT);
    let account = memory.account(&tenant("a"));
    let mut first = account.try_reserve(LIMIT / 2).unwrap();
    let refused = account.try_reserve(LIMIT / 2 + 1).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::OverLimit);
    assert!(refused.message.contains("0.5 MiB are free"), "{refused:?}");
    assert!(first.try_grow(LIMIT).is_err());
    first.try_grow(LIMIT / 2).unwrap();
    assert_eq!((account.free(), first.bytes()), (0, LIMIT));
    let split = first.split(LIMIT / 4);
    drop(first);
    assert_eq!(memory.usage().bytes_used, LIMIT as u64 / 4);
    let mut taken = account.take(2 * LIMIT);
    assert_eq!(account.free(), 0);
    taken.set(10);
    taken.join(split);
    assert_eq!(memory.usage().tenants, [(tenant("a"), LIMIT as u64 / 4 + 10)]);
    drop(taken);
    let usage = memory.usage();
    assert_eq!((usage.bytes_used, usage.bytes_used_most), (0, 2 * LIMIT as u64 + LIMIT as u64 / 4));
}

#[test]
fn several_tenants_leave_room_for_each_other() {
    let memory = WorkMemory::new(LIMIT);
    let (a, b) = (memory.account(&tenant("a")), memory.account(&tenant("b")));
    let all_but_an_eighth = a.try_reserve(LIMIT - LIMIT / FREE_FOR_OTHERS).unwrap();
    assert!(a.try_reserve(1).is_err());
    let rest = b.try_reserve(LIMIT / FREE_FOR_OTHERS).unwrap();
    drop((all_but_an_eighth, rest));
    let part = a.try_reserve(LIMIT / 2).unwrap();
    assert_eq!(b.free(), LIMIT / 2);
    let refused = b.try_reserve(LIMIT).unwrap_err();
    assert!(refused.message.contains("may have"), "{refused:?}");
    drop(part);
}

#[test]
fn who_waits_is_served_in_order_and_small_ones_go_first() {
    let memory = WorkMemory::new(LIMIT);
    let account = memory.account(&tenant("a"));
    let held = account.try_reserve(LIMIT / 2).unwrap();
    let (mut large, mut medium) = (Polled::new(&account, LIMIT), Polled::new(&account, LIMIT / 4));
    assert!(large.poll().is_pending() && medium.poll().is_pending() && memory.is_short());
    assert!(account.try_reserve(LIMIT / 4).is_err(), "it would overtake");
    let small = account.try_reserve(LIMIT / SMALL_PART).unwrap();
    drop(held);
    assert!(!large.is_woken() && !medium.is_woken());
    drop(small);
    assert!(large.is_woken() && !medium.is_woken());
    let Poll::Ready(Ok(granted)) = large.poll() else { panic!("it was woken") };
    assert_eq!(granted.bytes(), LIMIT);
    drop(granted);
    assert!(medium.is_woken());
    drop(medium);
    assert_eq!((account.free(), memory.is_short()), (LIMIT, false));
}

#[test]
fn who_no_longer_waits_lets_others_pass_and_too_much_is_refused_at_once() {
    let memory = WorkMemory::new(LIMIT);
    let account = memory.account(&tenant("a"));
    let held = account.try_reserve(LIMIT / 2).unwrap();
    let (mut large, mut medium) = (Polled::new(&account, LIMIT), Polled::new(&account, LIMIT / 4));
    assert!(large.poll().is_pending() && medium.poll().is_pending());
    drop(large);
    assert!(medium.is_woken());
    // The reservation was granted, and is dropped before it is polled again; no memory may be lost.
    drop(medium);
    assert_eq!(account.free(), LIMIT / 2);
    let Poll::Ready(Err(error)) = Polled::new(&account, LIMIT + 1).poll() else { panic!("it never fits") };
    assert_eq!(error.kind, ErrorKind::OverLimit);
    drop(held);
}

#[test]
fn a_request_is_not_refused_because_another_tenant_waits_for_its_own_limit() {
    let memory = WorkMemory::new(LIMIT);
    let (a, b) = (memory.account(&tenant("a")), memory.account(&tenant("b")));
    memory.set_tenant_limit(&tenant("a"), Some(LIMIT / 4));
    let held = a.try_reserve(LIMIT / 4).unwrap();
    let mut of_a = Polled::new(&a, LIMIT / 8);
    assert!(of_a.poll().is_pending());
    let of_b = b.try_reserve(LIMIT / 4).unwrap();
    drop(held);
    let own = a.try_reserve(LIMIT / 8).unwrap();
    assert!(a.try_reserve(LIMIT / 8).is_err(), "who waited has it");
    drop((of_b, own, of_a));
    assert_eq!(memory.usage().bytes_used, 0);
}

#[test]
fn one_that_waits_for_its_tenants_part_does_not_keep_others_waiting() {
    let memory = WorkMemory::new(LIMIT);
    let (a, b) = (memory.account(&tenant("a")), memory.account(&tenant("b")));
    let held = a.try_reserve(LIMIT / 2).unwrap();
    let other = b.try_reserve(LIMIT / 4).unwrap();
    let (mut of_a, mut first, mut second) =
        (Polled::new(&a, LIMIT / 4), Polled::new(&b, LIMIT / 4), Polled::new(&b, LIMIT / 4));
    // A waiter that comes later in the queue is granted its bytes at once if they are available.
    assert!(of_a.poll().is_pending() && first.poll().is_ready() && !memory.line().is_stuck);
    let (taken, waiting) = (b.try_reserve(LIMIT / 128).unwrap(), second.poll());
    assert!(waiting.is_pending() && memory.line().waiting.len() == 2);
    drop((other, taken));
    assert!(second.is_woken());
    drop((held, of_a, first, second));
    assert_eq!(memory.usage().bytes_used, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn sums_hold_whatever_is_done(steps in prop::collection::vec((0..6_u8, 0..3_usize, 0..LIMIT), 1..200)) {
        let memory = WorkMemory::new(LIMIT);
        let accounts = ["a", "b", "c"].map(|name| memory.account(&tenant(name)));
        let (mut held, mut waiting): (Vec<Reservation>, Vec<Polled>) = Default::default();
        for (what, who, bytes) in steps {
            let account = &accounts[who];
            match what {
                0 => held.extend(account.try_reserve(bytes)),
                1 => waiting.push(Polled::new(account, bytes)),
                2 => drop((!held.is_empty()).then(|| held.swap_remove(bytes % held.len()))),
                3 => drop((!waiting.is_empty()).then(|| waiting.swap_remove(bytes % waiting.len()))),
                4 => held.iter_mut().take(1).for_each(|reservation| drop(reservation.try_grow(bytes))),
                _ => held.iter_mut().take(1).for_each(|r| drop(r.split(bytes))),
            }
            waiting.retain_mut(|waiting| match waiting.poll() {
                Poll::Ready(reservation) => {
                    held.extend(reservation);
                    false
                }
                Poll::Pending => true,
            });
            let sum: usize = held.iter().map(Reservation::bytes).sum();
            prop_assert_eq!(memory.usage().bytes_used, sum as u64);
            prop_assert!(sum <= LIMIT && memory.usage().bytes_taken == 0);
            prop_assert!(!memory.line().is_stuck);
        }
        // No waiter is forgotten: after everything was given back, each is granted its memory.
        held.clear();
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain_mut(|waiting| waiting.poll().is_pending());
            prop_assert!(waiting.len() < before);
        }
        prop_assert_eq!(memory.usage().bytes_used, 0);
    }
}

#[test]
fn a_thread_waits_for_memory_but_not_without_end() {
    let memory = WorkMemory::new(100);
    let account = memory.account(&TenantName::default());
    let others = account.try_reserve(80).unwrap();
    let error = account.reserve_blocking(50, Duration::from_millis(10)).unwrap_err();
    assert!(error.message.contains("50 B") && error.message.contains("20 B"), "{error:?}");
    assert!(!memory.is_short(), "it does not wait any more");
    assert!(account.reserve_blocking(101, Duration::from_secs(60)).is_err(), "at once");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| account.reserve_blocking(50, Duration::from_secs(60)).unwrap().bytes());
        while !memory.is_short() {
            std::thread::yield_now();
        }
        drop(others);
        assert_eq!(waiting.join().unwrap(), 50);
    });
    assert_eq!(account.reserve_blocking(100, Duration::ZERO).unwrap().bytes(), 100);
}

#[test]
fn what_is_taken_is_told_apart_from_what_is_reserved() {
    let account = WorkMemory::new(100).account(&TenantName::default());
    let numbers = || {
        let usage = account.memory().usage();
        (usage.bytes_used, usage.bytes_taken)
    };
    let mut one = account.try_reserve(60).unwrap();
    one.set(130);
    assert_eq!(numbers(), (130, 70));
    let split = one.split(80);
    assert_eq!((one.bytes(), split.bytes(), numbers()), (50, 80, (130, 70)));
    drop(split);
    assert_eq!(numbers(), (50, 0));
    one.join(account.take(70));
    one.set(55);
    assert_eq!(numbers(), (55, 5));
    drop(one);
    assert_eq!(numbers(), (0, 0));
}
