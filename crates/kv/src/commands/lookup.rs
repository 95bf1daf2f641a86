//! The lookup of commands of the Redis protocol by name.
//!
//! Invariant: the rows of [`COMMANDS`] are sorted by name. [`Command::subcommands`] relies on this, and the crate does
//! not compile if the table has another order or the same name twice.

use super::Args;
use super::command::Command;
use super::table::COMMANDS;

/// Returns the row of the command whose name is the first argument, or of its subcommand if the second argument names
/// one; `None` if there is no such command. Case is ignored.
#[inline]
pub fn command(args: &Args<'_>) -> Option<&'static Command> {
    let (name, rest) = args.split_first()?;
    let command = command_of_name(name)?;
    match rest {
        [subcommand, ..] if command.has_subcommands => {
            let found = command
                .subcommands()
                .find(|row| row.name.as_bytes()[command.name.len() + 1..].eq_ignore_ascii_case(subcommand));
            found.or(Some(command))
        }
        _ => Some(command),
    }
}

#[inline]
fn command_of_name(name: &[u8]) -> Option<&'static Command> {
    let mut slot = slot_of(name);
    loop {
        let command = COMMANDS.get(usize::from(BY_NAME[slot]))?;
        if command.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(command);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// Number of slots of [`BY_NAME`]: several times the number of commands, so that most commands are found in the first
/// slot tried.
const SLOTS: usize = 512;

/// The content of an unused slot of [`BY_NAME`].
const EMPTY: u8 = u8::MAX;

/// A hash table with linear probing from names to indexes in [`COMMANDS`], with a simple hash function of its own.
/// Reason: each request looks up its command, and a general hash function for strings takes longer than all
/// comparisons.
static BY_NAME: [u8; SLOTS] = places_by_name();

const fn places_by_name() -> [u8; SLOTS] {
    assert!(COMMANDS.len() < EMPTY as usize, "positions are bytes");
    let (mut slots, mut at) = ([EMPTY; SLOTS], 0);
    while at < COMMANDS.len() {
        let name = COMMANDS[at].name.as_bytes();
        assert!(at == 0 || is_before(COMMANDS[at - 1].name.as_bytes(), name), "in the order of names");
        if !COMMANDS[at].is_subcommand() {
            let mut slot = slot_of(name);
            while slots[slot] != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = at as u8;
        }
        at += 1;
    }
    slots
}

/// Returns the first slot of [`BY_NAME`] to try for a name; the same for upper and lower case.
#[inline]
const fn slot_of(name: &[u8]) -> usize {
    let (first, third, last) = match name {
        [] => (0, 0, 0),
        [first, _, third, .., last] => (*first, *third, *last),
        [first, .., last] => (*first, 0, *last),
        [only] => (*only, 0, *only),
    };
    let (first, third, last) = ((first | 0x20) as usize, (third | 0x20) as usize, (last | 0x20) as usize);
    (first * 5 + third * 3 + last + name.len() * 11) % SLOTS
}

/// Returns whether `one` sorts before `other`, compared byte by byte.
const fn is_before(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return one[at] < other[at];
        }
        at += 1;
    }
    one.len() < other.len()
}
