//! Parses the options of the commands `SET` and `GETEX`, and the times in commands that set an expiry.

use super::{Args, NOT_INTEGER, Refusal, SYNTAX};
use crate::resp::parse_integer;
use std::borrow::Cow;

/// Effect of a command on the expiry of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// No option about the expiry was given, so the command does what it does by default.
    Unsaid,
    /// The key expires at this time, in milliseconds since the epoch.
    At(u64),
    Keep,
    Persist,
}

/// The option about the expiry, with its number not yet parsed. If the same option is given several times, the last one
/// counts, as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParsedExpiryOption<'a> {
    Nothing,
    At(Unit, &'a [u8]),
    Keep,
    Persist,
}

/// The options of `SET` and `GETEX`.
#[derive(Debug)]
pub(super) struct Options<'a> {
    expiry: ParsedExpiryOption<'a>,
    pub if_absent: bool,
    pub if_present: bool,
    pub gets: bool,
}

impl Options<'_> {
    /// Parses the number of the expiry option; returns what the command does to the expiry.
    pub fn expiry(&self, now: u64, command: &str) -> Result<Expiry, Refusal> {
        Ok(match self.expiry {
            ParsedExpiryOption::Nothing => Expiry::Unsaid,
            ParsedExpiryOption::Keep => Expiry::Keep,
            ParsedExpiryOption::Persist => Expiry::Persist,
            ParsedExpiryOption::At(unit, number) => Expiry::At(moment(number, unit, now, command)?),
        })
    }
}

/// The unit of the number in an expiry option (seconds or milliseconds), and whether the number is relative to now or
/// to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub milliseconds: i64,
    pub is_absolute: bool,
}

pub(super) const SECONDS: Unit = Unit { milliseconds: 1000, is_absolute: false };
pub(super) const MILLISECONDS: Unit = Unit { milliseconds: 1, is_absolute: false };
pub(super) const AT_SECONDS: Unit = Unit { milliseconds: 1000, is_absolute: true };
pub(super) const AT_MILLISECONDS: Unit = Unit { milliseconds: 1, is_absolute: true };

impl Unit {
    /// Returns the time that is `number` units after `now`, or after the epoch if the unit is absolute, in milliseconds
    /// since the epoch; `None` on overflow.
    pub fn moment(self, number: i64, now: u64) -> Option<i64> {
        let milliseconds = number.checked_mul(self.milliseconds)?;
        if self.is_absolute { Some(milliseconds) } else { milliseconds.checked_add_unsigned(now) }
    }
}

/// Returns the error reply for an expiry that is zero or negative, or overflows.
pub(super) fn invalid_expiry(command: &str) -> Refusal {
    Refusal(Cow::Owned(format!("ERR invalid expire time in '{command}' command")))
}

/// Parses the number of an expiry option, which must be positive; returns the expiry in milliseconds since the epoch.
pub(super) fn moment(text: &[u8], unit: Unit, now: u64, command: &str) -> Result<u64, Refusal> {
    let number = parse_integer(text).ok_or(Refusal::from(NOT_INTEGER))?;
    let moment = (number > 0).then(|| unit.moment(number, now)).flatten();
    moment.and_then(|moment| u64::try_from(moment).ok()).ok_or_else(|| invalid_expiry(command))
}

/// Parses the options of `SET` and `GETEX`: the arguments after the key and, for `SET`, the value.
pub(super) fn parse<'a>(options: &Args<'a>, command: &str) -> Result<Options<'a>, Refusal> {
    let is_set = command == "set";
    let mut found =
        Options { expiry: ParsedExpiryOption::Nothing, if_absent: false, if_present: false, gets: false };
    let mut at = 0;
    while let Some(option) = options.get(at) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        at += 1;
        let unit = match () {
            () if is("ex") => SECONDS,
            () if is("px") => MILLISECONDS,
            () if is("exat") => AT_SECONDS,
            () if is("pxat") => AT_MILLISECONDS,
            () if is_set && is("nx") && !found.if_present => {
                found.if_absent = true;
                continue;
            }
            () if is_set && is("xx") && !found.if_absent => {
                found.if_present = true;
                continue;
            }
            () if is_set && is("get") => {
                found.gets = true;
                continue;
            }
            () if is_set
                && is("keepttl")
                && matches!(found.expiry, ParsedExpiryOption::Nothing | ParsedExpiryOption::Keep) =>
            {
                found.expiry = ParsedExpiryOption::Keep;
                continue;
            }
            () if !is_set
                && is("persist")
                && matches!(found.expiry, ParsedExpiryOption::Nothing | ParsedExpiryOption::Persist) =>
            {
                found.expiry = ParsedExpiryOption::Persist;
                continue;
            }
            () => return Err(SYNTAX.into()),
        };
        let is_compatible = match found.expiry {
            ParsedExpiryOption::Nothing => true,
            ParsedExpiryOption::At(before, _) => before == unit,
            ParsedExpiryOption::Keep | ParsedExpiryOption::Persist => false,
        };
        let number = options.get(at).filter(|_| is_compatible);
        found.expiry = ParsedExpiryOption::At(unit, number.ok_or(SYNTAX)?);
        at += 1;
    }
    Ok(found)
}
