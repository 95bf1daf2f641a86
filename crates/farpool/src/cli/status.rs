//! `farpool status`: shows memory, load and tenants of a node.

use super::output::TextFormat;
use super::output::grid::{Align, Grid};
use super::pool_args::PoolArgs;
use super::size;
use super::stop::Outcome;
use farpool::Status;
use farpool::model::status::TenantStatus;
use std::time::Duration;

/// Show the memory, load and tenants of a memory node
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  farpool status\n  farpool status --pool farpool://node7:9797 --format json"
)]
pub struct Args {
    /// Format of the output; `json` prints one object
    #[arg(long, value_enum, default_value = "table")]
    format: TextFormat,

    #[command(flatten)]
    pool: PoolArgs,
}

/// Requests the status and prints it.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let pool = args.pool.connect().await?;
        let status = pool.status().await?;
        let text = match args.format {
            TextFormat::Table => as_text(&pool.url(), &status),
            TextFormat::Json => {
                let json = serde_json::to_string_pretty(&status)
                    .map_err(|error| farpool::Error::internal(error.to_string()))?;
                json + "\n"
            }
        };
        args.format.print(&text)
    })
}

fn as_text(url: &str, status: &Status) -> String {
    let lines = [
        ("pool", url.to_string()),
        ("version", status.version.clone()),
        ("up", size::duration(Duration::from_secs(status.uptime_s))),
        ("memory", memory(status)),
        ("memory for work", work(status)),
        ("huge pages", status.huge_pages.clone()),
        ("tables", size::count(status.tables)),
        ("connections", size::count(status.connections)),
        ("programs running", size::count(status.programs_running)),
        ("workers", size::count(status.workers)),
    ];
    let mut text: String = lines.iter().map(|(name, value)| format!("{name:<17} {value}\n")).collect();
    if !status.tenants.is_empty() {
        text.push('\n');
        text.push_str(&tenants(status));
    }
    text
}

fn memory(status: &Status) -> String {
    let (used, limit) = (status.memory_bytes_used, status.memory_bytes_limit);
    let percent = if limit == 0 { 0.0 } else { used as f64 * 100.0 / limit as f64 };
    format!(
        "{} of {} used ({percent:.0} %), pages of {}",
        size::bytes(used),
        size::bytes(limit),
        size::bytes(status.page_bytes)
    )
}

fn work(status: &Status) -> String {
    let [used, limit, most] =
        [status.work_bytes_used, status.work_bytes_limit, status.work_bytes_used_most].map(size::bytes);
    format!("{used} of {limit} used, {most} at most so far")
}

fn tenants(status: &Status) -> String {
    let is_limited = status.tenants.iter().any(|tenant| !limits(tenant).is_empty());
    let mut columns = vec![
        ("tenant", Align::Left),
        ("tables", Align::Right),
        ("memory", Align::Right),
        ("for work", Align::Right),
        ("programs", Align::Right),
        ("scanned", Align::Right),
        ("CPU time", Align::Right),
    ];
    columns.extend(is_limited.then_some(("limits", Align::Left)));
    let mut grid = Grid::new(&columns);
    for tenant in &status.tenants {
        let mut row = vec![
            tenant.tenant.clone(),
            size::count(tenant.tables),
            size::bytes(tenant.memory_bytes_used),
            size::bytes(tenant.work_bytes_used),
            size::count(tenant.programs),
            size::bytes(tenant.bytes_scanned),
            size::duration(Duration::from_nanos(tenant.cpu_ns)),
        ];
        row.extend(is_limited.then(|| limits(tenant)));
        grid.row(row);
    }
    grid.to_string()
}

/// Lists the limits of a tenant that the access file (`farpool serve --access`) sets for this tenant.
fn limits(tenant: &TenantStatus) -> String {
    let bytes = |name: &str, limit: Option<u64>| limit.map(|limit| format!("{name} {}", size::bytes(limit)));
    let programs = tenant.programs_limit.map(|running| {
        let waiting = tenant.programs_waiting_limit.unwrap_or_default();
        format!("{} at once and {} waiting", size::counted(running, "program"), size::count(waiting))
    });
    let weight = (tenant.weight != 1).then(|| format!("weight {}", tenant.weight));
    let all = [
        weight,
        bytes("memory", tenant.memory_bytes_limit),
        bytes("for work", tenant.work_bytes_limit),
        programs,
        bytes("a result", tenant.result_bytes_limit),
        tenant.connections_limit.map(|limit| size::counted(limit, "connection")),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
