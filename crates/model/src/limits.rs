//! All limits on external input, each with its reason: what a peer, a file or a user may send or request, and how much
//! memory and time that may take. The sizes that several crates share, such as those of pages and row groups, are here,
//! too. Each subject has a file in this module's folder; all names are also here, so that a user writes `limits::NAME`.
//!
//! Not here: tuning constants, which decide how work is done and never whether it is accepted. They are next to their
//! algorithm and cite the measurement or paper that they come from. Nor numbers that a format or protocol fixes.
//!
//! Invariant: a value that crosses a limit is refused with an error that names the limit; only text for
//! people is truncated silently. The relations between limits are asserted at compile time in this file.

mod client;
mod connections;
mod disk;
mod files;
mod flight;
mod keys;
mod loads;
mod memory;
mod postgres;
mod programs;
mod resp;
mod sql;
mod statistics;
mod tables;
mod tenants;

pub use client::*;
pub use connections::*;
pub use disk::*;
pub use files::*;
pub use flight::*;
pub use keys::*;
pub use loads::*;
pub use memory::*;
pub use postgres::*;
pub use programs::*;
pub use resp::*;
pub use sql::*;
pub use statistics::*;
pub use tables::*;
pub use tenants::*;

const _: () = assert!(4 * LOG_RECORD_BYTES_MAX <= LOG_FILE_BYTES);
const _: () =
    assert!(CONNECTIONS_RESERVED_PART < CONNECTIONS_FEW_PART && CONNECTIONS_FEW_PART <= CONNECTIONS_MAX);
const _: () = assert!(2 * HISTORY_ENTRIES_MAX * HISTORY_ENTRY_BYTES_MAX < 64 << 20);
const _: () = assert!(4 * KV_RECORD_BYTES_MAX <= LOG_RECORD_BYTES_MAX);
const _: () = assert!(KV_STEP_WORK_MAX <= RESP_REPLIES_BYTES_MAX && KV_VALUE_BYTES_MAX < KV_EXEC_WORK_MAX);
const _: () = assert!(ROW_GROUP_ROWS.is_multiple_of(BATCH_ROWS));
const _: () = assert!(SMALL_APPEND_ROWS < LARGE_GROUP_ROWS && LARGE_GROUP_ROWS < ROW_GROUP_ROWS);
const _: () = assert!(SMALL_APPEND_BYTES < LARGE_GROUP_BYTES && 2 * LARGE_GROUP_BYTES <= ROW_GROUP_BYTES_MAX);
const _: () = assert!(SMALL_GROUPS_MAX < MERGES_BEHIND_MAX);
const _: () = assert!(WORK_BYTES_MIN <= WORK_BYTES_DEFAULT);
const _: () = assert!(BATCH_ROWS.is_multiple_of(BLOCK_ROWS));
const _: () = assert!(PLAN_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(2 * KEY_SET_BYTES_MAX < PLAN_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_MAX <= STREAM_WINDOW_BYTES);
const _: () = assert!(STREAM_WINDOW_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(STRING_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(MESSAGE_ROWS_MAX <= i32::MAX as usize && ROW_GROUP_ROWS <= MESSAGE_ROWS_MAX);
const _: () = assert!(2 * COLUMNS_MAX + MESSAGE_BYTES_MAX / (16 << 10) <= MESSAGE_BUFFERS_MAX);
const _: () = assert!(INCOMPLETE_BYTES_MAX < UNREAD_BYTES_MAX);
const _: () = assert!(4 * (EXPR_DEPTH_MAX + PLAN_RELATIONS_MAX) < PLAN_LEVELS_MAX);
const _: () = assert!(PATTERN_BYTES_MAX <= PLAN_BYTES_MAX);
const _: () =
    assert!(2 * KV_PREDICATE_DEPTH_MAX + 8 <= EXPR_DEPTH_MAX && KV_PREDICATE_NODES_MAX <= IN_LIST_MAX);
const _: () = assert!(
    STRING_BYTES_MAX <= ROW_GROUP_BYTES_MAX && DISTINCT_TRACKED_BYTES_MAX <= TABLE_DISTINCT_BYTES_MAX
);
const _: () = assert!(PLAN_BYTES_MAX <= EXPR_BYTES_MAX && REGEX_BYTES_MAX <= PATTERNS_BYTES_MAX);
const _: () = assert!(SORT_KEYS_MAX <= COLUMNS_MAX);
const _: () = assert!(TAP_COLUMNS_MAX <= COLUMNS_MAX && TAP_MOMENT_COLUMNS_MAX <= TAP_COLUMNS_MAX);
const _: () = assert!(MOMENT_COLUMNS_MAX <= COLUMNS_MAX && COLUMNS_MAX <= LISTED_COLUMNS_MAX);
const _: () = assert!(PAGE_BYTES.is_power_of_two() && PAGE_BYTES <= RESULT_BYTES_MAX);
const _: () = assert!(ROW_GROUP_ROWS <= u32::MAX as usize);
const _: () = assert!(RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX <= RESP_INLINE_BYTES_MAX);
