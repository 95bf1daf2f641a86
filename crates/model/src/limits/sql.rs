//! Limits of SQL: texts, views, plans, functions, changes, and batches of statements.

/// Maximum bytes of the SQL text of a view. Reason: several times the longest query of TPC-DS. Each client that reads
/// the view parses it.
pub const VIEW_BYTES_MAX: usize = 64 << 10;

/// Maximum number of tokens in the SQL text of a view. Reason: every second token may nest what precedes it one level
/// deeper (`1 + 1 + …`), and parts of the parser traverse such expressions recursively.
pub const VIEW_TOKENS_MAX: usize = 2_048;

/// Maximum depth of a statement: of nested brackets and queries, and of operators in a row, which nest as deep. Reason:
/// half the depth for which planning needs 2 MiB of stack, which is what a thread of an engine or a test has.
pub const SQL_DEPTH_MAX: usize = 500;

/// Maximum number of expression nodes of a statement after aliases are replaced by their expressions. Reason: each
/// alias may double the size of the expressions before it.
pub const SQL_NODES_MAX: usize = 100_000;

/// Maximum number of columns in a comparison of rows, `(a, b) < (c, d)`. Reason: the comparison is rewritten to an
/// expression that nests one level deeper per column.
pub const SQL_ROW_PARTS_MAX: usize = 32;

/// Maximum number of parser steps per byte of a statement. Reason: the parser tries alternatives by backtracking. It
/// takes less than two steps per byte where the first alternative is right; after an error in the innermost bracket,
/// the steps double with each bracket around it.
pub const SQL_PARSE_STEPS_PER_BYTE_MAX: usize = 64;

/// Maximum number of tables and WITH queries that a statement refers to; a WITH query counts with each reference.
pub const SQL_RELATIONS_MAX: usize = 4 << 10;

/// Maximum number of operators in a statement's plan; those of a subquery or view count with each reference. Reason:
/// five times the limit of a view; each operator takes about 10 KiB during planning.
pub const PLAN_OPERATORS_MAX: usize = 20 << 10;

/// Maximum number of nodes in the expressions of one operator of a plan, after columns of subqueries are replaced by
/// their expressions.
pub const PLAN_EXPRESSION_PARTS_MAX: usize = 200_000;

/// Maximum number of grouping sets of a GROUP BY. Reason: those of CUBE of 12 columns, as in PostgreSQL; each row is
/// grouped once per set.
pub const GROUPING_SETS_MAX: usize = 4096;

/// Maximum bytes of the result of a function of constants that replaces the call in the plan (constant folding).
/// Reason: planning copies the constant many times.
pub const FOLDED_BYTES_MAX: usize = 1 << 20;

/// Maximum number of steps per row of a function whose work is the product of the lengths of its arguments. Reason: it
/// takes a second or two, in which the statement cannot be cancelled.
pub const FUNCTION_STEPS_MAX: usize = 1 << 31;

/// Maximum number of times that a statement is planned again after a rewrite. A planning error may lead to a rewrite,
/// such as an alias that the same SELECT uses again and that is replaced by its expression; one rewrite is made at a
/// time. Joins with merged columns (USING) are allowed in addition.
pub const SQL_NAMES_REUSED_MAX: usize = 64;

/// Maximum depth of views that read other views. Reason: as deep as people can follow; each level is a step of
/// recursion.
pub const VIEW_DEPTH_MAX: usize = 16;

/// Maximum number of views that the plan of a view may read. Reason: it bounds planning if a malicious node invents
/// another view for each name.
pub const VIEWS_READ_MAX: usize = 256;

/// Maximum number of operators in the plan of a view, including those of the views that it reads. Reason: the plan of
/// views that each read another view twice grows exponentially with their depth.
pub const VIEW_OPERATORS_MAX: usize = 4 << 10;

/// Bytes of working memory that are charged for a view in addition to its name and text: for its entry in a hash map.
pub const VIEW_OVERHEAD_BYTES: usize = 256;

/// Maximum number of query plans that a session caches, by the text of the query.
pub const PLANS_KEPT_MAX: usize = 64;

/// Maximum bytes of the text of a query whose plan a session caches.
pub const PLAN_KEPT_TEXT_BYTES_MAX: usize = 4 << 10;

/// Maximum number of expressions in a plan that a session caches.
pub const PLAN_KEPT_EXPRS_MAX: usize = 512;

/// Maximum number of statements of a batch that are planned together. Reason: their programs are prepared, and held,
/// together.
pub const BATCH_STATEMENTS_PLANNED_MAX: usize = 32;

/// Maximum number of statements of a batch that run while an earlier statement returns its rows. Reason: more would
/// compete for processors.
pub const BATCH_STATEMENTS_AHEAD_MAX: usize = 4;

/// Maximum bytes of rows that are buffered for a statement that runs ahead of its turn in a batch. A larger result is
/// not buffered at all: it is read when the turn of the statement has come.
pub const BATCH_RESULT_BYTES_MAX: usize = 4 << 20;

/// Maximum estimated bytes of a result that several programs of a batch share.
pub const SHARED_RESULT_BYTES_MAX: usize = 64 << 20;

/// Bytes that a shared result of a batch may always have, even if the estimate was less. A result that is larger than
/// this and than twice its estimate is dropped, and each program then runs by itself.
pub const SHARED_RESULT_BYTES_MIN: usize = 4 << 20;

/// Divisor: the shared results of a batch may take at most a quarter of the engine's memory.
pub const SHARED_RESULTS_PART: usize = 4;

/// Maximum number of values that a subquery in the condition of an UPDATE or DELETE may return. Reason: the values are
/// sent to the pool as a list, within the limit of a plan's size.
pub const CHANGE_VALUES_MAX: usize = 10_000;

/// Maximum number of times that an UPDATE or DELETE is planned again because its table was changed concurrently.
pub const CHANGE_REPETITIONS_MAX: usize = 16;
