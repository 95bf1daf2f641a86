//! The commands `SLOWLOG` and `LATENCY` of the Redis protocol, which report commands that took long.

use super::{Client, Done};
use farpool_kv::resp::{Replies, parse_integer};
use farpool_kv::{Args, Command, wrong_number};

/// Default number of entries that `SLOWLOG GET` replies with.
const SLOW_COMMANDS_TOLD: usize = 10;

pub(super) const HELP: &[&str] = &[
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    Return the latest <count> slow commands (10 if nothing is said, all of them for -1).",
    "LEN",
    "    Return the number of slow commands that are kept.",
    "RESET",
    "    Forget them.",
];

pub(super) const LATENCY_HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "HISTORY <event>, LATEST, RESET [<event> ...]",
    "    There are no events: see SLOWLOG.",
];

impl Client {
    pub(super) fn tell_slow_commands(
        &self,
        command: &Command,
        count: &Args<'_>,
        replies: &mut Replies<'_>,
    ) -> Done {
        let count = match count {
            [] => SLOW_COMMANDS_TOLD,
            [count] => match parse_integer(count) {
                Some(-1) => usize::MAX,
                Some(count) if count >= 0 => usize::try_from(count).unwrap_or(usize::MAX),
                _ => return Err("ERR count should be greater than or equal to -1".into()),
            },
            _ => return Err(wrong_number(command)),
        };
        self.slow_log().iter().for_each(|log| log.tell(count, replies));
        Ok(())
    }

    pub(super) fn count_slow_commands(&self, replies: &mut Replies<'_>) {
        replies.integer(self.slow_log().map_or(0, |log| log.len() as i64));
    }

    pub(super) fn forget_slow_commands(&self, replies: &mut Replies<'_>) -> Done {
        self.check_may_write()?;
        self.slow_log().iter().for_each(|log| log.clear());
        replies.ok();
        Ok(())
    }
}
