//! Limits on SQL: texts, views, plans, functions, changes, and batches of statements.

/// Bytes of a view's text: several times the longest query of TPC-DS. Each client that reads the view parses it.
pub const VIEW_BYTES_MAX: usize = 64 << 10;

/// Tokens of a view's text. Every second token may nest what precedes it one level deeper (`1 + 1 + …`), and
/// parts of the parser walk such expressions by recursion.
pub const VIEW_TOKENS_MAX: usize = 2_048;

/// Depth of a statement: nested brackets and queries, and operators in a row, which nest as deep. Half the
/// depth for which planning needs 2 MiB, the stack of a thread that an engine or a test starts.
pub const SQL_DEPTH_MAX: usize = 500;

/// Nodes of the expressions of a statement once aliases are replaced by their expressions: each alias may
/// double the size of those before it.
pub const SQL_NODES_MAX: usize = 100_000;

/// Columns of rows that are compared, `(a, b) < (c, d)`: the comparison nests with each.
pub const SQL_ROW_PARTS_MAX: usize = 32;

/// Steps of the parser for each byte of a statement. It tries one form after the other, and takes less than two where
/// the first is right; where a text is wrong in its innermost bracket, the steps double with each bracket around.
pub const SQL_PARSE_STEPS_PER_BYTE_MAX: usize = 64;

/// Tables and WITH queries that a statement names, with each WITH query as often as it is named.
pub const SQL_RELATIONS_MAX: usize = 4 << 10;

/// Operators of a statement's plan, with each subquery and view as often as it is named: five times those of a view.
/// They take some 10 KiB each while they are planned.
pub const PLAN_OPERATORS_MAX: usize = 20 << 10;

/// Parts of the expressions of one operator, with columns of subqueries written out.
pub const PLAN_EXPRESSION_PARTS_MAX: usize = 200_000;

/// Grouping sets of one GROUP BY: those of CUBE of 12 columns, as in PostgreSQL. Each row is grouped once for each.
pub const GROUPING_SETS_MAX: usize = 4096;

/// Bytes of a function's result that becomes a constant of a plan, which is copied many times while it is planned.
pub const FOLDED_BYTES_MAX: usize = 1 << 20;

/// Steps of a function whose work is the product of its arguments' lengths, for one row: a second or two, in which a
/// statement cannot be stopped.
pub const FUNCTION_STEPS_MAX: usize = 1 << 31;

/// Aliases of expressions of one statement that are used again in it. The statement is planned once for each.
pub const SQL_NAMES_REUSED_MAX: usize = 64;

/// Depth of views that read one another, from the one that a statement names to the last: as many as people
/// can still follow. Each level is a step of recursion.
pub const VIEW_DEPTH_MAX: usize = 16;

/// Views that the plan of one view may need: bounds planning when a node invents another view behind each
/// name.
pub const VIEWS_READ_MAX: usize = 256;

/// Operators in the plan of a view and of all views that it reads. The plan of views that each read another
/// one twice is exponential in their depth.
pub const VIEW_OPERATORS_MAX: usize = 4 << 10;

/// Bytes of memory for work counted for a view in addition to its name and text: a map entry and the view's
/// share of the map.
pub const VIEW_OVERHEAD_BYTES: usize = 256;

/// Plans of queries that a session keeps, by their texts.
pub const PLANS_KEPT_MAX: usize = 64;

/// Bytes of the text of such a query.
pub const PLAN_KEPT_TEXT_BYTES_MAX: usize = 4 << 10;

/// Expressions in such a plan, all in all.
pub const PLAN_KEPT_EXPRS_MAX: usize = 512;

/// Statements of a batch that are planned at once: their programs are prepared and kept all together.
pub const BATCH_STATEMENTS_PLANNED_MAX: usize = 32;

/// Statements of a batch that run before their turn to return rows has come: more would compete for processors.
pub const BATCH_STATEMENTS_AHEAD_MAX: usize = 4;

/// Bytes of rows that are kept of such a statement. Of larger results nothing is kept: they are read when their turn
/// has come.
pub const BATCH_RESULT_BYTES_MAX: usize = 4 << 20;

/// Bytes of a result that several programs share, as estimated.
pub const SHARED_RESULT_BYTES_MAX: usize = 64 << 20;

/// Bytes that such a result may have, however few were expected. Beyond that, twice as many as were expected are given
/// up: each program runs by itself.
pub const SHARED_RESULT_BYTES_MIN: usize = 4 << 20;

/// One part in this many is the most that all shared results of a batch take of the engine's memory.
pub const SHARED_RESULTS_PART: usize = 4;

/// Values that a subquery in the condition of a change may return. They are sent to the pool as a list,
/// within the limit on a plan's size.
pub const CHANGE_VALUES_MAX: usize = 10_000;

/// Times that a change is planned again because its table was changed concurrently.
pub const CHANGE_REPETITIONS_MAX: usize = 16;
