//! The slow log of a tenant (`SLOWLOG` of the Redis protocol): its latest slow commands, with arguments truncated as in
//! Redis.

use crate::access::{REDACTED, without_tokens};
use farpool_kv::Args;
use farpool_kv::resp::Replies;
use farpool_model::limits::{SLOW_LOG_ARGUMENT_BYTES_MAX, SLOW_LOG_ARGUMENTS_MAX, SLOW_LOG_ENTRIES_MAX};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

/// Default time in microseconds from which on a command is slow; as in Redis.
const SLOWER_THAN_US: i64 = 10_000;

/// Maximum bytes of an argument that is checked for being an access token.
const TOKEN_BYTES_MAX: usize = 1024;

/// The slow log of a tenant, with its settings.
pub(crate) struct SlowLog {
    /// Time in microseconds from which on a command is slow; if negative, no command is.
    slower_than_us: AtomicI64,
    kept: Mutex<SlowLogState>,
}

struct SlowLogState {
    /// The logged commands, latest first.
    entries: VecDeque<SlowLogEntry>,
    next_id: i64,
    most: usize,
}

struct SlowLogEntry {
    id: i64,
    unix_s: u64,
    us: u64,
    args: Vec<Vec<u8>>,
    peer: String,
    name: String,
}

impl Default for SlowLog {
    fn default() -> Self {
        let kept = SlowLogState { entries: VecDeque::new(), next_id: 0, most: SLOW_LOG_ENTRIES_MAX };
        SlowLog { slower_than_us: AtomicI64::new(SLOWER_THAN_US), kept: Mutex::new(kept) }
    }
}

impl SlowLog {
    pub fn slower_than_us(&self) -> i64 {
        self.slower_than_us.load(Ordering::Relaxed)
    }

    pub fn set_slower_than_us(&self, us: i64) {
        self.slower_than_us.store(us, Ordering::Relaxed);
    }

    /// Returns whether a command that took `ns` nanoseconds is slow.
    #[inline]
    pub fn is_slow(&self, ns: u64) -> bool {
        u64::try_from(self.slower_than_us()).is_ok_and(|least| ns / 1000 >= least)
    }

    /// Returns the maximum number of entries.
    pub fn most(&self) -> usize {
        self.kept.lock().most
    }

    /// Sets the maximum number of entries, at most [`SLOW_LOG_ENTRIES_MAX`]; drops the oldest entries beyond it.
    pub fn set_most(&self, most: usize) {
        let mut kept = self.kept.lock();
        kept.most = most.min(SLOW_LOG_ENTRIES_MAX);
        let most = kept.most;
        kept.entries.truncate(most);
    }

    pub fn len(&self) -> usize {
        self.kept.lock().entries.len()
    }

    pub fn clear(&self) {
        self.kept.lock().entries.clear();
    }

    /// Adds a command that took `ns` nanoseconds, with access tokens in its arguments redacted.
    #[cold]
    pub fn add(
        &self,
        args: &Args<'_>,
        is_token: impl Fn(&[u8]) -> bool,
        (ns, unix_ms): (u64, u64),
        (peer, name): (&str, &str),
    ) {
        let args = cut(args, is_token);
        let mut kept = self.kept.lock();
        let (id, most) = (kept.next_id, kept.most);
        kept.next_id += 1;
        let (peer, name) = (peer.to_string(), name.to_string());
        kept.entries.push_front(SlowLogEntry { id, unix_s: unix_ms / 1000, us: ns / 1000, args, peer, name });
        kept.entries.truncate(most);
    }

    /// Appends a reply with the latest `most` entries.
    pub fn tell(&self, most: usize, replies: &mut Replies<'_>) {
        let kept = self.kept.lock();
        replies.array(kept.entries.len().min(most));
        for entry in kept.entries.iter().take(most) {
            replies.array(6);
            replies.integer(entry.id);
            replies.integer(entry.unix_s as i64);
            replies.integer(entry.us as i64);
            replies.array(entry.args.len());
            entry.args.iter().for_each(|arg| replies.bulk(arg));
            replies.bulk(entry.peer.as_bytes());
            replies.bulk(entry.name.as_bytes());
        }
    }
}

/// Returns the arguments, truncated, with access tokens redacted, and with everything after an argument `AUTH`
/// redacted, because a token follows it.
fn cut(args: &Args<'_>, is_token: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let shown = if args.len() > SLOW_LOG_ARGUMENTS_MAX { SLOW_LOG_ARGUMENTS_MAX - 1 } else { args.len() };
    let secret = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"auth")).unwrap_or(args.len());
    let mut all: Vec<Vec<u8>> = args[..shown]
        .iter()
        .enumerate()
        .map(|(at, arg)| match at > secret || arg.len() <= TOKEN_BYTES_MAX && is_token(arg) {
            true => REDACTED.to_vec(),
            false => cut_argument(arg),
        })
        .collect();
    if shown < args.len() {
        all.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    all
}

fn cut_argument(arg: &[u8]) -> Vec<u8> {
    let Some(more) = arg.len().checked_sub(SLOW_LOG_ARGUMENT_BYTES_MAX).filter(|more| *more > 0) else {
        return without_tokens(arg).into_owned();
    };
    let more = format!("... ({more} more bytes)");
    [&without_tokens(&arg[..SLOW_LOG_ARGUMENT_BYTES_MAX]), more.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_kv::resp::Protocol;

    #[test]
    fn the_latest_are_kept_with_arguments_that_are_cut() {
        let log = SlowLog::default();
        assert!(log.is_slow(10_000_000) && !log.is_slow(9_999_999));
        log.set_slower_than_us(0);
        assert!(log.is_slow(0));
        log.set_slower_than_us(-1);
        assert!(!log.is_slow(u64::MAX));
        let long = vec![b'x'; 130];
        let mut args: Vec<&[u8]> = vec![b"MSET", &long];
        args.resize(40, b"y");
        (0..200).for_each(|_| log.add(&args, |_| false, (1_500_000, 7_000), ("peer", "name")));
        assert_eq!(log.len(), SLOW_LOG_ENTRIES_MAX);
        let mut bytes = Vec::new();
        log.tell(1, &mut Replies::new(&mut bytes, Protocol::Resp2));
        let text = String::from_utf8(bytes).unwrap();
        let begins = format!(
            "*1\r\n*6\r\n:199\r\n:7\r\n:1500\r\n*32\r\n$4\r\nMSET\r\n$146\r\n{}... (2 more bytes)\r\n",
            "x".repeat(128)
        );
        assert!(text.starts_with(&begins), "{text}");
        assert!(text.ends_with("$22\r\n... (9 more arguments)\r\n$4\r\npeer\r\n$4\r\nname\r\n"), "{text}");
        log.set_most(3);
        assert_eq!(log.len(), 3);
        log.clear();
        assert_eq!(log.len(), 0);
    }
    fn told(args: &[&[u8]], tokens: &[&[u8]]) -> String {
        let args = cut(args, |text| tokens.contains(&text));
        args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn no_token_is_told() {
        let token = crate::access::new_token([0xab; 32]);
        let bytes = token.as_bytes();
        assert_eq!(told(&[b"SET", b"k", bytes], &[]), "SET k (redacted)");
        assert_eq!(told(&[b"SET", &[&b"a:"[..], bytes, b":b"].concat(), b"v"], &[]), "SET a:(redacted):b v");
        assert_eq!(told(&[b"SET", b"fp_short", b"secret"], &[b"secret"]), "SET fp_short (redacted)");
        assert_eq!(
            told(&[b"COMMAND", b"GETKEYS", b"auth", b"u", b"pw"], &[]),
            "COMMAND GETKEYS auth (redacted) (redacted)"
        );
        // One truncated token, and one beyond the shown arguments.
        let cut = told(&[b"SET", b"k", &[&b"x".repeat(110)[..], bytes].concat()], &[]);
        assert!(cut.ends_with("xxx(redacted)... (49 more bytes)"), "{cut}");
        assert!(!told(&[b"SET", b"k", &[&b"x".repeat(122)[..], bytes].concat()], &[]).contains("abab"));
    }
}
