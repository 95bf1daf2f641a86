//! Limits on programs: plans, expressions, patterns, orders and what a node keeps of them.

use super::{COLUMNS_MAX, ROW_GROUP_ROWS};

/// Bytes of one encoded plan.
pub const PLAN_BYTES_MAX: usize = 4 << 20;

/// Depth of nested relations in a plan. Engines nest a few; each takes a frame of the decoder's stack.
pub const PLAN_RELATIONS_MAX: usize = 64;

/// Depth of nested messages up to which the size of a plan in memory is computed: more than the levels of
/// relations and expressions that are decoded.
pub const PLAN_LEVELS_MAX: usize = 1024;

/// Functions, and types, that a plan may declare: several times the number that exist.
pub const PLAN_DECLARATIONS_MAX: usize = 1024;

/// Nested levels of an expression: deeper ones would overflow the stack of a worker.
pub const EXPR_DEPTH_MAX: usize = 128;

/// Bytes counted for each node of an expression in addition to its constants: for its decoded form, for its
/// compiled form with types, columns and arrays, and for what a predicate adds.
pub const EXPR_NODE_BYTES: usize = 256;

/// Bytes of all expressions of one program together, constants included, counted as often as a plan refers to
/// them: a few times the size of a plan. A program is held in a handful of forms, none much larger than this.
pub const EXPR_BYTES_MAX: usize = 4 * PLAN_BYTES_MAX;

/// Bytes of expressions that are created while a plan is decoded: those of the program, and as many again for
/// columns that projections carry along and drop.
pub const PLAN_EXPR_BYTES_MAX: usize = 2 * EXPR_BYTES_MAX;

/// Bytes of expressions that an engine may make on the way from a query to one program: enough for many projections of
/// wide tables, too few for a column that doubles in each of them.
pub const QUERY_EXPR_BYTES_MAX: usize = 4 * EXPR_BYTES_MAX;

/// Values of one IN list.
pub const IN_LIST_MAX: usize = 16 << 10;

/// Bytes of the bitmap of one key set (one bit for each integer from the least key to the greatest), and of
/// one filter of keys. Two fit a plan, and one the L2 cache of a core that looks keys up.
pub const KEY_SET_BYTES_MAX: usize = 1 << 20;

/// Columns of a relation in a plan: a projection returns the columns of its input followed by its own, before
/// some of them are selected.
pub const PLAN_COLUMNS_MAX: usize = 2 * COLUMNS_MAX;

/// Bytes of a LIKE pattern or a regular expression. A Unicode class takes two bytes of text and some 6 KiB
/// while the expression is parsed: a pattern of 4 KiB temporarily takes 12 MiB.
pub const PATTERN_BYTES_MAX: usize = 4 << 10;

/// Bytes of a compiled regular expression: room for some hundred Unicode classes, and less than query engines
/// allow, so that an expression that is refused here can still run there. The form that matches backwards may
/// take as many.
pub const REGEX_BYTES_MAX: usize = 4 << 20;

/// Bytes of all compiled patterns of one program, a pattern that is used several times counting once: room
/// for more than a hundred usual ones.
pub const PATTERNS_BYTES_MAX: usize = 64 << 20;

/// Bytes of automaton states that a thread caches for a pattern while it matches; with a smaller cache, large
/// patterns compute their states again and again.
pub const PATTERN_CACHE_BYTES_MAX: usize = 256 << 10;

/// Patterns of one filter for which an automaton over compressed strings is built, which takes some
/// milliseconds each. Other patterns run over decompressed strings.
pub const AUTOMATA_MAX: usize = 16;

/// Distinct integer columns, constants and operations of a program that are computed on 64-bit lanes. A
/// worker holds 64 KiB for each, the lane of one batch. Operations beyond this number are computed by the
/// general evaluator.
pub const LANES_MAX: usize = 512;

/// Characters of an expression that an answer or an error shows: the text is for people to read.
pub const DETAIL_CHARS_MAX: usize = 400;

/// Bytes of the message of an error.
pub const ERROR_BYTES_MAX: usize = 4 << 10;

/// Largest limit of a program that has an order: the rows of one row group. Beyond it sorting is most of the
/// work and each worker holds as many rows; the engine sorts just as well and has more memory for it.
pub const TOP_ROWS_MAX: usize = ROW_GROUP_ROWS;

/// Sort keys of an order. Engines drop keys that others imply; beyond a few, no further key decides anything.
pub const SORT_KEYS_MAX: usize = 64;

/// Answers for one program: one for each of its operators.
pub const ANSWERS_MAX: usize = 64;

/// Bytes of a filter from which its judgements are not kept: each new filter is compared with the known ones.
pub const JUDGED_FILTER_BYTES_MAX: usize = 4 << 10;

/// Filters of a tenant's programs of which that is kept: those of a few dashboards.
pub const JUDGED_FILTERS_MAX: usize = 64;

/// Bytes of which rows pass, of all filters of a tenant: a bit for each of some hundred million rows.
pub const JUDGED_BYTES_MAX: usize = 32 << 20;

/// The part of the memory for work that they may take, where that is less.
pub const JUDGED_PART: usize = 64;
