//! All limits on external input, each with its reason: what a peer, a file or a user may send or request, and how much
//! memory and time that may take. The sizes that several crates share, such as those of pages and row groups, are here,
//! too.
//!
//! Not here: tuning constants, which decide how work is done and never whether it is accepted. They are next to their
//! algorithm and cite the measurement or paper that they come from. Nor numbers that a format or protocol fixes.
//!
//! Invariant: a value that crosses a limit is refused with an error that names the limit; only text for
//! people is truncated silently. The relations between limits are asserted at compile time at the end of this
//! file.

use std::time::Duration;

/// Bytes of one page of the pool: the size of an x86-64 huge page, and of Farview's MMU (section 4.3).
pub const PAGE_BYTES: usize = 2 << 20;

/// Values of one packed block, the unit of the FastLanes layout.
pub const BLOCK_ROWS: usize = 1024;

/// Rows of one row group: the unit of zone maps, and the most that a worker takes at once. 64 blocks: large
/// enough that the cost of a morsel disappears, small enough that two workers stay busy on a million rows.
pub const ROW_GROUP_ROWS: usize = 64 * BLOCK_ROWS;

/// Bytes of plain values, strings included, at which a row group is closed although it has fewer rows than
/// fit (it always has at least one). This bounds the bytes that wait to be encoded: 4 KiB a row, the size of
/// 512 columns of 64 bits.
pub const ROW_GROUP_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Bytes that buffered rows may hold beyond twice their plain size while they wait for their row group to
/// fill: small batches have a header for each column and buffer, and strings may be small parts of large
/// buffers.
pub const PLAIN_EXCESS_BYTES_MAX: usize = 1 << 20;

/// Rows from which a row group counts as large: it is no longer merged with others, and its rows are
/// profiled. Two smaller ones always fit one row group.
pub const LARGE_GROUP_ROWS: usize = ROW_GROUP_ROWS / 2;

/// Bytes of plain values from which a row group counts as large, however few rows it has. A merge therefore
/// holds at most twice as many bytes, and decodes one column at a time.
pub const LARGE_GROUP_BYTES: usize = 16 << 20;

/// Small row groups at the end of a table that are left unmerged: a scan takes a few microseconds for each.
pub const SMALL_GROUPS_MAX: usize = 8;

/// A small row group is merged with those behind it if it has at most this many times their rows. A higher
/// ratio leaves fewer row groups but rewrites each row more often: with 4 there are at most 7 sizes below a
/// large row group, and a row is written some 30 times.
pub const MERGE_RATIO: usize = 4;

/// Small row groups of a table from which each append performs one step of a merge itself, so that their
/// number stays bounded where background work gets no time.
pub const MERGES_BEHIND_MAX: usize = 64;

/// Rows of the largest append that is encoded together with concurrent appends. Larger appends get row groups
/// of their own, which are encoded as rows come in.
pub const SMALL_APPEND_ROWS: usize = 1024;

/// Bytes of the largest append that is encoded together with concurrent appends.
pub const SMALL_APPEND_BYTES: usize = 1 << 20;

/// Rows of a batch, the unit that operators process within a step if rows are cheap: a few 64-bit columns of
/// a batch stay in the L2 cache.
pub const BATCH_ROWS: usize = 8 * BLOCK_ROWS;

/// Approximate duration of one step of a worker, in nanoseconds: a client with small queries waits for one or
/// two steps of others, and the fixed cost of a step is a few microseconds.
pub const STEP_NS: u64 = 1_000_000;

/// Bytes of the largest frame on the wire. Larger frames leave the CPU caches and measured 1.3 to 1.6
/// times slower on loopback.
pub const FRAME_BYTES_MAX: usize = 512 << 10;

/// Bytes that a peer may have in flight on one stream before it must wait for credit.
pub const STREAM_WINDOW_BYTES: usize = 4 << 20;

/// Bytes of one whole message assembled from frames (a record batch with long strings, a plan). The limit
/// also applies to a batch once its buffers are decompressed, and to its strings counted once for each row
/// even where rows share one: it bounds what reading, checking and encoding the batch may cost.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Rows of one record batch on the wire. A batch without columns has no bytes that would bound its rows, yet
/// its reader has some work for each row group that they fill: 256 at most.
pub const MESSAGE_ROWS_MAX: usize = 256 * ROW_GROUP_ROWS;

/// Buffers of one record batch on the wire: two for each column, and the data buffers of views if a writer
/// puts at least 16 KiB in each. A reader keeps some 50 bytes for each buffer, however short it is.
pub const MESSAGE_BUFFERS_MAX: usize = 64 << 10;

/// Bytes of incomplete messages on all streams of one connection together: the largest message, and a window for each
/// stream.
pub const INCOMPLETE_BYTES_MAX: usize = MESSAGE_BYTES_MAX + STREAMS_PER_CONNECTION_MAX * STREAM_WINDOW_BYTES;

/// Bytes of credit that a peer may grant at once: more is an attempt to overflow the counter.
pub const CREDIT_BYTES_MAX: u64 = 1 << 40;

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

/// Columns of one table, and of one result.
pub const COLUMNS_MAX: usize = 4096;

/// Columns of a relation in a plan: a projection returns the columns of its input followed by its own, before
/// some of them are selected.
pub const PLAN_COLUMNS_MAX: usize = 2 * COLUMNS_MAX;

/// Columns of one state of moments: the products of all pairs of 64-bit integers then take 67 MB.
pub const MOMENT_COLUMNS_MAX: usize = 2048;

/// Rows that one state of moments may count: sums of that many products fit its widest integers.
pub const MOMENT_ROWS_MAX: u64 = 1 << 62;

/// Bytes of a table, column or tenant name.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of one string or binary value.
pub const STRING_BYTES_MAX: usize = 64 << 20;

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

/// Default size of a node's memory for work, which is everything beside the pool, in bytes.
pub const WORK_BYTES_DEFAULT: usize = 8 << 30;

/// The least memory for work that a node can be given: it has to read messages, hold a row group of each load in plain
/// form, and run a program or two.
pub const WORK_BYTES_MIN: usize = 64 << 20;

/// Bytes of the temporary files of all statements of a session together.
pub const SPILL_BYTES_MAX: u64 = 100 << 30;

/// Divisor: the groups of one program may take one in `GROUPS_PART` bytes of the memory for work. Groups that
/// do not fit leave in parts, which the client merges.
pub const GROUPS_PART: usize = 2;

/// Default for the bytes that the groups of one program may take.
pub const GROUP_BYTES_MAX: usize = WORK_BYTES_DEFAULT / GROUPS_PART;

/// Reservations of memory for work that may wait at once. Each is a request of a client, or its connection.
pub const WORK_WAITERS_MAX: usize = 4096;

/// Milliseconds that a program, or a client that sends, may wait for memory that others use.
pub const WORK_WAIT_MS_MAX: u64 = 30_000;

/// Largest limit of a program that has an order: the rows of one row group. Beyond it sorting is most of the
/// work and each worker holds as many rows; the engine sorts just as well and has more memory for it.
pub const TOP_ROWS_MAX: usize = ROW_GROUP_ROWS;

/// Sort keys of an order. Engines drop keys that others imply; beyond a few, no further key decides anything.
pub const SORT_KEYS_MAX: usize = 64;

/// Bytes of reusable pages that the results of remote queries may take at a client, whether a result holds
/// them or they are idle: twice the largest result of the benchmarks. Results beyond it take memory from the
/// allocator.
pub const RESULT_BYTES_MAX: usize = 2 << 30;

/// Milliseconds without a remote query after which idle pages go back to the system: as long as a person
/// takes to ask the next question.
pub const RESULT_IDLE_MS: u64 = 30_000;

/// Requests that one connection may have open at once.
pub const STREAMS_PER_CONNECTION_MAX: usize = 64;

/// Connections of clients that a node serves at once, beside those of the Redis protocol ([`RESP_CONNECTIONS_MAX`]).
pub const CONNECTIONS_MAX: usize = 1024;

/// The part of the connections of a port that only tenants with few of them get: one tenant cannot keep all others out.
pub const CONNECTIONS_RESERVED_PART: usize = 8;

/// The part of the connections of a port up to which a tenant has few: 8 of 1,024, 78 of 10,000.
pub const CONNECTIONS_FEW_PART: usize = 128;

/// Connections that have not said hello yet, in addition to those of clients. A distant client that needs a
/// round trip for its hello loses its place only if this many connections come after it in that time.
pub const GREETINGS_MAX: usize = 256;

/// Tables of one tenant.
pub const TABLES_PER_TENANT_MAX: usize = 64 << 10;

/// Views of one tenant: names that people and tools keep in mind. A list of them is one message of some 1 MiB.
pub const VIEWS_PER_TENANT_MAX: usize = 4 << 10;

/// Schemas of one tenant besides `public`: groups of tables that people tell apart by name.
pub const SCHEMAS_PER_TENANT_MAX: usize = 1 << 10;

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

/// Result batches that wait for a slow client before its query stops getting workers.
pub const QUEUED_BATCHES_MAX: usize = 8;

/// Largest number of strings, in all dictionaries of a column together, that are numbered across the table,
/// so that groups are distinguished by number. Numbering takes one or two milliseconds, however few rows are
/// grouped.
pub const TEXTS_NUMBERED_MAX: usize = 32 << 10;

/// Bytes of the strings of those dictionaries: a program holds them two or three times, beside the memory for
/// groups.
pub const TEXTS_NUMBERED_BYTES_MAX: usize = 8 << 20;

/// Distinct values of a column up to which the exact count is kept with the table's statistics.
pub const DISTINCT_TRACKED_MAX: usize = 64 << 10;

/// Bytes of those values, where they are strings: room for that many strings of 80 bytes. For longer ones
/// there is only an estimate.
pub const DISTINCT_TRACKED_BYTES_MAX: usize = 8 << 20;

/// Bytes of those values in all columns of one table. They are outside the pool; beyond this the columns that take most
/// have only estimates.
pub const TABLE_DISTINCT_BYTES_MAX: usize = 64 << 20;

/// Hash bits that one item has for all its sketches: those of Murmur3 x64 128. Rows of counters that shared
/// bits would collide together, and all but one of them would be useless.
pub const SKETCH_HASH_BITS: u32 = 128;

/// Bits of the index of a HyperLogLog register: from 16 registers, below which the error of the estimate is
/// not known, to 2^18, which err by 0.2 %.
pub const DISTINCT_PRECISION: std::ops::RangeInclusive<u8> = 4..=18;

/// Bits of the index of a counter in its row: the range of the thesis (table 4.3). At 16, six rows of
/// counters with signs take 7 MiB, more than a core's cache holds.
pub const COUNTERS_PRECISION: std::ops::RangeInclusive<u8> = 4..=16;

/// Frequent values that a sketch keeps in addition to its counters: any further value is no more frequent
/// than the noise.
pub const SKETCH_TOP_MAX: u32 = 1024;

/// Size of the highest level of KLL; a sketch keeps about three times as many values. The range goes from a
/// rank error of a tenth to one of less than a thousandth, which takes 100 KiB.
pub const SKETCH_QUANTILES: std::ops::RangeInclusive<u16> = 8..=4096;

/// Bytes of the longest value that a sketch keeps as one of the frequent ones; longer values are left out.
/// All frequent values of a sketch together fit a few frames.
pub const SKETCH_VALUE_BYTES_MAX: usize = 1 << 10;

/// Rows that one sketch may count: the square of their number fits 128 bits.
pub const SKETCH_ROWS_MAX: u64 = 1 << 62;

/// Numeric columns of a table whose joint moments are collected: 64 columns have 2 080 products, which cost
/// about as much as encoding the columns.
pub const TAP_MOMENT_COLUMNS_MAX: usize = 64;

/// Columns of a table up to which full profiles are collected; for wider tables only the number of distinct
/// values. A column takes some 100 KiB at each worker, and half as much in the pool.
pub const TAP_COLUMNS_MAX: usize = 128;

/// Parts of one profile, each with states of every column: that many workers compute the profile at once.
pub const PROFILE_PARTS_MAX: usize = 8;

/// Requests of one tenant for profiles not yet computed that a node processes at once. Further requests
/// queue, since each holds parts of a profile. More than one, so that a small table need not wait for a large
/// one.
pub const PROFILES_AWAITED_MAX: usize = 4;

/// Appends whose profiles may wait for earlier ones. The next append works on these before it is published,
/// so that a stream of small appends cannot get arbitrarily far ahead of its statistics.
pub const TAPS_WAITING_MAX: usize = 64;

/// Bins of a column's histogram in the description of its table: a bin holds less than a hundredth of evenly
/// distributed values, and all take a few hundred bytes.
pub const SPREAD_BINS_MAX: usize = 128;

/// Quantiles of a column in the description of its table: the shares between them are then no larger than the
/// error of a sample that a profile can afford, about a hundredth.
pub const SPREAD_QUANTILES_MAX: usize = 63;

/// Frequent values of a column in the description of its table: all that a tap keeps.
pub const SPREAD_FREQUENT_MAX: usize = 16;

/// Bytes of the longest frequent value in the description of a table: longer ones are seldom compared.
pub const SPREAD_VALUE_BYTES_MAX: usize = 64;

/// Bytes of an encoded spread: twice the size of the most and longest frequent values that it may have, of
/// the counts of its bins as LEB128, and of its quantiles.
pub const SPREAD_BYTES_MAX: usize = 2
    * (SPREAD_FREQUENT_MAX * (SPREAD_VALUE_BYTES_MAX + 16) + SPREAD_BINS_MAX * 10 + SPREAD_QUANTILES_MAX * 8);

/// Bytes of the access file, with tokens and rights: room for about twenty thousand tokens. The operator of the node
/// chooses it, but a path that names a device by mistake must not fill the memory.
pub const ACCESS_FILE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a file with a token: more than a hello has room for.
pub const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a file with certificates, or with a key: twice the set of certificates that a system trusts, the
/// largest in use.
pub const PEM_BYTES_MAX: u64 = 1 << 20;

/// Programs of a tenant that may wait while as many run as it may have at once; the default.
pub const PROGRAMS_WAITING_DEFAULT: usize = 64;

/// Milliseconds that a program may wait for its turn among those of its tenant: as long as for memory, and less than
/// clients wait for an answer.
pub const PROGRAM_WAIT_MS_MAX: u64 = 30_000;

/// Milliseconds after which a client that was told to retry later may do so: at least a round trip, at most
/// as long as a person waits without feedback.
pub const RETRY_AFTER_MS: std::ops::RangeInclusive<u64> = 100..=10_000;

/// Retries of a client that was refused temporarily, before its caller gets the error.
pub const RETRIES_MAX: u32 = 5;

/// Milliseconds a peer may take to say hello, and to accept a connection.
pub const HANDSHAKE_MS_MAX: u64 = 10_000;

/// Characters of a client's description of itself in lists of connections; longer ones are truncated.
pub const CLIENT_CHARS_MAX: usize = 64;

/// Requests for encryption that a PostgreSQL client may make before it is told that this is the wrong port: one for TLS
/// and one for GSSAPI.
pub const POSTGRES_REQUESTS_MAX: usize = 2;

/// Arguments of one request over the Redis protocol, the name of the command included: long Redis' own limit. Arguments
/// that have arrived are charged to the client.
pub const RESP_ARGUMENTS_MAX: usize = 1 << 20;

/// Bytes of one argument over the Redis protocol, and so of a value: Redis' default.
pub const RESP_ARGUMENT_BYTES_MAX: usize = KV_VALUE_BYTES_MAX;

/// Bytes of a command in one line over the Redis protocol, and of the line with a length: Redis' own limit.
pub const RESP_INLINE_BYTES_MAX: usize = 64 << 10;

/// Arguments of a request from a client that has not authenticated itself: Redis' own limit, for `HELLO` with all its
/// options.
pub const RESP_UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Bytes of an argument, and of a command in one line, from a client that has not authenticated itself: Redis' own
/// limit, and room for a token.
pub const RESP_UNAUTHENTICATED_ARGUMENT_BYTES_MAX: usize = 16 << 10;

/// Programs in one list of queries: at most one for each stream of each connection.
pub const LISTED_QUERIES_MAX: usize = CONNECTIONS_MAX * STREAMS_PER_CONNECTION_MAX;

/// Columns of all tables in one list of tables: more than the message has room for, unless a peer designs it
/// to take much memory.
pub const LISTED_COLUMNS_MAX: usize = 1 << 20;

/// Prepared programs that one connection may keep: enough for a few statements with many joins each. Beyond
/// it the least recently used one is evicted.
pub const HANDLES_PER_CONNECTION_MAX: usize = 256;

/// The least memory for columns that a client keeps: some row groups of a few columns.
pub const NEAR_BYTES_MIN: usize = 16 << 20;

/// Tables whose chunks a client keeps while no query reads them; each takes some memory for the bounds of its chunks.
pub const NEAR_TABLES_MAX: usize = 64;

/// Bytes of a result that a client keeps.
pub const NEAR_RESULT_BYTES_MAX: usize = 256 << 10;

/// Results that a client keeps.
pub const NEAR_RESULTS_MAX: usize = 1024;

/// Bytes that are counted for a result beside its rows.
pub const NEAR_RESULT_OVERHEAD_BYTES: usize = 4 << 10;

/// Reciprocal of the share of memory for results: of the memory that a client gives to columns, in addition to that,
/// and of its working memory at most.
pub const NEAR_RESULTS_PART: usize = 16;

/// Tables for which a client counts the bytes that programs returned, before it resets the counts.
pub const NEAR_RENTS_MAX: usize = 4096;

/// Row groups whose chunks a client asks for at once.
pub const FETCHED_GROUPS_MAX: usize = 64 << 10;

/// Approximate bytes of the outlines of chunks in one message: a worker spends some milliseconds on it.
pub const OUTLINES_BYTES: usize = 1 << 20;

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

/// Bytes of the prepared programs of one connection together: of their plans, and of expressions and patterns
/// as decoded and as compiled. One of the largest fits.
pub const HANDLE_BYTES_MAX: usize = PLAN_BYTES_MAX + 2 * (EXPR_BYTES_MAX + PATTERNS_BYTES_MAX);

/// Outcomes of loads that a node remembers for one tenant, so that a client whose connection broke can ask
/// for its own: those of several seconds at a thousand inserts a second. Each takes [`LOAD_OUTCOME_BYTES`] of
/// the memory for work.
pub const LOAD_OUTCOMES_MAX: usize = 16 << 10;

/// Bytes counted for a remembered outcome of a load, in addition to the text of an error.
pub const LOAD_OUTCOME_BYTES: usize = 256;

/// Bytes of an error's message, and of its advice, that are remembered with an outcome; longer texts are
/// truncated.
pub const LOAD_OUTCOME_TEXT_BYTES_MAX: usize = 1 << 10;

/// Milliseconds for which an outcome is remembered if others do not evict it: longer than a client tries to
/// reconnect.
pub const LOAD_OUTCOME_MS: u64 = 600_000;

/// Requests that may wait for the outcome of one load: its client asks once, and perhaps once more on another
/// connection.
pub const LOAD_OUTCOME_WAITERS_MAX: usize = 64;

/// Bytes of a load that a client keeps until it knows the outcome, so that it can send them again when its
/// connection breaks: as many as may be in flight without credit.
pub const LOAD_REPEAT_BYTES_MAX: usize = STREAM_WINDOW_BYTES;

/// Attempts to send a load whose connection breaks, and to ask for its outcome, before the caller gets the
/// error.
pub const LOAD_ATTEMPTS_MAX: usize = 3;

/// Answers for one program: one for each of its operators.
pub const ANSWERS_MAX: usize = 64;

/// Bytes of messages from one node that a client holds, complete or not, before they are read: four of the
/// largest, or the windows of a few connections full of results.
pub const UNREAD_BYTES_MAX: usize = 1 << 30;

/// Milliseconds without a byte from a peer of which something is expected, after which it is sent a `Ping`. A
/// small multiple of the longest pause of a healthy peer on a busy machine.
pub const PING_AFTER_MS: u64 = 15_000;

/// Milliseconds for which a client waits for the next message of an answer while the node answers each `Ping`. Longer
/// than any program computes in memory before it returns rows or its receipt, or waits for its turn.
pub const ANSWER_MS_MAX: u64 = 3_600_000;

/// Milliseconds without a byte from a client after which a node sends it a `Ping`. A client may well be idle,
/// so there is no hurry, but a client that vanished still holds memory.
pub const CLIENT_PING_AFTER_MS: u64 = 60_000;

/// Milliseconds without a byte from the peer after a `Ping` until the connection is given up: several
/// retransmissions of a lost packet, and less than a person waits.
pub const PONG_MS_MAX: u64 = 30_000;

/// Milliseconds that rows of a result may wait for credit, or for room on the connection, before their program is
/// ended: as long as a person who reads page by page may take for one.
pub const UNREAD_MS_MAX: u64 = 600_000;

/// Values that a subquery in the condition of a change may return. They are sent to the pool as a list,
/// within the limit on a plan's size.
pub const CHANGE_VALUES_MAX: usize = 10_000;

/// Times that a change is planned again because its table was changed concurrently.
pub const CHANGE_REPETITIONS_MAX: usize = 16;

/// Bytes of the longest first line with which a file is taken for CSV.
pub const CSV_HEADER_BYTES_MAX: u64 = 1 << 20;

/// Fields of one record of a CSV file: several times the columns of a table, so that a line that has too many by a
/// mistake is still counted in its error.
pub const CSV_FIELDS_MAX: usize = 16 * COLUMNS_MAX;

/// Bytes of one record of a CSV or JSON file: those of the longest value. A compressed file may have any
/// number of records; they are read one after the other, so that only a record and a batch are held in
/// memory.
pub const RECORD_BYTES_MAX: usize = STRING_BYTES_MAX;

/// Texts that represent NULL in one file: each field is compared with all of them.
pub const NULL_TEXTS_MAX: usize = 64;

/// Files of one table: each is opened, and its beginning read, before the first row.
pub const FILES_MAX: usize = 64 << 10;

/// Objects below one prefix of an object store that are listed to find those that match a pattern.
pub const OBJECTS_LISTED_MAX: usize = 1 << 20;

/// Product of the numbers of alternatives of all `{a,b}` in one file pattern: each combination is a pattern
/// of its own.
pub const PATTERN_ALTERNATIVES_MAX: usize = 1024;

/// Zeros after the first bytes of an Arrow IPC file: its buffers are aligned to at most as many bytes.
pub const IPC_PADDING_BYTES_MAX: usize = 64;

/// Uncompressed bytes of one compressed buffer of an Arrow IPC file: more than arrays with 32-bit offsets can
/// have.
pub const IPC_BUFFER_BYTES_MAX: i64 = 4 << 30;

/// Size of one file of the log: large enough that new files, which cost some syncs, are rare, and small enough that
/// records that are not needed any more are removed soon, a file at a time.
pub const LOG_FILE_BYTES: usize = 64 << 20;

/// Bytes of a file of a backup that a node sends at once: as many requests of a client are under way as a link needs.
pub const BACKUP_READ_BYTES_MAX: usize = 1 << 20;

/// Bytes of the list of a backup's files: some hundred bytes for each of them.
pub const BACKUP_LIST_BYTES_MAX: u64 = 256 << 20;

/// Bytes of the log after which a checkpoint is made by default: a start replays them in a fraction of a second.
pub const LOG_BYTES_DEFAULT: usize = 128 << 20;

/// Size of one record of the log. Larger changes, such as row groups, are files of their own that a record names.
pub const LOG_RECORD_BYTES_MAX: usize = 16 << 20;

/// Plain bytes of a compressed part of a segment: bounds the memory that a few damaged bytes on disk can claim. A chunk
/// of the largest row group has less; larger parts are stored uncompressed.
pub const PACKED_PART_BYTES_MAX: usize = 512 << 20;

/// Encoded bytes that a program has read ahead of its scan from disk: a few milliseconds of a fast disk.
pub const READ_AHEAD_BYTES: usize = 8 << 20;

/// Bytes of a filter from which its judgements are not kept: each new filter is compared with the known ones.
pub const JUDGED_FILTER_BYTES_MAX: usize = 4 << 10;

/// Filters of a tenant's programs of which that is kept: those of a few dashboards.
pub const JUDGED_FILTERS_MAX: usize = 64;

/// Bytes of which rows pass, of all filters of a tenant: a bit for each of some hundred million rows.
pub const JUDGED_BYTES_MAX: usize = 32 << 20;

/// The part of the memory for work that they may take, where that is less.
pub const JUDGED_PART: usize = 64;

/// Reciprocal of the share of a pool, and of a tenant's quota of it, that pinned tables may take: the rest is for
/// cached values and new rows.
pub const PINNED_PART: u64 = 2;

/// Threads that read values from disk: as many reads of some hundred KiB at once keep a fast disk busy.
pub const READERS: usize = 4;

/// Time limit of a command for a master key: a key service on the network answers within seconds, and a person who
/// starts a node should not wait longer in silence.
pub const KEY_COMMAND_WAIT_MAX: Duration = Duration::from_secs(30);

/// Column chunks of a data directory that are remembered to be read first after a start, 8 bytes each.
pub const USED_CHUNKS_MAX: usize = 1 << 20;

/// Wrapped keys of one data directory: one for each of many tables, found by going through them.
pub const WRAPPED_KEYS_MAX: usize = 64 << 10;

/// Connections of clients of the Redis protocol at once, beside [`CONNECTIONS_MAX`]: services keep many of them.
pub const RESP_CONNECTIONS_MAX: usize = 10_000;

/// Bytes of requests that are read from a client of the Redis protocol while its long command waits for its turn:
/// without reading, a disconnected client is not noticed. They count for the tenant; further ones wait at the client.
pub const RESP_WAITING_BYTES_MAX: usize = 1 << 20;

/// Bytes of the name of a connection of the Redis protocol, which Redis does not limit: all clients of a tenant are
/// listed in one reply.
pub const RESP_CLIENT_NAME_BYTES_MAX: usize = 4096;

/// Bytes of replies to a client of the Redis protocol that are in memory at once: the longest value, and others.
pub const RESP_OUTPUT_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + 2 * RESP_REPLIES_BYTES_MAX;

/// Bytes of requests that are read from a client of the Redis protocol while it does not read its replies, beyond the
/// longest value: many clients write a whole pipeline before they read. They count for the tenant. A client that sends
/// more gets an error and is disconnected.
pub const RESP_AHEAD_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + (64 << 20);

/// Bytes of replies after which they are sent before the next command of a client is carried out.
pub const RESP_REPLIES_BYTES_MAX: usize = 1 << 20;

/// Bytes of the longest key of a key-value space.
pub const KV_KEY_BYTES_MAX: usize = 65_535;

/// Work of a command that is carried out where requests are read, among those of all tenants: bytes that it reads or
/// writes, where an argument counts as 256. It takes about 100 us. A command that is more is carried out elsewhere.
pub const KV_STEP_WORK_MAX: usize = 256 << 10;

/// Work of all commands of one EXEC, as for [`KV_STEP_WORK_MAX`], beside that of the largest: other clients of the
/// tenant wait for it as a whole, about a second.
pub const KV_EXEC_WORK_MAX: usize = 4 << 30;

/// Threads for long commands of all tenants together: one of a tenant runs at a time, and the system shares the
/// processors among the threads. More tenants take turns.
pub const KV_LONG_THREADS_MAX: usize = 32;

/// Bytes of a pattern of keys: as many as a key has.
pub const KV_PATTERN_BYTES_MAX: usize = KV_KEY_BYTES_MAX;

/// Elements (characters and classes) of a pattern in long segments between stars. A byte of a key that is matched costs
/// a word of work for each 64 of them.
pub const KV_PATTERN_ELEMENTS_MAX: usize = 1024;

/// Bytes of the longest value of a key-value space, as in Redis.
pub const KV_VALUE_BYTES_MAX: usize = 512 << 20;

/// Bytes of one entry of a key-value space: its key, its value, and twice the bytes of a key for everything else.
pub const ENTRY_BYTES_MAX: usize = KV_VALUE_BYTES_MAX + 2 * (KV_KEY_BYTES_MAX + 1);

/// Bytes of the commands that a client of key-value spaces may have queued behind `MULTI`.
pub const KV_QUEUE_BYTES_MAX: usize = 64 << 20;

/// Bytes of a condition on the entries of a key-value space: a list of some thousand keys.
pub const KV_PREDICATE_BYTES_MAX: usize = 64 << 10;

/// Parentheses in one another of such a condition, each of which may become two levels of an expression.
pub const KV_PREDICATE_DEPTH_MAX: usize = 32;

/// Conditions and listed constants of such a condition: as many as its bytes have room for, nearly.
pub const KV_PREDICATE_NODES_MAX: usize = 8192;

/// Patterns of such a condition: the largest one that is accepted takes 30 ms to compile, which is done where a command
/// runs.
pub const KV_PREDICATE_PATTERNS_MAX: usize = 4;

/// Bytes of compiled patterns of a condition that a connection keeps for the next command; with more, a condition is
/// compiled each time.
pub const KV_PREDICATE_KEPT_BYTES_MAX: usize = 1 << 20;
/// Bytes of the effects of a command in one record of the log of keys; larger ones are split into several records.
pub const KV_RECORD_BYTES_MAX: usize = 1 << 20;

/// Commands in a tenant's log of slow ones at most, arguments of each, and bytes of an argument: as in Redis.
pub const SLOW_LOG_ENTRIES_MAX: usize = 128;
/// See [`SLOW_LOG_ENTRIES_MAX`].
pub const SLOW_LOG_ARGUMENTS_MAX: usize = 32;
/// See [`SLOW_LOG_ENTRIES_MAX`].
pub const SLOW_LOG_ARGUMENT_BYTES_MAX: usize = 128;

/// Milliseconds that `CLIENT PAUSE` may pause the clients of a tenant: no client of the tenant can end a pause of all
/// commands early.
pub const CLIENT_PAUSE_MS_MAX: u64 = 600_000;

/// Keys that a client of key-value spaces may watch at once.
pub const KV_WATCHED_MAX: usize = 4096;

/// Spaces with names of a tenant.
pub const KV_SPACES_MAX: usize = 1000;

/// Keys of one shard that are processed, with the shard locked, when a space is created or dropped.
pub const KV_MOVED_MAX: usize = 1 << 20;

/// Bytes of the values that get another space then.
pub const KV_MOVED_BYTES_MAX: usize = 256 << 20;

/// Bytes of the longest value that is compressed: bounds the work of a command or a step of a scan on one value.
pub const KV_PACKED_BYTES_MAX: usize = 32 << 10;

/// Bytes of the dictionary of a space whose values are compressed.
pub const KV_DICTIONARY_BYTES_MAX: usize = 16 << 10;

/// Keys that one UPDATE or DELETE changes: others wait meanwhile.
pub const KV_CHANGED_MAX: usize = 50_000;

/// Statements that read keys of a space at moments of their own; beyond, the oldest ends.
pub const KV_CUTS_MAX: usize = 64;

/// Keys that a program over a space of keys looks up; one that names more reads the whole space.
pub const KV_LOOKUPS_MAX: usize = 1000;

/// Bytes of the configuration file of the program: a thousand times the size of its settings.
pub const CONFIG_FILE_BYTES_MAX: u64 = 64 << 10;

/// Entries of the shell's history; the oldest go first.
pub const HISTORY_ENTRIES_MAX: usize = 2000;

/// Bytes of an entry of the shell's history: larger ones were pasted or generated, and are not kept.
pub const HISTORY_ENTRY_BYTES_MAX: usize = 16 << 10;

/// Bytes of a file with the shell's history that is read: twice as many as all entries have, for those that are
/// escaped.
pub const HISTORY_FILE_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a result that the shell takes from a node for its pager, before the first row is shown. The result of a
/// user who reads slowly is then in the shell's memory rather than at the node; larger results are cut.
pub const PAGED_BYTES_MAX: usize = 256 << 20;

/// Scripts that read scripts, at most so deep.
pub const SCRIPT_DEPTH_MAX: usize = 16;

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
