//! `farpool help`: prints the same as `--help` of the program or of a command.

use super::output::print_text;
use super::stop::{Outcome, Stop};
use clap::CommandFactory;

/// Print the help of the program or of a command, as --help does
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  farpool help\n  farpool help sql")]
pub struct Args {
    /// Name of the command
    command: Option<String>,
}

/// Prints the help.
pub fn run(args: Args) -> Outcome {
    let mut program = super::Cli::command();
    program.build();
    let command = match &args.command {
        None => &mut program,
        Some(name) => find(&mut program, name)?,
    };
    print_text(&command.render_long_help().to_string())
}

/// Finds a command of the program.
pub fn find<'a>(program: &'a mut clap::Command, name: &str) -> Outcome<&'a mut clap::Command> {
    let names: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
    let advice = format!("the commands are {}", names.join(", "));
    let missing = || Stop::usage(format!("there is no command {name}"), advice);
    program.find_subcommand_mut(name).ok_or_else(missing)
}
