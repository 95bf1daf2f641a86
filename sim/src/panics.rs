//! Records every panic on a simulating thread: a panic is a bug even if the node survives it.

use std::cell::RefCell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

thread_local! {
    /// The first panic of the simulation on this thread.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_WATCHED: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs `simulation` and returns the first panic on this thread meanwhile, even one that was caught.
pub fn watched<T>(simulation: impl FnOnce() -> T) -> (T, Option<String>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_WATCHED.with_borrow(|is_watched| *is_watched) {
                return others(info);
            }
            FIRST.with_borrow_mut(|first| {
                first.get_or_insert_with(|| text(info));
            });
        }));
    });
    FIRST.take();
    IS_WATCHED.set(true);
    let outcome = simulation();
    IS_WATCHED.set(false);
    (outcome, FIRST.take())
}

fn text(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
    let text = info.payload_as_str().unwrap_or("without a text");
    format!("a panic{place}: {text}")
}
