//! The prompt: a line editor with history, completion and colours. A statement may have several lines, and ends with a
//! semicolon.
//!
//! Invariant: the history has a bounded number of entries of a bounded size, and only its owner may read it.

use super::complete::{Choice, complete};
use super::highlight::highlighted;
use super::names::Names;
use super::script;
use crate::cli::stop::{Outcome, Stop};
use farpool::Error;
use farpool::model::limits;
use rustyline::completion::{Candidate, Completer};
use rustyline::config::BellStyle;
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, Helper};
use std::borrow::Cow;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const PROMPT: &str = "farpool> ";
const PROMPT_BEHIND: &str = "      -> ";

/// Maximum bytes of the first unit of a text. A unit is edited as a whole, and each new line redraws all of it. Further
/// text begins a new unit, so that pasting perhaps a megabyte does not take time quadratic in its length.
const BYTES_EDITED: usize = 4 << 10;

/// Maximum bytes of each unit of a text after the first unit.
const BYTES_EDITED_BEHIND: usize = 1 << 10;

/// Maximum bytes of a unit that is redrawn with its colours after each typed character. Larger units are redrawn after
/// each line.
const BYTES_REDRAWN: usize = 1 << 10;

/// The result of reading from the prompt.
pub enum Typed {
    /// Statements and commands.
    Text(String),
    /// Nothing: the line was discarded with Ctrl-C.
    Nothing,
    /// The end of the input: Ctrl-D.
    End,
}

/// The prompt with its editor.
pub struct Prompt {
    editor: Editor<Assistant, FileHistory>,
    /// The file of the history; `None` if the history lasts for this session only.
    history: Option<PathBuf>,
}

impl Prompt {
    /// Creates a prompt that completes `names`.
    pub fn new(names: Rc<Names>) -> Outcome<Self> {
        let colours = match std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
            true => ColorMode::Enabled,
            false => ColorMode::Disabled,
        };
        let config = Config::builder()
            .max_history_size(limits::HISTORY_ENTRIES_MAX)
            .map_err(broken)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .completion_show_all_if_ambiguous(true)
            .bell_style(BellStyle::None)
            .color_mode(colours)
            .build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(broken)?;
        editor.set_helper(Some(Assistant { names, before: String::new() }));
        let mut prompt = Prompt { editor, history: history_file() };
        prompt.load_history();
        Ok(prompt)
    }

    /// Reads the next input.
    pub fn read(&mut self) -> Outcome<Typed> {
        let mut text = String::new();
        loop {
            let prompt = if text.is_empty() { PROMPT } else { PROMPT_BEHIND };
            let coloured = format!("\x1b[1m{prompt}\x1b[0m");
            match self.editor.readline(&(prompt, coloured)) {
                Ok(line) => text.push_str(&line),
                Err(ReadlineError::Interrupted) => {
                    self.set_before(String::new());
                    return Ok(Typed::Nothing);
                }
                Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(error) => return Err(broken(error)),
            }
            if script::is_whole(&text) {
                self.set_before(String::new());
                self.remember(&text);
                return Ok(Typed::Text(text));
            }
            text.push('\n');
            self.set_before(text.clone());
        }
    }

    fn set_before(&mut self, text: String) {
        if let Some(assistant) = self.editor.helper_mut() {
            assistant.before = text;
        }
    }

    fn remember(&mut self, text: &str) {
        if text.trim().is_empty() || text.len() > limits::HISTORY_ENTRY_BYTES_MAX {
            return;
        }
        let added = self.editor.add_history_entry(text.trim_end());
        if let (Ok(true), Some(path)) = (added, &self.history)
            && let Err(error) = self.editor.append_history(path)
        {
            self.without_file(&error.to_string());
        }
    }

    fn load_history(&mut self) {
        let Some(path) = self.history.clone() else { return };
        let loaded = make_private(&path).map_err(ReadlineError::from);
        if let Err(error) = loaded.and_then(|()| self.editor.load_history(&path)) {
            self.without_file(&error.to_string());
        }
    }

    /// Continues with a history for this session only, and prints the reason.
    fn without_file(&mut self, reason: &str) {
        if let Some(path) = self.history.take() {
            let place = path.display();
            eprintln!(
                "note: what is typed is not kept for the next time: {place}: {}",
                reason.to_lowercase()
            );
        }
    }
}

/// Creates the file of the history, and its folder, if they do not exist, and restricts access to the owner.
fn make_private(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    if file.metadata()?.len() > limits::HISTORY_FILE_BYTES_MAX {
        // The file was not written by this program, whose own files are bounded by their entries.
        return Err(io::Error::other("it is too large"));
    }
    only_for_owner(&file)
}

#[cfg(unix)]
fn only_for_owner(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn only_for_owner(_: &File) -> io::Result<()> {
    Ok(())
}

/// Returns the path of the history file, in the user's state folder; `None` if there is no such folder.
fn history_file() -> Option<PathBuf> {
    Some(farpool::user_folder("XDG_STATE_HOME", ".local/state")?.join("history"))
}

fn broken(error: ReadlineError) -> Stop {
    Error::internal(format!("cannot read from the terminal: {error}"))
        .advise("farpool sql -c \"select …\" needs no terminal")
        .into()
}

/// The helper of the editor: completion, colours and validation.
struct Assistant {
    names: Rc<Names>,
    /// The earlier units of a text that is longer than one unit.
    before: String,
}

impl Helper for Assistant {}

impl Hinter for Assistant {
    type Hint = String;
}

impl Candidate for Choice {
    fn display(&self) -> &str {
        &self.shown
    }

    fn replacement(&self) -> &str {
        &self.text
    }
}

impl Completer for Assistant {
    type Candidate = Choice;

    fn complete(
        &self,
        line: &str,
        place: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Choice>)> {
        let offset = self.before.len();
        let (start, choices) = complete(&format!("{}{line}", self.before), offset + place, &*self.names);
        // A word that began in an earlier unit, which can no longer be edited, is not completed.
        Ok(start.checked_sub(offset).map_or_else(|| (place, Vec::new()), |start| (start, choices)))
    }
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _place: usize) -> Cow<'l, str> {
        highlighted(line)
    }

    fn highlight_char(&self, line: &str, _place: usize, kind: CmdKind) -> bool {
        kind == CmdKind::Other && self.before.is_empty() && line.len() <= BYTES_REDRAWN
    }
}

impl Validator for Assistant {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = typed.input();
        let most = if self.before.is_empty() { BYTES_EDITED } else { BYTES_EDITED_BEHIND };
        let is_long = text.len() > most;
        let is_whole = || match self.before.as_str() {
            "" => script::is_whole(text),
            // Most lines of a long text cannot end it, so that the text need not be examined again.
            before => text.contains(';') && script::is_whole(&format!("{before}{text}")),
        };
        Ok(if is_long || is_whole() { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}
