//! `farpool man`: the program's manual pages, generated from the text of `--help`.

use super::output::print_exactly;
use super::stop::{Outcome, file_error};
use clap::CommandFactory;
use clap_mangen::Man;
use farpool::Error;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  farpool man | man -l -
  farpool man sql | man -l -
  farpool man --dir ~/.local/share/man/man1     # farpool.1, farpool-sql.1, …";

/// Print the manual page of the program or of a command
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the command
    command: Option<String>,

    /// Write all pages to files in this folder, which is created if it does not exist
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

/// Prints one page, or writes all of them.
pub fn run(args: Args) -> Outcome {
    let mut program = super::Cli::command();
    program.build();
    if let Some(dir) = args.dir {
        std::fs::create_dir_all(&dir).map_err(|error| file_error("create", &dir, &error))?;
        for command in std::iter::once(&program).chain(program.get_subcommands()) {
            let path = dir.join(Man::new(command.clone()).get_filename());
            std::fs::write(&path, page(command)?).map_err(|error| file_error("write", &path, &error))?;
        }
        return Ok(());
    }
    let command = match &args.command {
        None => &program,
        Some(name) => super::help::find(&mut program, name)?,
    };
    print_exactly(&String::from_utf8_lossy(&page(command)?))
}

fn page(command: &clap::Command) -> Outcome<Vec<u8>> {
    let mut page = Vec::new();
    let rendered = Man::new(command.clone()).render(&mut page);
    rendered.map_err(|error| Error::internal(format!("cannot make the manual page: {error}")))?;
    Ok(page)
}
