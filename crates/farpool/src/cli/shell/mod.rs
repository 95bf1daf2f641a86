//! `farpool shell`: statements and commands, typed at a prompt or read from a script.
//!
//! A statement runs on the threads of a runtime while this thread waits for it or for Ctrl-C, which ends the statement
//! but not the shell. Errors are printed, and the shell continues; a script stops at the first error.

mod commands;
mod complete;
mod describe;
mod editor;
mod highlight;
mod names;
mod pager;
mod receipt;
mod script;
mod words;

use super::config::{Config, PagerConfig};
use super::display_args::{DisplayArgs, ROWS_DEFAULT};
use super::output::{self, Buffer, Fit, Format, LeftOut};
use super::printing::{Printer, Taken, add_receipt};
use super::session_args::{Opened, SessionArgs};
use super::stop::{Outcome, Stop, file_error};
use super::terminal;
use arrow::array::RecordBatch;
use clap::{Args as _, FromArgMatches};
use commands::{Command, Limit, PagerChoice};
use editor::{Prompt, Typed};
use farpool::model::limits;
use farpool::{Error, Receipt, Statement};
use names::Names;
use script::Item;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;
use tokio::runtime::Runtime;

const EXAMPLES: &str = "\
Examples:
  farpool                                           # the same as farpool shell
  farpool shell --pool farpool://node7:9797
  farpool shell --data-dir trips --format box
  farpool shell < script.sql                        # runs a script, as farpool sql does

At the prompt:
  select city, avg(fare) from 'trips.parquet' group by city;
  .tables     the tables and views; \\d trips describes one
  .mode markdown
  .read report.sql
  .help       lists all commands
A statement ends with ';' and may have several lines. Tab completes keywords, tables, columns, files and functions; the \
arrow keys and Ctrl-R search the history of all sessions. Ctrl-C cancels a statement, Ctrl-D exits.";

/// Run SQL interactively, on files or on the tables of a memory node
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    session: SessionArgs,

    #[command(flatten)]
    display: DisplayArgs,
}

impl Args {
    /// Returns the arguments of a shell that was started without any.
    pub fn alone() -> Result<Self, clap::Error> {
        let command = Args::augment_args(clap::Command::new("farpool"));
        Args::from_arg_matches(&command.try_get_matches_from(["farpool"])?)
    }
}

/// Runs the shell until it is left; without a terminal, runs the script on standard input.
pub fn run(args: Args) -> Outcome {
    let config = Config::read()?;
    let settings = Settings::new(&args.display, &config);
    output::check(settings.format)?;
    let runtime = super::runtime()?;
    let opened = super::interrupts::run(&runtime, async move {
        let opened = args.session.open(&config, false).await?;
        Ok(opened)
    })?;
    let mut shell = Shell { runtime, opened, settings, last: None, depth: 0, has_printed: false };
    let outcome = match std::io::stdin().is_terminal() {
        true => shell.converse(),
        false => shell.run_input(),
    };
    shell.runtime.shutdown_background();
    outcome
}

/// The settings of the shell that commands at the prompt can change.
struct Settings {
    format: Format,
    /// Limit of the rows that are shown; `None` for the number that fits the terminal, if there is one.
    rows: Option<Limit>,
    width: Option<Limit>,
    times: bool,
    explains: bool,
    /// Whether the execution statistics are shown after each statement.
    receipts: bool,
    /// The command of the pager; `None` to use no pager.
    pager: Option<String>,
}

impl Settings {
    fn new(display: &DisplayArgs, config: &Config) -> Self {
        let limit = |most: usize| if most == 0 { Limit::All } else { Limit::Most(most) };
        let config = &config.shell;
        Settings {
            format: display.format.or(config.mode).unwrap_or(Format::Table),
            rows: display.max_rows.or(config.max_rows).map(limit),
            width: display.max_width.or(config.max_width).map(limit),
            times: config.timer.unwrap_or(true),
            explains: false,
            receipts: false,
            pager: match &config.pager {
                None | Some(PagerConfig::Is(false)) => None,
                Some(PagerConfig::Is(true)) => Some(pager::usual()),
                Some(PagerConfig::Program(program)) => Some(program.clone()),
            },
        }
    }

    /// Returns the limits of the output for the current size of the terminal.
    fn fit(&self) -> Fit {
        let screen = terminal::size();
        let most = |limit: Option<Limit>, auto: Option<usize>| match limit {
            None | Some(Limit::Auto) => auto,
            Some(Limit::All) => None,
            Some(Limit::Most(most)) => Some(most),
        };
        Fit {
            rows: most(self.rows, screen.map(|_| ROWS_DEFAULT)),
            width: most(self.width, screen.map(|(columns, _)| columns)),
        }
    }

    fn printer(&self) -> Printer {
        let Settings { format, times, explains, .. } = *self;
        Printer { format, fit: self.fit(), explains, times }
    }
}

/// Whether the shell continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Leave,
}

struct Shell {
    runtime: Runtime,
    opened: Opened,
    settings: Settings,
    /// The execution statistics of the last statement.
    last: Option<Receipt>,
    /// Number of scripts that are being read, each by the script before.
    depth: usize,
    /// Whether a result was printed since the last input. The next result is then separated by an empty line.
    has_printed: bool,
}

impl Shell {
    /// Reads input and executes it, until the end.
    fn converse(&mut self) -> Outcome {
        let place = self.opened.node.as_ref().map_or_else(
            || "files and tables of this process".to_string(),
            |node| format!("tables of {node}"),
        );
        eprintln!("farpool {}, {place}; .help helps, Ctrl-D leaves", env!("CARGO_PKG_VERSION"));
        let names = Rc::new(Names::new(self.opened.session.clone(), self.runtime.handle().clone()));
        let mut prompt = Prompt::new(names.clone())?;
        loop {
            let text = match prompt.read()? {
                Typed::Text(text) => text,
                Typed::Nothing => continue,
                Typed::End => return Ok(()),
            };
            self.has_printed = false;
            match self.run_text(&text) {
                Ok(Next::GoOn) => {}
                Ok(Next::Leave) | Err(Stop::OutputClosed) => return Ok(()),
                Err(stop) => drop(stop.report()),
            }
            names.forget();
        }
    }

    /// Runs the script on standard input.
    fn run_input(&mut self) -> Outcome {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Error::invalid(format!("cannot read standard input: {error}")))?;
        if script::items(&text)?.is_empty() {
            return Err(super::sql::no_statement());
        }
        self.run_text(&text).map(drop)
    }

    /// Executes statements and commands, up to the first that fails.
    fn run_text(&mut self, text: &str) -> Outcome<Next> {
        for item in script::items(text)? {
            match item {
                Item::Statement(statement) => self.run_statement(statement)?,
                Item::Command(line) => {
                    if self.run_command(commands::parse(&line)?)? == Next::Leave {
                        return Ok(Next::Leave);
                    }
                }
            }
        }
        Ok(Next::GoOn)
    }

    fn run_statement(&mut self, statement: impl Into<Statement>) -> Outcome {
        let (session, statement) = (self.opened.session.clone(), statement.into());
        let (printer, is_first) = (self.settings.printer(), !self.has_printed);
        let start = Instant::now();
        let pages = self.settings.pager.is_some() && terminal::size().is_some();
        let limit = self.opened.timeout;
        let (taken, has_result, receipt) = super::interrupts::run(&self.runtime, async move {
            super::interrupts::begin_statement(limit);
            let query = session.sql(statement).await?;
            let (taken, has_result) = match pages {
                true => {
                    let taken = printer.take(&query, limits::PAGED_BYTES_MAX).await?;
                    let has_result = taken.is_some();
                    (taken, has_result)
                }
                false => (None, printer.print(&query, start, is_first).await?),
            };
            Ok((taken, has_result, query.receipt()))
        })?;
        if let Some(taken) = taken {
            self.show(&printer, &taken, start)?;
        }
        if !has_result && printer.format.is_for_people() && std::io::stdin().is_terminal() {
            let time = if printer.times {
                format!(" ({})", super::size::duration(start.elapsed()))
            } else {
                String::new()
            };
            eprintln!("done{time}");
        }
        self.has_printed |= has_result;
        if self.settings.receipts {
            eprint!("{}", receipt::text(&receipt));
        }
        let mut last = Receipt::default();
        add_receipt(&mut last, &receipt);
        self.last = Some(last);
        Ok(())
    }

    /// Displays a buffered query result: on the screen if it fits and is not truncated, otherwise in the pager.
    fn show(&mut self, printer: &Printer, taken: &Taken, start: Instant) -> Outcome {
        let rows: usize = taken.batches.iter().map(RecordBatch::num_rows).sum();
        let columns = taken.schema.fields().len();
        let (width, height) = terminal::size().unwrap_or((usize::MAX, usize::MAX));
        // The header, the summary and the prompt take lines in addition to the rows.
        let lines = if printer.format == Format::Line { rows.saturating_mul(columns + 1) } else { rows + 5 };
        let mut text = None;
        if lines <= height && !taken.is_cut {
            let screen = Buffer::default();
            let fit = Fit { rows: None, width: printer.fit.width.or(Some(width)) };
            let left_out = printer.write(taken, fit, screen.out(), !self.has_printed)?;
            text = Some(screen.take()).filter(|_| left_out == LeftOut::default());
        }
        match (text, &self.settings.pager) {
            (Some(text), _) => {
                let mut out = std::io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush()).map_err(Stop::output)?;
            }
            (None, Some(program)) => {
                let whole = |out| printer.write(taken, Fit::default(), out, true).map(drop);
                pager::show(program, whole)?;
            }
            (None, None) => {}
        }
        printer.summarize(rows, columns, LeftOut::default(), start);
        if taken.is_cut {
            eprintln!(
                "note: these are the first rows of a result that is larger than {}; COPY (…) TO 'FILE' writes all of it",
                super::size::bytes(farpool::model::cast::u64_from(limits::PAGED_BYTES_MAX))
            );
        }
        Ok(())
    }

    fn run_command(&mut self, command: Command) -> Outcome<Next> {
        let settings = &mut self.settings;
        match command {
            Command::Quit => return Ok(Next::Leave),
            Command::Help(name) => output::print_text(&commands::help(name.as_deref())?)?,
            Command::Tables | Command::Describe(None) => self.run_statement(names::ALL_TABLES)?,
            Command::Describe(Some(name)) => self.run_statement(describe::columns(&name).as_str())?,
            Command::Schema(name) => {
                let (session, pool) = (self.opened.session.clone(), self.opened.pool.clone());
                let work = async move { describe::schema(&session, &*pool, name.as_deref()).await };
                output::print_text(&super::interrupts::run(&self.runtime, work)?)?;
            }
            Command::Mode(None) => eprintln!("mode {}", settings.format.name()),
            Command::Mode(Some(format)) => {
                output::check(format)?;
                settings.format = format;
            }
            Command::Expanded(is_on) => {
                let is_on = is_on.unwrap_or(settings.format != Format::Line);
                settings.format = if is_on { Format::Line } else { Format::Table };
                eprintln!("mode {}", settings.format.name());
            }
            Command::Timer(is_on) => switch("timer", &mut settings.times, is_on),
            Command::Explain(is_on) => switch("explain", &mut settings.explains, is_on),
            Command::Receipt(Some(is_on)) => switch("receipt", &mut settings.receipts, Some(is_on)),
            Command::Receipt(None) => match &self.last {
                Some(receipt) => output::print_text(&receipt::text(receipt))?,
                None => eprintln!("no statement has run yet"),
            },
            Command::Rows(Some(limit)) => settings.rows = Some(limit),
            Command::Rows(None) => eprintln!("rows {}", limit(settings.fit().rows)),
            Command::Width(Some(limit)) => settings.width = Some(limit),
            Command::Width(None) => eprintln!("width {}", limit(settings.fit().width)),
            Command::Pager(None) => eprintln!("pager {}", settings.pager.as_deref().unwrap_or("off")),
            Command::Pager(Some(PagerChoice::Off)) => settings.pager = None,
            Command::Pager(Some(PagerChoice::On)) => settings.pager = Some(pager::usual()),
            Command::Pager(Some(PagerChoice::Program(program))) => settings.pager = Some(program),
            Command::Read(path) => return self.run_file(&path),
        }
        Ok(Next::GoOn)
    }

    fn run_file(&mut self, path: &Path) -> Outcome<Next> {
        if self.depth >= limits::SCRIPT_DEPTH_MAX {
            let what = format!("{}: scripts read scripts more than {} deep", path.display(), self.depth);
            return Err(Error::over_limit(what).advise("does it read itself?").into());
        }
        let text = std::fs::read_to_string(path).map_err(|error| file_error("read", path, &error))?;
        self.depth += 1;
        let outcome = self.run_text(&text);
        self.depth -= 1;
        outcome.map_err(|stop| match stop {
            Stop::Failed(error) => Stop::Failed(error.at(path.display())),
            Stop::Usage(error) => Stop::Usage(error.at(path.display())),
            other => other,
        })
    }
}

/// Sets a switch, or toggles it without an argument, and prints its state.
fn switch(name: &str, is_on: &mut bool, wanted: Option<bool>) {
    *is_on = wanted.unwrap_or(!*is_on);
    eprintln!("{name} {}", if *is_on { "on" } else { "off" });
}

fn limit(most: Option<usize>) -> String {
    most.map_or_else(|| "all".to_string(), |most| most.to_string())
}
