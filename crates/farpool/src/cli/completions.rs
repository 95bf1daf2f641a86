//! `farpool completions`: prints a script with which a shell completes the program's command line.

use super::output::print_exactly;
use super::stop::Outcome;
use clap::CommandFactory;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  farpool completions bash > ~/.local/share/bash-completion/completions/farpool
  farpool completions zsh > ~/.zfunc/_farpool        # a folder of fpath
  farpool completions fish > ~/.config/fish/completions/farpool.fish";

/// Print a completion script for bash, zsh or fish
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Shell that the script is for
    shell: Shell,
}

/// Prints the script.
pub fn run(args: Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "farpool", &mut script);
    print_exactly(&String::from_utf8_lossy(&script))
}
