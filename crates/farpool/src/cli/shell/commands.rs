//! The commands of the shell: those of DuckDB and SQLite begin with a dot, those of psql with a backslash.

use crate::cli::output::Format;
use crate::cli::stop::{Outcome, Stop};
use clap::ValueEnum;
use std::fmt::Write;
use std::path::PathBuf;

/// A command with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Lists all commands, or describes one.
    Help(Option<String>),
    /// Leaves the shell.
    Quit,
    /// Lists tables and views.
    Tables,
    /// Lists tables and views, or describes one.
    Describe(Option<String>),
    /// Shows the statements that create a table or view, or all of them.
    Schema(Option<String>),
    /// Sets or shows the format of results.
    Mode(Option<Format>),
    /// Switches between the formats line and table.
    Expanded(Option<bool>),
    /// Sets or shows whether elapsed times are shown.
    Timer(Option<bool>),
    /// Sets or shows the maximum number of rows that are shown.
    Rows(Option<Limit>),
    /// Sets or shows the maximum width of tables.
    Width(Option<Limit>),
    /// Sets or shows whether plans, with the pool's answers, are shown.
    Explain(Option<bool>),
    /// Shows the execution statistics of the last statement, or sets whether they are shown after each statement.
    Receipt(Option<bool>),
    /// Sets or shows the pager.
    Pager(Option<PagerChoice>),
    /// Runs a script.
    Read(PathBuf),
}

/// A limit of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Everything is shown.
    All,
    /// The default, which fits the terminal.
    Auto,
    /// At most this many rows, or characters per line.
    Most(usize),
}

/// The setting of the pager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagerChoice {
    /// No pager.
    Off,
    /// The default pager.
    On,
    /// A command of the system's shell.
    Program(String),
}

/// The kind of a command's argument, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Command,
    Table,
    Mode,
    Switch,
    File,
}

/// A command and its description in `.help`.
pub struct Described {
    /// The names of the command, the preferred one first.
    pub names: &'static [&'static str],
    pub arguments: &'static str,
    pub what: &'static str,
    pub takes: Takes,
    parse: fn(&Arguments) -> Outcome<Command>,
}

/// All commands.
pub const COMMANDS: &[Described] = &[
    Described {
        names: &[".help", "\\?"],
        arguments: "[COMMAND]",
        what: "list all commands, or describe one",
        takes: Takes::Command,
        parse: |given| Ok(Command::Help(given.optional())),
    },
    Described {
        names: &[".tables", "\\dt"],
        arguments: "",
        what: "list the tables and views",
        takes: Takes::Nothing,
        parse: |given| given.none().map(|()| Command::Tables),
    },
    Described {
        names: &["\\d", ".desc"],
        arguments: "[NAME]",
        what: "describe a table or file; without NAME as .tables",
        takes: Takes::Table,
        parse: |given| Ok(Command::Describe(given.optional())),
    },
    Described {
        names: &[".schema"],
        arguments: "[NAME]",
        what: "show the CREATE statements of tables and views",
        takes: Takes::Table,
        parse: |given| Ok(Command::Schema(given.optional())),
    },
    Described {
        names: &[".mode"],
        arguments: "[MODE]",
        what: "print results as table, box, markdown, line, csv, …",
        takes: Takes::Mode,
        parse: |given| given.format().map(Command::Mode),
    },
    Described {
        names: &["\\x"],
        arguments: "[on|off]",
        what: "switch between one line per value and tables",
        takes: Takes::Switch,
        parse: |given| given.switch().map(Command::Expanded),
    },
    Described {
        names: &[".timer", "\\timing"],
        arguments: "[on|off]",
        what: "print the elapsed time of each statement",
        takes: Takes::Switch,
        parse: |given| given.switch().map(Command::Timer),
    },
    Described {
        names: &[".rows"],
        arguments: "[N|all|auto]",
        what: "set the maximum number of rows shown, from both ends",
        takes: Takes::Nothing,
        parse: |given| given.limit().map(Command::Rows),
    },
    Described {
        names: &[".width"],
        arguments: "[N|all|auto]",
        what: "set the maximum width of tables, in characters",
        takes: Takes::Nothing,
        parse: |given| given.limit().map(Command::Width),
    },
    Described {
        names: &[".pager"],
        arguments: "[on|off|PROGRAM]",
        what: "show results that do not fit the screen in a pager",
        takes: Takes::Switch,
        parse: |given| Ok(Command::Pager(given.pager())),
    },
    Described {
        names: &[".explain"],
        arguments: "[on|off]",
        what: "explain what is pushed down, and the pool's answers",
        takes: Takes::Switch,
        parse: |given| given.switch().map(Command::Explain),
    },
    Described {
        names: &[".receipt"],
        arguments: "[on|off]",
        what: "show the costs of the last statement, or of each",
        takes: Takes::Switch,
        parse: |given| given.switch().map(Command::Receipt),
    },
    Described {
        names: &[".read", "\\i"],
        arguments: "FILE",
        what: "run the statements and commands in a file",
        takes: Takes::File,
        parse: |given| given.file().map(Command::Read),
    },
    Described {
        names: &[".quit", ".exit", "\\q"],
        arguments: "",
        what: "exit, like Ctrl-D",
        takes: Takes::Nothing,
        parse: |given| given.none().map(|()| Command::Quit),
    },
];

/// Returns the command with this name; `None` if there is none.
pub fn described(name: &str) -> Option<&'static Described> {
    // psql's `\d+` and `\dt+` show more of the same.
    let name = name.strip_suffix('+').unwrap_or(name).to_ascii_lowercase();
    COMMANDS.iter().find(|command| command.names.contains(&name.as_str()))
}

/// Parses the line of a command.
pub fn parse(line: &str) -> Outcome<Command> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let name = name.trim_end_matches(';');
    let Some(command) = described(name) else {
        let advice = match nearest(name) {
            Some(near) => format!("did you mean {near}? '.help' lists all commands"),
            None => "'.help' lists all commands; a statement of SQL begins with a word".to_string(),
        };
        return Err(Stop::usage(format!("there is no command {name}"), advice));
    };
    let text = rest.trim().trim_end_matches(';').trim_end().to_string();
    (command.parse)(&Arguments { command, text })
}

fn nearest(name: &str) -> Option<&'static str> {
    let names = || COMMANDS.iter().flat_map(|command| command.names.iter().copied());
    let letters = name.trim_start_matches(['.', '\\']);
    let same = |other: &&str| other[1..] == *letters;
    let begins = |other: &&str| !letters.is_empty() && other[1..].starts_with(letters);
    names().find(same).or_else(|| names().find(begins))
}

/// Returns the text of `.help`.
pub fn help(name: Option<&str>) -> Outcome<String> {
    let Some(name) = name else {
        let heads: Vec<String> = COMMANDS.iter().map(head).collect();
        let width = heads.iter().map(|head| head.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (head, command) in heads.iter().zip(COMMANDS) {
            let _ = writeln!(text, "{head:<width$}  {}", command.what);
        }
        text += "\nA statement ends with ';'. FROM 'trips.parquet' reads a file.\n\
                 Tab completes, Ctrl-R searches the history, Ctrl-C cancels, Ctrl-D exits.\n";
        return Ok(text);
    };
    let with_sign = [name.to_string(), format!(".{name}"), format!("\\{name}")];
    match with_sign.iter().find_map(|name| described(name)) {
        Some(command) => Ok(format!("{}  {}\n", head(command), command.what)),
        None => Err(Stop::usage(format!("there is no command {name}"), "'.help' lists all commands")),
    }
}

fn head(command: &Described) -> String {
    format!("{} {}", command.names.join(", "), command.arguments).trim_end().to_string()
}

/// The text after the name of a command.
struct Arguments {
    command: &'static Described,
    text: String,
}

impl Arguments {
    fn wrong(&self, expected: &str) -> Stop {
        let what = format!("{} {}: {expected}", self.command.names[0], self.text);
        Stop::usage(what, format!("write {}", head(self.command)))
    }

    fn optional(&self) -> Option<String> {
        (!self.text.is_empty()).then(|| self.text.clone())
    }

    fn none(&self) -> Outcome {
        if self.text.is_empty() { Ok(()) } else { Err(self.wrong("it takes no argument")) }
    }

    fn switch(&self) -> Outcome<Option<bool>> {
        match self.text.to_ascii_lowercase().as_str() {
            "" => Ok(None),
            "on" | "yes" | "true" | "1" => Ok(Some(true)),
            "off" | "no" | "false" | "0" => Ok(Some(false)),
            _ => Err(self.wrong("on or off is expected")),
        }
    }

    fn format(&self) -> Outcome<Option<Format>> {
        if self.text.is_empty() {
            return Ok(None);
        }
        Format::from_str(&self.text, true).map(Some).map_err(|_| {
            let names: Vec<String> = Format::value_variants().iter().map(|format| format.name()).collect();
            Stop::usage(
                format!(".mode {}: there is no such mode", self.text),
                format!("the modes are {}", names.join(", ")),
            )
        })
    }

    fn limit(&self) -> Outcome<Option<Limit>> {
        match self.text.to_ascii_lowercase().as_str() {
            "" => Ok(None),
            "all" | "0" => Ok(Some(Limit::All)),
            "auto" => Ok(Some(Limit::Auto)),
            digits => match digits.parse() {
                Ok(most) => Ok(Some(Limit::Most(most))),
                Err(_) => Err(self.wrong("a number, all or auto is expected")),
            },
        }
    }

    fn pager(&self) -> Option<PagerChoice> {
        match self.text.to_ascii_lowercase().as_str() {
            "" => None,
            "on" => Some(PagerChoice::On),
            "off" => Some(PagerChoice::Off),
            _ => Some(PagerChoice::Program(self.text.clone())),
        }
    }

    fn file(&self) -> Outcome<PathBuf> {
        let text = self.text.as_str();
        let unquoted = ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
        match unquoted.unwrap_or(text) {
            "" => Err(self.wrong("a file is expected")),
            file => Ok(file.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_names_of_both_shells() {
        for (line, command) in [
            (".tables", Command::Tables),
            ("\\dt+", Command::Tables),
            ("\\d", Command::Describe(None)),
            ("\\d  trips;", Command::Describe(Some("trips".to_string()))),
            (".MODE Markdown", Command::Mode(Some(Format::Markdown))),
            ("\\x", Command::Expanded(None)),
            ("\\timing off", Command::Timer(Some(false))),
            (".rows all", Command::Rows(Some(Limit::All))),
            (".width 132", Command::Width(Some(Limit::Most(132)))),
            (".pager less -S", Command::Pager(Some(PagerChoice::Program("less -S".to_string())))),
            (".read 'a b.sql'", Command::Read("a b.sql".into())),
            ("\\q;", Command::Quit),
        ] {
            assert_eq!(parse(line).unwrap(), command, "{line}");
        }
    }

    #[test]
    fn wrong_commands_say_what_is_right() {
        for (line, said) in [
            (".table", "did you mean .tables"),
            ("\\mode", "did you mean .mode"),
            (".xyz", "'.help' lists"),
            (".mode duck", "the modes are table, box"),
            (".timer maybe", "write .timer, \\timing [on|off]"),
            (".read", "write .read, \\i FILE"),
            (".quit now", "write .quit"),
            (".rows -1", "write .rows"),
        ] {
            match parse(line) {
                Err(Stop::Usage(error)) => {
                    assert!(error.advice.as_ref().is_some_and(|a| a.contains(said)), "{line}: {error:?}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_command_has_a_line_of_help() {
        let text = help(None).unwrap();
        for command in COMMANDS {
            assert!(command.names.iter().all(|name| text.contains(name)), "{:?}", command.names);
            assert!(help(Some(command.names[0])).unwrap().contains(command.what));
        }
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
        assert!(help(Some("mode")).unwrap().contains("markdown"));
        assert!(help(Some("nothing")).is_err());
    }
}
