//! `SLOWLOG` and `LATENCY`.

use super::{Client, Done, tell_help, unknown_subcommand, wrong_number_of};
use farpool_kv::resp::{Replies, parse_integer};
use farpool_kv::{Args, Host};

/// Default count of `SLOWLOG GET`.
const SLOW_COMMANDS_TOLD: usize = 10;

impl Client {
    pub(super) fn slowlog(&self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        let Some(log) = self.slow_log() else { return Ok(()) };
        match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
            (b"get", []) => log.tell(SLOW_COMMANDS_TOLD, replies),
            (b"get", [count]) => match parse_integer(count) {
                Some(-1) => log.tell(usize::MAX, replies),
                Some(count) if count >= 0 => log.tell(usize::try_from(count).unwrap_or(usize::MAX), replies),
                _ => return Err("ERR count should be greater than or equal to -1".into()),
            },
            (b"len", []) => replies.integer(log.len() as i64),
            (b"reset", []) if !self.may_write() => {
                return Err("NOPERM this token may not write: use one with the role write".into());
            }
            (b"reset", []) => {
                log.clear();
                replies.ok();
            }
            (b"help", []) => tell_help(
                &[
                    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                    "GET [<count>]",
                    "    Return the latest <count> slow commands (10 if nothing is said, all of them for -1).",
                    "LEN",
                    "    Return the number of slow commands that are kept.",
                    "RESET",
                    "    Forget them.",
                ],
                replies,
            ),
            (name @ (b"get" | b"len" | b"reset" | b"help"), _) => {
                return Err(wrong_number_of("slowlog", name));
            }
            (unknown, _) => return Err(unknown_subcommand("SLOWLOG", unknown)),
        }
        Ok(())
    }
}

/// Replies to `LATENCY`. There are never any events, as in Redis with `latency-monitor-threshold` 0.
pub(super) fn latency(args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
    match (args[1].to_ascii_lowercase().as_slice(), &args[2..]) {
        (b"latest", []) | (b"history", [_]) => replies.array(0),
        (b"reset", _) => replies.integer(0),
        (b"help", []) => tell_help(
            &[
                "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "HISTORY <event>, LATEST, RESET [<event> ...]",
                "    There are no events: see SLOWLOG.",
            ],
            replies,
        ),
        (name @ (b"latest" | b"history" | b"help"), _) => return Err(wrong_number_of("latency", name)),
        (unknown, _) => return Err(unknown_subcommand("LATENCY", unknown)),
    }
    Ok(())
}
