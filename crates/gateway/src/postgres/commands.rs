//! Statements that the session carries out itself: transactions, settings, prepared statements and cursors in SQL. All
//! others go to the engine.
//!
//! These statements have a grammar of keywords, names and values, which is read here token by token.

use farpool_postgres::copies::CopyOptions;
use farpool_postgres::failure::{Failure, code};
use farpool_sql::{Piece, PieceKind, sql_pieces};

mod copy;

/// A statement, by who carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing but white space and comments.
    Empty,
    /// BEGIN and START TRANSACTION.
    Begin(Modes),
    /// COMMIT and END.
    Commit,
    /// ROLLBACK and ABORT.
    Rollback,
    /// SAVEPOINT.
    Savepoint(String),
    /// RELEASE.
    Release(String),
    /// ROLLBACK TO.
    RollbackTo(String),
    /// SET TRANSACTION; with `SESSION CHARACTERISTICS`, of later transactions.
    SetTransaction { modes: Modes, of_session: bool },
    /// SET and RESET of one setting.
    Set { name: String, value: Option<String>, is_local: bool },
    /// RESET ALL.
    ResetAll,
    /// SHOW of one setting.
    Show(String),
    /// SHOW ALL.
    ShowAll,
    /// DISCARD of what the session has.
    Discard(Discarded),
    /// DEALLOCATE; of all without a name.
    Deallocate(Option<String>),
    /// PREPARE: the name, the types as they are written, and the statement.
    Prepare { name: String, types: Vec<String>, text: String },
    /// EXECUTE: the name, and the values as they are written.
    Execute { name: String, values: Vec<String> },
    /// DECLARE of a cursor for a query.
    Declare { name: String, is_binary: bool, is_held: bool, text: String },
    /// FETCH: rows of a cursor.
    Fetch { name: String, direction: Direction },
    /// MOVE: rows of a cursor, which are not returned.
    Move { name: String, direction: Direction },
    /// CLOSE of a cursor; of all without a name.
    Close(Option<String>),
    /// COPY of the rows of a query to the client.
    CopyOut { query: String, options: CopyOptions },
    /// COPY of rows of the client into these columns of a table; into all without any.
    CopyIn { table: Vec<String>, columns: Vec<String>, options: CopyOptions },
    /// LISTEN, UNLISTEN and other statements that have no effect here: their tags.
    Nothing(&'static str),
    /// A statement of the engine.
    Engine(Kind),
}

/// Things that DISCARD drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// Everything.
    All,
    /// Cached plans, of which sessions have none of their own.
    Plans,
    /// Temporary tables and sequences, which there are none of.
    Nothing(&'static str),
}

/// The modes of a transaction; `None` for what was not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// The isolation level, in lower case.
    pub isolation: Option<String>,
    /// Whether the transaction only reads.
    pub read_only: Option<bool>,
}

/// Rows that FETCH and MOVE go over. Cursors go forward only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This number of rows.
    Forward(u64),
    /// All rows.
    All,
}

/// A statement of the engine, by the tag that tells its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Returns rows, of which the tag tells the number.
    Rows,
    /// Returns rows, of which the tag does not tell the number: EXPLAIN.
    Explain,
    /// Changes rows, and tells their number: the tag in front of it.
    Changes(&'static str),
    /// CREATE TABLE AS, which tells its number of rows as if it had returned them.
    CreateTableAs,
    /// Changes something else: the tag.
    Other(&'static str),
    /// A statement that sessions of this protocol do not do.
    Refused,
}

impl Kind {
    /// Returns whether the statement returns rows.
    pub fn returns_rows(self) -> bool {
        matches!(self, Kind::Rows | Kind::Explain)
    }
}

/// Tags of statements of the engine by their first words.
const TAGS: &[(&[&str], Kind)] = &[
    (&["insert"], Kind::Changes("INSERT 0")),
    (&["update"], Kind::Changes("UPDATE")),
    (&["delete"], Kind::Changes("DELETE")),
    (&["truncate"], Kind::Other("TRUNCATE TABLE")),
    (&["explain"], Kind::Explain),
    (&["create", "schema"], Kind::Other("CREATE SCHEMA")),
    (&["create", "view"], Kind::Other("CREATE VIEW")),
    (&["create", "table"], Kind::Other("CREATE TABLE")),
    (&["drop", "table"], Kind::Other("DROP TABLE")),
    (&["drop", "view"], Kind::Other("DROP VIEW")),
    (&["drop", "schema"], Kind::Other("DROP SCHEMA")),
    (&["alter", "table"], Kind::Other("ALTER TABLE")),
    (&["alter", "view"], Kind::Other("ALTER VIEW")),
    // Of others, the engine would make something that all sessions share.
    (&["create"], Kind::Refused),
    (&["drop"], Kind::Refused),
    (&["alter"], Kind::Refused),
];

/// Words of statements that change something.
const CHANGING: &[&str] =
    &["insert", "update", "delete", "truncate", "create", "drop", "alter", "copy", "into", "merge"];

/// Words of CREATE in front of what is made.
const MODIFIERS: &[&str] =
    &["or", "replace", "temporary", "temp", "global", "local", "unlogged", "recursive", "external"];

/// Reads what a statement is.
///
/// # Errors
/// A syntax error in a statement of the session itself.
pub fn command(text: &str) -> Result<Command, Failure> {
    let pieces: Vec<Piece> =
        sql_pieces(text).into_iter().filter(|piece| piece.kind != PieceKind::Comment).collect();
    let mut words = Words { text, pieces: &pieces, at: 0 };
    if words.is_done() {
        return Ok(Command::Empty);
    }
    match own(&mut words)? {
        Some(command) => {
            words.end()?;
            Ok(command)
        }
        None => Ok(Command::Engine(kind(&Words { text, pieces: &pieces, at: 0 }))),
    }
}

fn kind(words: &Words<'_>) -> Kind {
    let (mut at, mut first) = (0, Vec::new());
    while first.len() < 2 {
        let Some(word) = words.word_at(at) else { break };
        at += 1;
        if first.is_empty() || !MODIFIERS.contains(&word.as_str()) {
            first.push(word);
        }
    }
    let begins =
        |tag: &[&str]| tag.len() <= first.len() && first.iter().zip(tag).all(|(word, tag)| word == tag);
    let kind = TAGS.iter().find(|(tag, _)| begins(tag)).map_or(Kind::Rows, |(_, kind)| *kind);
    let words_of = || (0..words.pieces.len()).filter_map(|at| words.word_at(at));
    let has = |wanted: &[&str]| words_of().any(|word| wanted.contains(&word.as_str()));
    match kind {
        Kind::Other(_) if first[0] == "create" && has(&["temp", "temporary"]) => Kind::Refused,
        // It would carry out what it explains.
        Kind::Explain if has(&["analyze", "analyse"]) && has(CHANGING) => Kind::Refused,
        Kind::Other("CREATE TABLE") if words_of().any(|word| word == "as") => Kind::CreateTableAs,
        kind => kind,
    }
}

fn own(words: &mut Words<'_>) -> Result<Option<Command>, Failure> {
    let Some(first) = words.word_at(0) else { return Ok(None) };
    words.at = 1;
    Ok(Some(match first.as_str() {
        "begin" => {
            words.skip_any(&["work", "transaction"]);
            Command::Begin(words.modes()?)
        }
        "start" => {
            words.expect("transaction")?;
            Command::Begin(words.modes()?)
        }
        "commit" | "end" => {
            words.skip_any(&["work", "transaction"]);
            words.no_chain()?;
            Command::Commit
        }
        "abort" => {
            words.skip_any(&["work", "transaction"]);
            words.no_chain()?;
            Command::Rollback
        }
        "rollback" => {
            words.skip_any(&["work", "transaction"]);
            match words.skip("to") {
                true => {
                    words.skip("savepoint");
                    Command::RollbackTo(words.name()?)
                }
                false => {
                    words.no_chain()?;
                    Command::Rollback
                }
            }
        }
        "savepoint" => Command::Savepoint(words.name()?),
        "release" => {
            words.skip("savepoint");
            Command::Release(words.name()?)
        }
        "set" => words.set()?,
        "reset" => match words.skip("all") {
            true => Command::ResetAll,
            false => Command::Set { name: words.setting()?, value: None, is_local: false },
        },
        "show" => {
            // The lists that the engine shows have names of their own.
            if words
                .word_at(1)
                .is_some_and(|word| ["tables", "columns", "functions"].contains(&word.as_str()))
            {
                return Ok(None);
            }
            match words.skip("all") {
                true => Command::ShowAll,
                false => Command::Show(words.setting()?),
            }
        }
        "discard" => {
            let what = words.take_word()?;
            Command::Discard(match what.as_str() {
                "all" => Discarded::All,
                "plans" => Discarded::Plans,
                "sequences" => Discarded::Nothing("DISCARD SEQUENCES"),
                "temp" | "temporary" => Discarded::Nothing("DISCARD TEMP"),
                other => return Err(words.syntax(other)),
            })
        }
        "deallocate" => {
            words.skip("prepare");
            Command::Deallocate(words.name_or_all()?)
        }
        "prepare" => words.prepare()?,
        "execute" => {
            let name = words.name()?;
            let values = if words.is_done() { Vec::new() } else { words.list()? };
            Command::Execute { name, values }
        }
        "declare" => words.declare()?,
        "fetch" => {
            let (direction, name) = words.direction()?;
            Command::Fetch { name, direction }
        }
        "move" => {
            let (direction, name) = words.direction()?;
            Command::Move { name, direction }
        }
        "close" => Command::Close(words.name_or_all()?),
        "copy" => words.copy()?,
        "unlisten" => words.nothing("UNLISTEN"),
        "analyze" => words.nothing("ANALYZE"),
        "vacuum" => words.nothing("VACUUM"),
        _ => return Ok(None),
    }))
}

/// The tokens of a statement, and how many of them are read.
struct Words<'a> {
    text: &'a str,
    pieces: &'a [Piece],
    at: usize,
}

impl Words<'_> {
    fn is_done(&self) -> bool {
        self.pieces[self.at..].iter().all(|piece| piece.kind == PieceKind::Semicolon)
    }

    fn end(&self) -> Result<(), Failure> {
        match self.is_done() {
            true => Ok(()),
            false => Err(self.syntax(self.shown(self.at))),
        }
    }

    fn shown(&self, at: usize) -> &str {
        self.pieces.get(at).map_or("end of input", |piece| &self.text[piece.range.clone()])
    }

    fn syntax(&self, near: &str) -> Failure {
        let near = farpool_model::brief(near);
        let failure = Failure::new(code::SYNTAX_ERROR, format!("syntax error at or near \"{near}\""));
        let at = self.pieces.get(self.at.min(self.pieces.len().saturating_sub(1)));
        let position = at.map(|piece| self.text[..piece.range.start].chars().count() + 1);
        Failure { position, ..failure }
    }

    /// Returns the word at a place in lower case; `None` if it is not a word without quotes.
    fn word_at(&self, at: usize) -> Option<String> {
        let piece = self.pieces.get(at).filter(|piece| piece.kind == PieceKind::Word)?;
        Some(self.text[piece.range.clone()].to_lowercase())
    }

    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.word_at(self.at).is_some_and(|next| next == word);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_any(&mut self, words: &[&str]) {
        words.iter().find(|word| self.skip(word));
    }

    fn skip_sign(&mut self, sign: &str) -> bool {
        let is_next = self.pieces.get(self.at).is_some_and(|piece| piece.kind == PieceKind::Sign)
            && self.shown(self.at) == sign;
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, word: &str) -> Result<(), Failure> {
        match self.skip(word) {
            true => Ok(()),
            false => Err(self.syntax(self.shown(self.at))),
        }
    }

    fn take_word(&mut self) -> Result<String, Failure> {
        let word = self.word_at(self.at).ok_or_else(|| self.syntax(self.shown(self.at)))?;
        self.at += 1;
        Ok(word)
    }

    /// Reads a name: a word in lower case, or what stands in double quotes.
    fn name(&mut self) -> Result<String, Failure> {
        let piece = self.pieces.get(self.at);
        if let Some(piece) = piece.filter(|piece| piece.kind == PieceKind::QuotedName) {
            let quoted = &self.text[piece.range.clone()];
            if let Some(name) = quoted.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
                self.at += 1;
                return Ok(name.replace("\"\"", "\""));
            }
        }
        self.take_word()
    }

    fn name_or_all(&mut self) -> Result<Option<String>, Failure> {
        match self.skip("all") {
            true => Ok(None),
            false => self.name().map(Some),
        }
    }

    /// Reads the name of a setting, which may have dots, or be of two words.
    fn setting(&mut self) -> Result<String, Failure> {
        for words in
            [&["time", "zone"][..], &["session", "authorization"], &["transaction", "isolation", "level"]]
        {
            let is_next =
                words.iter().zip(self.at..).all(|(word, at)| self.word_at(at).as_deref() == Some(*word));
            if is_next {
                self.at += words.len();
                return Ok(if words[0] == "session" {
                    "session_authorization".into()
                } else {
                    words.join(" ")
                });
            }
        }
        let mut name = self.name()?;
        while self.skip_sign(".") {
            name = format!("{name}.{}", self.name()?);
        }
        Ok(name)
    }

    fn no_chain(&mut self) -> Result<(), Failure> {
        if self.skip("and") {
            if self.skip("no") {
                return self.expect("chain");
            }
            let message = "AND CHAIN is not done";
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, message).hint("begin a transaction"));
        }
        Ok(())
    }

    fn modes(&mut self) -> Result<Modes, Failure> {
        let mut modes = Modes::default();
        while !self.is_done() {
            self.skip_sign(",");
            match self.take_word()?.as_str() {
                "isolation" => {
                    self.expect("level")?;
                    let first = self.take_word()?;
                    modes.isolation = Some(match first.as_str() {
                        "serializable" => first,
                        "repeatable" | "read" => format!("{first} {}", self.take_word()?),
                        _ => return Err(self.syntax(&first)),
                    });
                }
                "read" => match self.take_word()?.as_str() {
                    "only" => modes.read_only = Some(true),
                    "write" => modes.read_only = Some(false),
                    other => return Err(self.syntax(other)),
                },
                "not" => self.expect("deferrable")?,
                "deferrable" => {}
                other => return Err(self.syntax(other)),
            }
        }
        Ok(modes)
    }

    fn set(&mut self) -> Result<Command, Failure> {
        let is_local = self.skip("local");
        let is_of_session = !is_local
            && self.word_at(self.at).as_deref() == Some("session")
            && self.word_at(self.at + 1).as_deref() != Some("authorization");
        self.at += usize::from(is_of_session);
        if is_of_session && self.skip("characteristics") {
            self.expect("as")?;
            self.expect("transaction")?;
            return Ok(Command::SetTransaction { modes: self.modes()?, of_session: true });
        }
        if self.word_at(self.at).as_deref() == Some("transaction") {
            self.at += 1;
            return Ok(Command::SetTransaction { modes: self.modes()?, of_session: false });
        }
        let name = self.setting()?;
        let has_sign = self.skip_sign("=") || self.skip("to");
        if !has_sign && !["time zone", "names", "session_authorization"].contains(&name.as_str()) {
            return Err(self.syntax(self.shown(self.at)));
        }
        if self.skip("default") || (name == "time zone" && self.skip("local")) {
            return Ok(Command::Set { name, value: None, is_local });
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            if !self.skip_sign(",") {
                break;
            }
        }
        Ok(Command::Set { name, value: Some(values.join(", ")), is_local })
    }

    /// Reads a value of a setting: a text in quotes, a number with or without a sign, or words.
    fn value(&mut self) -> Result<String, Failure> {
        let sign = if self.skip_sign("-") { "-" } else { "" };
        let piece = self.pieces.get(self.at).ok_or_else(|| self.syntax("end of input"))?;
        let text = &self.text[piece.range.clone()];
        let value = match piece.kind {
            PieceKind::Text => {
                let (escaped, quoted) = match text.strip_prefix(['e', 'E']) {
                    Some(quoted) => (true, quoted),
                    None => (false, text),
                };
                let inner = quoted.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
                let inner = inner.ok_or_else(|| self.syntax(text))?.replace("''", "'");
                match escaped {
                    true => inner.replace("\\t", "\t").replace("\\n", "\n").replace("\\\\", "\\"),
                    false => inner,
                }
            }
            // Names of schemas keep their quotes, in which letters keep their case.
            PieceKind::QuotedName => text.to_string(),
            PieceKind::Number | PieceKind::Word => format!("{sign}{text}"),
            _ => return Err(self.syntax(text)),
        };
        self.at += 1;
        Ok(value)
    }

    fn prepare(&mut self) -> Result<Command, Failure> {
        let name = self.name()?;
        let types = if self.word_at(self.at).as_deref() == Some("as") { Vec::new() } else { self.list()? };
        self.expect("as")?;
        Ok(Command::Prepare { name, types, text: self.rest()? })
    }

    /// Reads a list in brackets, of which the items are kept as they are written.
    fn list(&mut self) -> Result<Vec<String>, Failure> {
        if !self.skip_sign("(") {
            return Err(self.syntax(self.shown(self.at)));
        }
        let (mut items, mut depth, mut start) = (Vec::new(), 0_usize, self.at);
        loop {
            let piece = self.pieces.get(self.at).ok_or_else(|| self.syntax("end of input"))?;
            let sign = if piece.kind == PieceKind::Sign { &self.text[piece.range.clone()] } else { "" };
            let ends_item = depth == 0 && (sign == "," || sign == ")");
            if ends_item && self.at > start {
                let (first, last) = (&self.pieces[start].range, &self.pieces[self.at - 1].range);
                items.push(self.text[first.start..last.end].to_string());
            } else if ends_item && (sign == "," || !items.is_empty()) {
                return Err(self.syntax(sign));
            }
            self.at += 1;
            match sign {
                "(" | "[" => depth += 1,
                ")" if depth == 0 => return Ok(items),
                ")" | "]" => depth = depth.saturating_sub(1),
                "," if depth == 0 => start = self.at,
                _ => {}
            }
        }
    }

    /// Takes the text of the rest of the statement.
    fn rest(&mut self) -> Result<String, Failure> {
        let first = self.pieces.get(self.at).ok_or_else(|| self.syntax("end of input"))?;
        let text = self.text[first.range.start..].trim_end().trim_end_matches(';').trim_end().to_string();
        self.at = self.pieces.len();
        Ok(text)
    }

    fn declare(&mut self) -> Result<Command, Failure> {
        let name = self.name()?;
        let (mut is_binary, mut is_held, mut scrolls) = (false, false, false);
        loop {
            match self.take_word()?.as_str() {
                "binary" => is_binary = true,
                "insensitive" | "asensitive" => {}
                "no" => self.expect("scroll")?,
                "scroll" => scrolls = true,
                "cursor" => break,
                other => return Err(self.syntax(other)),
            }
        }
        loop {
            match self.take_word()?.as_str() {
                "with" => {
                    self.expect("hold")?;
                    is_held = true;
                }
                "without" => self.expect("hold")?,
                "for" => break,
                other => return Err(self.syntax(other)),
            }
        }
        if scrolls {
            let message = "SCROLL cursors are not done";
            return Err(Failure::new(code::FEATURE_NOT_SUPPORTED, message).hint("go forward only"));
        }
        Ok(Command::Declare { name, is_binary, is_held, text: self.rest()? })
    }

    /// Reads the direction of FETCH or MOVE, and the name of the cursor.
    fn direction(&mut self) -> Result<(Direction, String), Failure> {
        let back = || {
            Failure::new(code::FEATURE_NOT_SUPPORTED, "cursor can only scan forward")
                .hint("declare another cursor to read rows again")
        };
        self.skip_any(&["forward"]);
        let piece = self.pieces.get(self.at);
        let is_negative =
            piece.is_some_and(|piece| piece.kind == PieceKind::Sign) && self.shown(self.at) == "-";
        if is_negative {
            return Err(back());
        }
        let direction = if piece.is_some_and(|piece| piece.kind == PieceKind::Number) {
            let count = self.shown(self.at).parse().map_err(|_| self.syntax(self.shown(self.at)))?;
            self.at += 1;
            Direction::Forward(count)
        } else {
            match self.word_at(self.at).as_deref() {
                Some("all") => {
                    self.at += 1;
                    Direction::All
                }
                Some("next") => {
                    self.at += 1;
                    Direction::Forward(1)
                }
                Some("prior" | "backward" | "first" | "last" | "absolute" | "relative")
                    if self.at + 1 < self.pieces.len() =>
                {
                    return Err(back());
                }
                _ => Direction::Forward(1),
            }
        };
        self.skip_any(&["from", "in"]);
        Ok((direction, self.name()?))
    }

    fn nothing(&mut self, tag: &'static str) -> Command {
        self.at = self.pieces.len();
        Command::Nothing(tag)
    }
}

#[cfg(test)]
mod tests;
