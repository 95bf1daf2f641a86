//! Limits of pushed-down programs: plans, expressions, patterns, sort orders, and cached filter results.

use super::{COLUMNS_MAX, ROW_GROUP_ROWS};

/// Maximum bytes of an encoded plan.
pub const PLAN_BYTES_MAX: usize = 4 << 20;

/// Maximum number of relations in a plan, in all sides of its joins. Reason: [`LOOKUPS_MAX`] joins, each with up to five
/// relations on its right side, take 197; engines nest only a few more.
pub const PLAN_RELATIONS_MAX: usize = 256;

/// Maximum depth of nested protocol buffer messages for which the decoded size of a plan is computed. Reason: more than
/// all levels of relations and expressions that the decoder accepts.
pub const PLAN_LEVELS_MAX: usize = 2048;

/// Maximum number of functions that a plan may declare, and also of types. Reason: several times the number that exist.
pub const PLAN_DECLARATIONS_MAX: usize = 1024;

/// Maximum depth of an expression. Reason: deeper ones would overflow the stack of a worker.
pub const EXPR_DEPTH_MAX: usize = 128;

/// Bytes that are charged for each node of an expression in addition to its constants: for its decoded form, for its
/// compiled form with types, columns and arrays, and for the additional data of a predicate.
pub const EXPR_NODE_BYTES: usize = 256;

/// Maximum bytes of all expressions of a program, with their constants. An expression counts as often as the plan
/// refers to it. Reason: a few times the size of a plan; a program is in memory in about five forms, none much larger
/// than this.
pub const EXPR_BYTES_MAX: usize = 4 * PLAN_BYTES_MAX;

/// Maximum bytes of a condition on groups that a node evaluates. Reason: it is evaluated on a batch of groups in one go.
pub const HAVING_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of expressions that are created while a plan is decoded. Reason: room for those of the program, and as
/// many again for columns that projections pass on and a later one drops.
pub const PLAN_EXPR_BYTES_MAX: usize = 2 * EXPR_BYTES_MAX;

/// Maximum bytes of expressions that an engine may create while it derives a program from a query. Reason: enough for
/// many projections of wide tables, and too few for a column that doubles in each projection.
pub const QUERY_EXPR_BYTES_MAX: usize = 4 * EXPR_BYTES_MAX;

/// Maximum number of values in an IN list.
pub const IN_LIST_MAX: usize = 16 << 10;

/// Maximum bytes of a set of join keys: of its bitmap (one bit for each integer between the minimum and the maximum),
/// or of its Bloom filter. Reason: two sets fit in a plan, and one fits in the L2 cache of the core that probes it.
pub const KEY_SET_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of a set of join keys that a lookup holds in place of an index. Reason: it is counted, and copied once, in
/// one step.
pub const LOOKUP_SET_BYTES_MAX: usize = 32 << 20;

/// Maximum number of columns of a relation in a plan. Reason: a projection returns the columns of its input followed by
/// its own, before some of them are selected.
pub const PLAN_COLUMNS_MAX: usize = 2 * COLUMNS_MAX;

/// Maximum bytes of a LIKE pattern or a regular expression. Reason: a Unicode class takes two bytes of text and about 6
/// KiB of memory during parsing, so that a pattern of 4 KiB temporarily takes 12 MiB.
pub const PATTERN_BYTES_MAX: usize = 4 << 10;

/// Maximum bytes of a compiled regular expression, and of the form that matches backwards. Reason: room for some
/// hundred Unicode classes, and less than query engines allow, so that an engine can still run an expression that a
/// node refuses.
pub const REGEX_BYTES_MAX: usize = 4 << 20;

/// Maximum bytes of all compiled patterns of a program; a pattern that is used several times counts once. Reason: room
/// for more than a hundred usual ones.
pub const PATTERNS_BYTES_MAX: usize = 64 << 20;

/// Maximum bytes of automaton (lazy DFA) states that a thread caches per pattern. Reason: with a smaller cache, large
/// patterns compute the same states again and again.
pub const PATTERN_CACHE_BYTES_MAX: usize = 256 << 10;

/// Maximum number of patterns per filter that are compiled to automata over compressed strings. Further patterns match
/// decompressed strings. Reason: each automaton takes some milliseconds to build.
pub const AUTOMATA_MAX: usize = 16;

/// Maximum number of distinct integer columns, constants and operations of a program that are computed on 64-bit
/// integers (lanes) instead of by the general evaluator. Reason: a worker holds 64 KiB for each, the values of one
/// batch.
pub const LANES_MAX: usize = 512;

/// Maximum number of characters of an expression that a message for people shows (a planning answer or an error);
/// longer ones are truncated.
pub const DETAIL_CHARS_MAX: usize = 400;

/// Maximum bytes of the message of an error.
pub const ERROR_BYTES_MAX: usize = 4 << 10;

/// Maximum LIMIT of a program with a sort order (top-N). Reason: beyond the rows of a row group, sorting is most of the
/// work and each worker holds as many rows; the engine sorts as fast and has more memory for it.
pub const TOP_ROWS_MAX: usize = ROW_GROUP_ROWS;

/// Maximum number of sort keys of a program. Reason: engines remove redundant keys, and keys beyond the first few
/// hardly change the order.
pub const SORT_KEYS_MAX: usize = 64;

/// Maximum number of planning answers per program. Reason: a program gets one for each of its operators, and one for each
/// lookup.
pub const ANSWERS_MAX: usize = 64;

const _: () = assert!(LOOKUPS_MAX + 8 <= ANSWERS_MAX && 6 * (LOOKUPS_MAX + 1) <= PLAN_RELATIONS_MAX);

/// Maximum bytes of a filter in the predicate cache, which records the rows that pass a filter. Reason: each new filter
/// is compared with the cached ones.
pub const JUDGED_FILTER_BYTES_MAX: usize = 4 << 10;

/// Maximum number of filters in the predicate cache of a tenant. Reason: those of a few dashboards.
pub const JUDGED_FILTERS_MAX: usize = 64;

/// Maximum bytes of the predicate cache of a tenant, all filters together. Reason: one bit per row for some hundred
/// million rows.
pub const JUDGED_BYTES_MAX: usize = 32 << 20;

/// Divisor: the predicate cache of a tenant may take at most 1/64 of the working memory, if that is less than
/// [`JUDGED_BYTES_MAX`].
pub const JUDGED_PART: usize = 64;

/// Maximum number of lookups (joins with the result of another program) per program, in lookups of lookups too. Reason:
/// each may hold a table in memory; the queries of TPC-H and the star schema benchmark need at most 8.
pub const LOOKUPS_MAX: usize = 32;

/// Maximum depth of lookups in the programs of lookups. Reason: one more than the longest chain of foreign keys in
/// common schemas, and passes over programs recurse.
pub const LOOKUP_DEPTH_MAX: usize = 8;

/// Maximum number of values of the rows that come along with a program for one of its lookups. Reason: planning reads them
/// several times, and short ones fit in a plan ([`PLAN_BYTES_MAX`]).
pub const GIVEN_VALUES_MAX: usize = 1 << 14;

/// Maximum bytes of these values in memory. Reason: as for [`GIVEN_VALUES_MAX`].
pub const GIVEN_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(2 * GIVEN_BYTES_MAX < PLAN_BYTES_MAX);

/// Maximum bytes of the results that the lookups of a program hold in memory, as collected: of all its lookups
/// together, without their indexes. Reason: four times as much is reserved before a program begins, for the rows, for
/// columns made of them, and for an index; more is joined better by the engine, which can spill.
pub const LOOKUP_BYTES_MAX: usize = 256 << 20;
