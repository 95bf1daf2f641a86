//! Every limit on what comes from outside, in one place, each with its reason: what a peer, a file or a user may send
//! or ask for, and what of our memory and time that may take. The sizes that several crates share, such as those of
//! pages and row groups, stand here too.
//!
//! Not here: tuning constants, which decide how something is done and never whether. They stand beside their algorithm
//! and cite the measurement or paper that they come from. Nor numbers that a format or protocol fixes.
//!
//! Invariant: a value that crosses a limit is refused with an error that names the limit; nothing but text for people
//! is cut off silently. The relations between limits are asserted at compile time at the end of this file.

/// Bytes of one page of the pool: the size of an x86-64 huge page, and of Farview's MMU (section 4.3).
pub const PAGE_BYTES: usize = 2 << 20;

/// Values of one packed block, the unit of the FastLanes layout.
pub const BLOCK_ROWS: usize = 1024;

/// Rows of one row group: the unit of zone maps, and the most that a worker takes at once. 64 blocks: large
/// enough that the cost of a morsel disappears, small enough that two workers stay busy on a million rows.
pub const ROW_GROUP_ROWS: usize = 64 * BLOCK_ROWS;

/// Bytes of plain values, strings included, from which on a row group is cut before it has all its rows (it has one
/// row at least), so that what waits to be encoded stays within bounds: 4 KiB a row, as 512 columns of 64 bits have.
pub const ROW_GROUP_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Bytes that rows may hold beyond twice their plain size while they wait for their row group to fill: small
/// batches have a header for each column and buffer, and strings may lie in buffers of which they are a small part.
pub const PLAIN_EXCESS_BYTES_MAX: usize = 1 << 20;

/// Rows from which on a row group is large enough: it is not merged with others any more, and its rows are profiled. Two
/// smaller ones always fit one row group.
pub const LARGE_GROUP_ROWS: usize = ROW_GROUP_ROWS / 2;

/// Bytes of plain values from which on a row group is large enough, however few rows it has; a merge has at most twice
/// as many in hand, and those of one column at a time decoded.
pub const LARGE_GROUP_BYTES: usize = 16 << 20;

/// Small row groups that are left alone at the end of a table: a scan takes some microseconds for each.
pub const SMALL_GROUPS_MAX: usize = 8;

/// How many times the rows behind it a small row group may have and be merged with them. The more, the fewer row groups
/// there are and the more often a row is written: with 4 at most 7 sizes below a large one, and some 30 times.
pub const MERGE_RATIO: usize = 4;

/// Small row groups from which on each append does a step of a merge itself, so that they do not become ever more where
/// there is always something that comes before work in the background.
pub const MERGES_BEHIND_MAX: usize = 64;

/// Rows of an append that are encoded together with those of other appends that come at the same time. More are worth a
/// row group of their own, which is encoded as they come in.
pub const SMALL_APPEND_ROWS: usize = 1024;

/// Bytes that these rows may hold.
pub const SMALL_APPEND_BYTES: usize = 1 << 20;

/// Rows that the operators work on at a time, if these are cheap: a handful of 64-bit columns of it stay in
/// the L2 cache.
pub const BATCH_ROWS: usize = 8 * BLOCK_ROWS;

/// Nanoseconds that one step of a worker takes, about: a client of small queries waits for a step or two of the
/// others, and what is done once for each step takes a few microseconds.
pub const STEP_NS: u64 = 1_000_000;

/// Bytes of the largest frame on the wire. Larger frames leave the CPU caches and measured 1.3 to 1.6
/// times slower on loopback.
pub const FRAME_BYTES_MAX: usize = 512 << 10;

/// Bytes that a peer may have under way on one stream before it must wait for credit.
pub const STREAM_WINDOW_BYTES: usize = 4 << 20;

/// Bytes of one whole message put together from frames (a record batch with long strings, a plan). Also those of a
/// batch when its buffers are inflated, and those of its strings when each row's is counted, however many rows
/// share one: that is what reading, checking and encoding the batch may cost.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Rows of one record batch on the wire. A batch without columns has no bytes that would bound them, yet costs
/// its reader something for each row group that they fill: 256 at most.
pub const MESSAGE_ROWS_MAX: usize = 256 * ROW_GROUP_ROWS;

/// Buffers of one record batch on the wire: two for each column, and for the bytes behind views as many as a
/// writer makes that gives each at least 16 KiB. A reader keeps some 50 bytes for each, however short it is.
pub const MESSAGE_BUFFERS_MAX: usize = 64 << 10;

/// Bytes of incomplete messages on all streams of one connection together: the largest message, and a window for each
/// stream.
pub const INCOMPLETE_BYTES_MAX: usize = MESSAGE_BYTES_MAX + STREAMS_PER_CONNECTION_MAX * STREAM_WINDOW_BYTES;

/// Bytes of credit that a peer may grant at once: more is an attempt to overflow the counter.
pub const CREDIT_BYTES_MAX: u64 = 1 << 40;

/// Bytes of one encoded plan.
pub const PLAN_BYTES_MAX: usize = 4 << 20;

/// Relations of a plan one upon another. Engines stack a few; each takes a frame of the decoder's stack.
pub const PLAN_RELATIONS_MAX: usize = 64;

/// Messages of a plan within one another up to which its size in memory is computed: more than the levels of relations
/// and expressions that are decoded.
pub const PLAN_LEVELS_MAX: usize = 1024;

/// Functions, and types, that a plan may declare: several times as many as there are.
pub const PLAN_DECLARATIONS_MAX: usize = 1024;

/// Nested levels of an expression: deeper ones would overflow the stack of a worker.
pub const EXPR_DEPTH_MAX: usize = 128;

/// Bytes that a node of an expression counts for, beside its constants: as it is decoded, once more as it is
/// compiled with its types, columns and arrays, and what a predicate adds.
pub const EXPR_NODE_BYTES: usize = 256;

/// Bytes of all expressions of one program together, constants included, however often a plan refers to them: a
/// few times what a plan can say. A program is held in a handful of forms, none much larger than that.
pub const EXPR_BYTES_MAX: usize = 4 * PLAN_BYTES_MAX;

/// Bytes of expressions that are made while a plan is decoded: those of the program, and as many again for columns that
/// projections carry along and drop.
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

/// Columns of a relation of a plan: a projection gives those of its input and its own before some of them are chosen.
pub const PLAN_COLUMNS_MAX: usize = 2 * COLUMNS_MAX;

/// Columns of one state of moments: the products of all pairs of 64-bit integers then take 67 MB.
pub const MOMENT_COLUMNS_MAX: usize = 2048;

/// Rows that a state of moments counts: sums of as many products fit its widest numbers.
pub const MOMENT_ROWS_MAX: u64 = 1 << 62;

/// Bytes of a table, column or tenant name.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of one string or binary value.
pub const STRING_BYTES_MAX: usize = 64 << 20;

/// Bytes of a LIKE pattern or a regular expression. A class of Unicode takes some 6 KiB while a regular expression
/// is parsed and two bytes in its text: 4 KiB of them take 12 MiB, for a moment.
pub const PATTERN_BYTES_MAX: usize = 4 << 10;

/// Bytes of a regular expression once it is compiled: some hundred Unicode classes, and less than the engines
/// above allow, so that what is refused here can still run there. The form that reads backwards may take as many.
pub const REGEX_BYTES_MAX: usize = 4 << 20;

/// Bytes of all patterns of one program once they are compiled, a pattern that is used often counting once:
/// more than a hundred usual ones.
pub const PATTERNS_BYTES_MAX: usize = 64 << 20;

/// Bytes of the states that a thread keeps of a pattern while it matches; with fewer, large patterns work them
/// out again and again.
pub const PATTERN_CACHE_BYTES_MAX: usize = 256 << 10;

/// Patterns of one filter that run over compressed strings by an automaton of their own; it takes some
/// milliseconds to make one. Others run over the strings, decompressed.
pub const AUTOMATA_MAX: usize = 16;

/// Distinct integer columns, constants and operations of a program that are computed on 64-bit lanes, each of which
/// a worker holds for a batch, in 64 KiB. What is beyond is computed by the general evaluator.
pub const LANES_MAX: usize = 512;

/// Characters of what an answer or an error shows of an expression: it is for people to read.
pub const DETAIL_CHARS_MAX: usize = 400;

/// Bytes of the message of an error.
pub const ERROR_BYTES_MAX: usize = 4 << 10;

/// Bytes of memory for work, beside the pool, if a node is not told otherwise.
pub const WORK_BYTES_DEFAULT: usize = 8 << 30;

/// The least memory for work that a node can be given: it has to read messages, hold a row group of each load in plain
/// form, and run a program or two.
pub const WORK_BYTES_MIN: usize = 64 << 20;

/// The part of the memory for work that the groups of one program may take. What does not fit leaves in parts, which
/// the client merges.
pub const GROUPS_PART: usize = 2;

/// Bytes for the groups of one program, if a node is not told otherwise.
pub const GROUP_BYTES_MAX: usize = WORK_BYTES_DEFAULT / GROUPS_PART;

/// Reservations of memory for work that may wait at once. Each is a request of a client, or its connection.
pub const WORK_WAITERS_MAX: usize = 4096;

/// Milliseconds that a program, or a client that sends, may wait for memory that others use.
pub const WORK_WAIT_MS_MAX: u64 = 30_000;

/// Rows of a program that has an order: those of one row group. With more a sort is most of the work, each
/// worker holds as many, and the engine, which has more memory for it, sorts as well.
pub const TOP_ROWS_MAX: usize = ROW_GROUP_ROWS;

/// Columns of an order. Engines drop those that others imply; beyond a few none decides anything.
pub const SORT_KEYS_MAX: usize = 64;

/// Bytes of memory that the results of remote queries may take in pages that are used again, held by a result or
/// waiting for the next one: twice the largest result of the benchmarks. What goes beyond is the allocator's.
pub const RESULT_BYTES_MAX: usize = 2 << 30;

/// Milliseconds without a remote query after which pages that no result holds go back to the system: as long as a
/// person takes to ask the next question.
pub const RESULT_IDLE_MS: u64 = 30_000;

/// Requests that one connection may have open at once.
pub const STREAMS_PER_CONNECTION_MAX: usize = 64;

/// Connections of clients that a node serves at once.
pub const CONNECTIONS_MAX: usize = 1024;

/// Connections that have not said hello yet, beside those of clients: as many may come within a round trip to a
/// distant client, whose place is taken by others only if that many come behind it in this time.
pub const GREETINGS_MAX: usize = 256;

/// Tables of one tenant.
pub const TABLES_PER_TENANT_MAX: usize = 64 << 10;

/// Views of one tenant: names that people and tools keep in mind. A list of them is one message of some 1 MiB.
pub const VIEWS_PER_TENANT_MAX: usize = 4 << 10;

/// Bytes of a view's text: several times the longest query of TPC-DS. Each client that reads the view parses it.
pub const VIEW_BYTES_MAX: usize = 64 << 10;

/// Words and signs of its text. One in two may put what stands before it a level deeper (`1 + 1 + …`), and not all of the
/// parser walks such expressions without recursion.
pub const VIEW_TOKENS_MAX: usize = 2_048;

/// Levels of a statement: brackets and queries within one another, and operators in a row, which are as deep. Half of what
/// planning takes on the stack of a thread that an engine or a test starts, 2 MiB.
pub const SQL_DEPTH_MAX: usize = 500;

/// Parts of the expressions of a statement, once names that stand for expressions are written out: each of them may
/// double what comes before.
pub const SQL_NODES_MAX: usize = 100_000;

/// Names of expressions of one statement that are used again. The statement is planned once for each.
pub const SQL_NAMES_REUSED_MAX: usize = 64;

/// Views that read one another, from the one that a statement names to the last: as many as people still follow. Each is
/// a step of recursion.
pub const VIEW_DEPTH_MAX: usize = 16;

/// Views that the plan of one may need: a node that invents one behind each name comes to an end.
pub const VIEWS_READ_MAX: usize = 256;

/// Operators of the plan of a view and all that it reads. Views that each read another one twice are as large as two to
/// the power of their depth.
pub const VIEW_OPERATORS_MAX: usize = 4 << 10;

/// Memory for work that a view takes besides its name and text: an entry of a map, and its share of that.
pub const VIEW_OVERHEAD_BYTES: usize = 256;

/// Result batches that wait for a slow client before its query stops getting workers.
pub const QUEUED_BATCHES_MAX: usize = 8;

/// Strings in all dictionaries of a column up to which they are numbered for the whole table, so that groups are
/// told apart by the numbers: that takes one or two milliseconds, whether many rows are grouped or few.
pub const TEXTS_NUMBERED_MAX: usize = 32 << 10;

/// Bytes of those dictionaries: a program holds their strings two or three times, beside the memory for groups.
pub const TEXTS_NUMBERED_BYTES_MAX: usize = 8 << 20;

/// Distinct values of a column up to which the exact count is kept with the table's statistics.
pub const DISTINCT_TRACKED_MAX: usize = 64 << 10;

/// Bytes of those values, where they are strings: as many of 80 bytes. Of longer ones there is an estimate.
pub const DISTINCT_TRACKED_BYTES_MAX: usize = 8 << 20;

/// Bytes of those values of all columns of one table. They lie outside the pool: where they take more, the columns
/// that take most are only estimated.
pub const TABLE_DISTINCT_BYTES_MAX: usize = 64 << 20;

/// Hash bits that one item has for all its sketches: those of Murmur3 x64 128. Rows of counters that would
/// share bits would collide together, and all but one of them be of no use.
pub const SKETCH_HASH_BITS: u32 = 128;

/// Bits of the number of a HyperLogLog register: from 16 registers, below which the estimate has no known
/// error, to a quarter of a million, which err by 0.2 %.
pub const DISTINCT_PRECISION: std::ops::RangeInclusive<u8> = 4..=18;

/// Bits of the number of a counter in a row: the range of the thesis (table 4.3). At 16, six rows of
/// counters with signs take 7 MiB, more than a core's cache holds.
pub const COUNTERS_PRECISION: std::ops::RangeInclusive<u8> = 4..=16;

/// Frequent values that a sketch keeps beside its counters: more are not more frequent than the noise.
pub const SKETCH_TOP_MAX: u32 = 1024;

/// Size of the highest level of KLL, of which a sketch keeps about three times as many values: from ranks that are off
/// by a tenth to some that are off by less than a thousandth, in 100 KiB.
pub const SKETCH_QUANTILES: std::ops::RangeInclusive<u16> = 8..=4096;

/// Bytes of a value that a sketch keeps as one of the frequent ones; a longer one is not among them. All of
/// them together are as many as a frame takes a few of.
pub const SKETCH_VALUE_BYTES_MAX: usize = 1 << 10;

/// Rows that one sketch may count: squares of their number fit 128 bits.
pub const SKETCH_ROWS_MAX: u64 = 1 << 62;

/// Numeric columns of a table whose moments are gathered: the products of 64 columns are
/// 2 080, which cost about as much as encoding the columns.
pub const TAP_MOMENT_COLUMNS_MAX: usize = 64;

/// Columns of a table up to which everything is gathered; of wider ones only the number
/// of distinct values. A column takes some 100 KiB at each worker, and half as much in the pool.
pub const TAP_COLUMNS_MAX: usize = 128;

/// Parts of one profile, each of which holds what was found out about every column: as many workers make it at once.
pub const PROFILE_PARTS_MAX: usize = 8;

/// Requests of one tenant for profiles that are not there yet which a node works on at once; its others wait in line,
/// or all would hold parts of profiles. More than one, so that a small table need not wait for a large one.
pub const PROFILES_AWAITED_MAX: usize = 4;

/// Appends whose profiles may wait for those before them; the next one works on these before it is published, so that
/// a stream of small appends does not get ahead of its statistics without end.
pub const TAPS_WAITING_MAX: usize = 64;

/// Bins of a column's histogram that go with the description of its table: a bin is less than a hundredth of
/// the values of an even spread, and all take a few hundred bytes.
pub const SPREAD_BINS_MAX: usize = 128;

/// Values that divide a column's into equal shares and go with the description of its table: the shares are then no larger
/// than what a sample that a profile can afford is off by, about a hundredth.
pub const SPREAD_QUANTILES_MAX: usize = 63;

/// Frequent values of a column that go with the description of its table: all that a tap keeps.
pub const SPREAD_FREQUENT_MAX: usize = 16;

/// Bytes of a value that goes with the description of its table as frequent: longer ones are seldom compared.
pub const SPREAD_VALUE_BYTES_MAX: usize = 64;

/// Bytes of an encoded spread: twice those of as many and as long values as it may have, of the counts of its bins
/// as LEB128, and of its quantiles.
pub const SPREAD_BYTES_MAX: usize = 2
    * (SPREAD_FREQUENT_MAX * (SPREAD_VALUE_BYTES_MAX + 16) + SPREAD_BINS_MAX * 10 + SPREAD_QUANTILES_MAX * 8);

/// Bytes of the file that says who may connect: some twenty thousand tokens. It is read by those who run the node only,
/// but one that names a device by mistake must not fill the memory.
pub const ACCESS_FILE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a file with a token: more than a hello has room for.
pub const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a file with certificates, or with a key: twice what a system trusts, which is the most that anybody gives.
pub const PEM_BYTES_MAX: u64 = 1 << 20;

/// Programs of a tenant that may wait while as many run as it may have at once, unless the operator says otherwise.
pub const PROGRAMS_WAITING_DEFAULT: usize = 64;

/// Milliseconds that a program may wait for its turn among those of its tenant: as long as for memory, and less than
/// clients wait for an answer.
pub const PROGRAM_WAIT_MS_MAX: u64 = 30_000;

/// Milliseconds after which a client that was told to come back later may do so: at least a round trip, at most what a
/// person waits without a word.
pub const RETRY_AFTER_MS: std::ops::RangeInclusive<u64> = 100..=10_000;

/// Times that a client comes back when it is told to, before whoever asked hears of it.
pub const RETRIES_MAX: u32 = 5;

/// Milliseconds a peer may take to say hello, and to accept a connection.
pub const HANDSHAKE_MS_MAX: u64 = 10_000;

/// Characters of what a client says it is, which lists of connections show; more are cut off.
pub const CLIENT_CHARS_MAX: usize = 64;

/// Requests for encryption that a PostgreSQL client may make before it is told that it has come to the wrong port: one
/// for TLS and one for GSSAPI.
pub const POSTGRES_REQUESTS_MAX: usize = 2;

/// Programs in one list of queries: each has a stream of a connection.
pub const LISTED_QUERIES_MAX: usize = CONNECTIONS_MAX * STREAMS_PER_CONNECTION_MAX;

/// Columns of all tables in one list of tables: more than the message has room for, unless it is made to take much
/// memory.
pub const LISTED_COLUMNS_MAX: usize = 1 << 20;

/// Prepared programs that one connection may keep: those of some statements of many joins each. Beyond, the one
/// that was used longest ago is forgotten.
pub const HANDLES_PER_CONNECTION_MAX: usize = 256;

/// Bytes of those programs together: of their plans, and of expressions and patterns as they were decoded and compiled.
/// One of the largest fits.
pub const HANDLE_BYTES_MAX: usize = PLAN_BYTES_MAX + 2 * (EXPR_BYTES_MAX + PATTERNS_BYTES_MAX);

/// Outcomes of loads that a node remembers for one tenant, so that a client whose connection broke hears of its own: those
/// of several seconds of a thousand inserts a second. Each takes [`LOAD_OUTCOME_BYTES`] of the memory for work.
pub const LOAD_OUTCOMES_MAX: usize = 16 << 10;

/// Bytes that an outcome of a load counts for while it is remembered, beside the text of an error.
pub const LOAD_OUTCOME_BYTES: usize = 256;

/// Bytes of the message of an error, and of its advice, that are remembered with an outcome; more are cut off.
pub const LOAD_OUTCOME_TEXT_BYTES_MAX: usize = 1 << 10;

/// Milliseconds that it is remembered, if others do not push it out: longer than a client tries to connect again.
pub const LOAD_OUTCOME_MS: u64 = 600_000;

/// Requests that may wait for the outcome of one load: its client asks once, and perhaps once more on another connection.
pub const LOAD_OUTCOME_WAITERS_MAX: usize = 64;

/// Bytes of a load that a client keeps until it knows the outcome, so that it can send them again when its connection
/// breaks: as many as may be under way without credit.
pub const LOAD_REPEAT_BYTES_MAX: usize = STREAM_WINDOW_BYTES;

/// Times that a load is sent whose connection breaks, and its outcome asked for, before whoever asked hears of it.
pub const LOAD_ATTEMPTS_MAX: usize = 3;

/// Answers of one program, of which each operator has one.
pub const ANSWERS_MAX: usize = 64;

/// Bytes of messages from one node that wait at a client, complete or not: four of the largest, or the windows of
/// a few connections full of results.
pub const UNREAD_BYTES_MAX: usize = 1 << 30;

/// Milliseconds without a byte from a peer after which it is sent a `Ping`, if something is expected of it. A
/// small multiple of the longest pause of a healthy peer on a busy machine.
pub const PING_AFTER_MS: u64 = 15_000;

/// Milliseconds without a byte from a client after which a node sends it a `Ping`: a client may well have nothing
/// to say, so there is no hurry, but what it left behind when it vanished holds memory.
pub const CLIENT_PING_AFTER_MS: u64 = 60_000;

/// Milliseconds that may then pass without a byte from the peer before the connection is given up: several
/// retransmissions of a lost packet, and less than a person waits.
pub const PONG_MS_MAX: u64 = 30_000;

/// Milliseconds that rows of a result may wait for credit, or for room on the connection, before its program is
/// ended: as long as a person who reads page by page may think about one.
pub const UNREAD_MS_MAX: u64 = 600_000;

/// Values that a subquery in the condition of a change may give. They are sent to the pool as a list, within the bound
/// of a plan's size.
pub const CHANGE_VALUES_MAX: usize = 10_000;

/// How often a change is planned again because others changed its table meanwhile.
pub const CHANGE_REPETITIONS_MAX: usize = 16;

/// Bytes of the first line of a file beyond which it is not taken for CSV.
pub const CSV_HEADER_BYTES_MAX: u64 = 1 << 20;

/// Bytes of one record of a CSV or JSON file: those of the longest value. A file that is compressed may have any number of
/// records, which are read one after the other; this, and a batch, is what is held of it.
pub const RECORD_BYTES_MAX: usize = STRING_BYTES_MAX;

/// Texts that stand for NULL in one file: each field is compared with all of them.
pub const NULL_TEXTS_MAX: usize = 64;

/// Files of one table: each is opened, and its beginning read, before the first row.
pub const FILES_MAX: usize = 64 << 10;

/// Alternatives of all `{a,b}` of one pattern multiplied: each is a pattern of its own.
pub const PATTERN_ALTERNATIVES_MAX: usize = 1024;

/// Zeros behind the first bytes of an Arrow IPC file: its buffers are aligned to as many bytes.
pub const IPC_PADDING_BYTES_MAX: usize = 64;

/// Bytes that one compressed buffer of an Arrow IPC file may have uncompressed: more than arrays with 32-bit offsets can
/// have.
pub const IPC_BUFFER_BYTES_MAX: i64 = 4 << 30;

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
const _: () = assert!(
    STRING_BYTES_MAX <= ROW_GROUP_BYTES_MAX && DISTINCT_TRACKED_BYTES_MAX <= TABLE_DISTINCT_BYTES_MAX
);
const _: () = assert!(PLAN_BYTES_MAX <= EXPR_BYTES_MAX && REGEX_BYTES_MAX <= PATTERNS_BYTES_MAX);
const _: () = assert!(SORT_KEYS_MAX <= COLUMNS_MAX);
const _: () = assert!(TAP_COLUMNS_MAX <= COLUMNS_MAX && TAP_MOMENT_COLUMNS_MAX <= TAP_COLUMNS_MAX);
const _: () = assert!(MOMENT_COLUMNS_MAX <= COLUMNS_MAX && COLUMNS_MAX <= LISTED_COLUMNS_MAX);
const _: () = assert!(PAGE_BYTES.is_power_of_two() && PAGE_BYTES <= RESULT_BYTES_MAX);
const _: () = assert!(ROW_GROUP_ROWS <= u32::MAX as usize);
