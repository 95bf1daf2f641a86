//! `farpool drop`: removes tables, or views, from a node.

use super::output::print_text;
use super::pool_args::PoolArgs;
use super::stop::Outcome;
use farpool::{TableName, TenantName};

/// Drop tables or views of a memory node
///
/// Running queries that read a table finish normally; its memory is freed after the last of them.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  farpool drop trips\n  farpool drop --view long_trips\n  farpool drop --tenant sales trips"
)]
pub struct Args {
    /// Names of the tables: TABLE or SCHEMA.TABLE
    #[arg(value_name = "TABLE", required = true)]
    tables: Vec<String>,

    /// Drop views instead of tables
    #[arg(long)]
    view: bool,

    /// Drop tables of another tenant; requires a token for the role admin
    #[arg(long, value_parser = |text: &str| TenantName::new(text))]
    tenant: Option<TenantName>,

    #[command(flatten)]
    pool: PoolArgs,
}

/// Drops the tables or views in the given order, up to the first that does not exist.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let names =
            args.tables.iter().map(|name| TableName::parse(name)).collect::<farpool::Result<Vec<_>>>()?;
        let pool = args.pool.connect().await?;
        for name in &names {
            match &args.tenant {
                tenant if args.view => pool.drop_view(name, tenant.as_ref()).await?,
                None => pool.drop_table(name).await?,
                Some(tenant) => pool.drop_table_of(tenant, name).await?,
            }
            print_text(&format!("dropped {name}\n"))?;
        }
        Ok(())
    })
}
