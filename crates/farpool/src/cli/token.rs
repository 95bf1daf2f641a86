//! `farpool token`: creates access tokens for the clients of a node.

use super::output::print_text;
use super::stop::Outcome;
use clap::Subcommand;
use farpool::node::Right;
use farpool::node::access::scram::{SALT_BYTES, Verifier};
use farpool::node::access::{EndDate, TokenDigest, new_token, toml_key};
use farpool::{Error, Result, TenantName};

const EXAMPLES: &str = "\
Examples:
  farpool token new --tenant sales --role read --name dashboards --until 2027-03-31
  farpool token new --tenant sales --role write > token.txt 2>> access.toml

The token goes to standard output, the lines for the file of 'farpool serve --access' to standard error. \
That file has only the SHA-256 of the token: a lost token must be replaced. For a token with a name, it also has what \
checks a proof of it (SCRAM-SHA-256), with which clients of PostgreSQL's protocol need not send it.
Clients send it with --token-file FILE or the environment variable FARPOOL_TOKEN.";

/// Create tokens that authenticate clients of a memory node
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    New(New),
}

/// Print a new token, and the lines for the access file
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
struct New {
    /// Tenant whose tables the token gives access to
    #[arg(long, value_parser = |text: &str| TenantName::new(text))]
    tenant: TenantName,

    /// Role: read (list and query tables), write (also load, change and drop them) or admin (also list and cancel
    /// queries of all tenants, and drop their tables)
    #[arg(long, value_name = "ROLE")]
    role: Right,

    /// Name of the token in the log and in errors
    #[arg(long)]
    name: Option<String>,

    /// Last day of validity in UTC, such as 2027-03-31, or an instant such as 2027-03-31T18:00:00Z [default: no end]
    #[arg(long, value_name = "DATE")]
    until: Option<EndDate>,
}

/// Creates a token and prints it.
pub fn run(args: Args) -> Outcome {
    let Command::New(new) = args.command;
    let mut random = [0; 32];
    fill(&mut random)?;
    let token = new_token(random);
    let mut salt = [0; SALT_BYTES];
    fill(&mut salt)?;
    eprint!("{}", new.lines(&token, salt)?);
    print_text(&format!("{token}\n"))
}

/// Fills `random` with random bytes.
pub(super) fn fill(random: &mut [u8]) -> Result<()> {
    getrandom::fill(random)
        .map_err(|error| Error::internal(format!("the system gives no random bytes: {error}")))
}

impl New {
    /// Returns the lines to paste into the access file, with comments about other required lines.
    fn lines(&self, token: &str, salt: [u8; SALT_BYTES]) -> Result<String> {
        let tenant = self.tenant.as_str();
        let mut lines = format!("\n# The file also needs the line [tenant.{}], once.\n", toml_key(tenant));
        lines.push_str("[[token]]\n");
        lines.push_str(&format!("tenant = {}\n", quoted(tenant)));
        if let Some(name) = &self.name {
            lines.push_str(&format!("name = {}\n", quoted(name)));
        }
        lines.push_str(&format!("role = \"{}\"\n", self.role.name()));
        lines.push_str(&format!("sha256 = \"{}\"\n", TokenDigest::of(token)));
        if let Some(until) = &self.until {
            lines.push_str(&format!("until = {until}\n"));
        }
        if self.name.is_some() {
            lines.push_str(&format!("scram = \"{}\"\n", Verifier::of(token, salt)?));
        }
        Ok(lines)
    }
}

/// Quotes a string for TOML.
fn quoted(text: &str) -> String {
    // JSON strings are also TOML strings, except for U+007F.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool::node::Access;

    #[test]
    fn what_is_printed_can_be_pasted() {
        let names = [None, Some("dash\"boards\\ \u{7f}\n".to_string())];
        for (index, name) in names.into_iter().enumerate() {
            let tenant = TenantName::new("a \"b\\").unwrap();
            let until = (index == 1).then(|| "2027-03-31".parse().unwrap());
            let new = New { tenant: tenant.clone(), role: Right::Write, name: name.clone(), until };
            let text =
                format!("[tenant.{}]\n{}", toml_key(tenant.as_str()), new.lines("s3cret", [7; 16]).unwrap());
            let granted = Access::parse(&text).unwrap().admit(Some("s3cret"), 0).unwrap();
            assert_eq!((granted.tenant, granted.right, granted.name), (tenant, Right::Write, name));
            assert_eq!(granted.until, until);
        }
    }
}
