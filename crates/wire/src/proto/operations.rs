//! Bodies of messages, as protocol buffers, about the operation of a node: its status, running queries and backups.

use super::check_count;
use crate::request::{body, read};
use bytes::Bytes;
use farpool_model::{self as model, Error, QueryState, Result, Status, limits, status};
use prost::Message;

/// The resources that a tenant holds and has used.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TenantStatus {
    #[prost(string, tag = "1")]
    pub tenant: String,
    #[prost(uint64, tag = "2")]
    pub memory_bytes_used: u64,
    #[prost(uint64, tag = "3")]
    pub tables: u64,
    #[prost(uint64, tag = "4")]
    pub programs: u64,
    #[prost(uint64, tag = "5")]
    pub bytes_scanned: u64,
    #[prost(uint64, tag = "6")]
    pub cpu_ns: u64,
    #[prost(uint64, tag = "7")]
    pub work_bytes_used: u64,
    #[prost(uint32, tag = "8")]
    pub weight: u32,
    #[prost(uint64, optional, tag = "9")]
    pub memory_bytes_limit: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub work_bytes_limit: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub programs_limit: Option<u64>,
    #[prost(uint64, optional, tag = "12")]
    pub programs_waiting_limit: Option<u64>,
    #[prost(uint64, optional, tag = "13")]
    pub result_bytes_limit: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub connections_limit: Option<u64>,
}

/// Body of the message `BackupFiles`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupFiles {
    #[prost(fixed64, tag = "1")]
    pub node: u64,
    /// Encoded [`BackupFile`]s, which are decoded one by one.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub files: Vec<Bytes>,
}

/// A file of a backup, a part of [`BackupFiles`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupFile {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// Body of the message `BackupRead`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupRead {
    #[prost(string, tag = "1")]
    pub file: String,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(uint32, tag = "3")]
    pub bytes: u32,
}

/// Body of the message `BackupBytes`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupBytes {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
}

/// Body of the message `CancelQuery`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CancelQuery {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// A running program, a part of [`QueryList`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QueryInfo {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub tenant: String,
    #[prost(string, tag = "3")]
    pub token: String,
    #[prost(string, tag = "4")]
    pub client: String,
    #[prost(string, tag = "5")]
    pub peer: String,
    #[prost(string, tag = "6")]
    pub table: String,
    #[prost(uint32, tag = "7")]
    pub state: u32,
    #[prost(uint64, tag = "8")]
    pub elapsed_ns: u64,
    #[prost(uint64, tag = "9")]
    pub cpu_ns: u64,
    #[prost(uint64, tag = "10")]
    pub rows: u64,
    #[prost(uint64, tag = "11")]
    pub bytes: u64,
}

/// Body of the message `QueryList`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QueryList {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub queries: Vec<Bytes>,
}

/// Body of the message `StatusInfo`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusInfo {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(uint64, tag = "2")]
    pub memory_bytes_limit: u64,
    #[prost(uint64, tag = "3")]
    pub memory_bytes_used: u64,
    #[prost(uint64, tag = "4")]
    pub page_bytes: u64,
    #[prost(string, tag = "5")]
    pub huge_pages: String,
    #[prost(uint64, tag = "6")]
    pub tables: u64,
    #[prost(uint64, tag = "7")]
    pub connections: u64,
    #[prost(uint64, tag = "8")]
    pub programs_running: u64,
    #[prost(uint64, tag = "9")]
    pub workers: u64,
    #[prost(uint64, tag = "10")]
    pub uptime_s: u64,
    #[prost(bytes = "bytes", repeated, tag = "11")]
    pub tenants: Vec<Bytes>,
    #[prost(uint64, tag = "12")]
    pub work_bytes_limit: u64,
    #[prost(uint64, tag = "13")]
    pub work_bytes_used: u64,
    #[prost(uint64, tag = "14")]
    pub work_bytes_used_most: u64,
}

pub(crate) fn write_queries(queries: &[model::QueryInfo]) -> QueryList {
    let write = |query: &model::QueryInfo| {
        let query = query.clone();
        body(&QueryInfo {
            id: query.id,
            tenant: query.tenant,
            token: query.token,
            client: query.client,
            peer: query.peer,
            table: query.table,
            state: QueryState::ALL.iter().position(|s| *s == query.state).map_or(0, |place| place as u32),
            elapsed_ns: query.elapsed_ns,
            cpu_ns: query.cpu_ns,
            rows: query.rows,
            bytes: query.bytes,
        })
    };
    QueryList { queries: queries.iter().map(write).collect() }
}

pub(crate) fn read_queries(list: &QueryList) -> Result<Vec<model::QueryInfo>> {
    check_count("queries", list.queries.len(), limits::LISTED_QUERIES_MAX)?;
    let read_one = |bytes: &Bytes| -> Result<model::QueryInfo> {
        let query: QueryInfo = read(bytes)?;
        Ok(model::QueryInfo {
            id: query.id,
            tenant: query.tenant,
            token: query.token,
            client: query.client,
            peer: query.peer,
            table: query.table,
            // A state that a later version has added is shown as running.
            state: QueryState::ALL.get(query.state as usize).copied().unwrap_or(QueryState::Running),
            elapsed_ns: query.elapsed_ns,
            cpu_ns: query.cpu_ns,
            rows: query.rows,
            bytes: query.bytes,
        })
    };
    list.queries.iter().map(read_one).collect()
}

pub(crate) fn write_status(status: &Status) -> StatusInfo {
    let tenant = |t: &status::TenantStatus| TenantStatus {
        tenant: t.tenant.clone(),
        memory_bytes_used: t.memory_bytes_used,
        work_bytes_used: t.work_bytes_used,
        tables: t.tables,
        programs: t.programs,
        bytes_scanned: t.bytes_scanned,
        cpu_ns: t.cpu_ns,
        weight: t.weight,
        memory_bytes_limit: t.memory_bytes_limit,
        work_bytes_limit: t.work_bytes_limit,
        programs_limit: t.programs_limit,
        programs_waiting_limit: t.programs_waiting_limit,
        result_bytes_limit: t.result_bytes_limit,
        connections_limit: t.connections_limit,
    };
    StatusInfo {
        version: status.version.clone(),
        memory_bytes_limit: status.memory_bytes_limit,
        memory_bytes_used: status.memory_bytes_used,
        work_bytes_limit: status.work_bytes_limit,
        work_bytes_used: status.work_bytes_used,
        work_bytes_used_most: status.work_bytes_used_most,
        page_bytes: status.page_bytes,
        huge_pages: status.huge_pages.clone(),
        tables: status.tables,
        connections: status.connections,
        programs_running: status.programs_running,
        workers: status.workers,
        uptime_s: status.uptime_s,
        tenants: status.tenants.iter().map(|t| body(&tenant(t))).collect(),
    }
}

pub(crate) fn read_status(status: StatusInfo) -> Result<Status> {
    let tenant = |bytes: &Bytes| -> Result<status::TenantStatus> {
        let t: TenantStatus = read(bytes)?;
        Ok(status::TenantStatus {
            tenant: t.tenant,
            memory_bytes_used: t.memory_bytes_used,
            work_bytes_used: t.work_bytes_used,
            tables: t.tables,
            programs: t.programs,
            bytes_scanned: t.bytes_scanned,
            cpu_ns: t.cpu_ns,
            weight: t.weight,
            memory_bytes_limit: t.memory_bytes_limit,
            work_bytes_limit: t.work_bytes_limit,
            programs_limit: t.programs_limit,
            programs_waiting_limit: t.programs_waiting_limit,
            result_bytes_limit: t.result_bytes_limit,
            connections_limit: t.connections_limit,
        })
    };
    Ok(Status {
        version: status.version,
        memory_bytes_limit: status.memory_bytes_limit,
        memory_bytes_used: status.memory_bytes_used,
        work_bytes_limit: status.work_bytes_limit,
        work_bytes_used: status.work_bytes_used,
        work_bytes_used_most: status.work_bytes_used_most,
        page_bytes: status.page_bytes,
        huge_pages: status.huge_pages,
        tables: status.tables,
        connections: status.connections,
        programs_running: status.programs_running,
        workers: status.workers,
        uptime_s: status.uptime_s,
        tenants: status.tenants.iter().map(tenant).collect::<Result<_>>()?,
    })
}

/// Encodes `BackupFiles`.
pub(crate) fn write_backup_files(files: &model::BackupFiles) -> Bytes {
    let file = |file: &model::BackupFile| body(&BackupFile { name: file.name.clone(), bytes: file.bytes });
    body(&BackupFiles { node: files.node, files: files.files.iter().map(file).collect() })
}

/// Decodes `BackupFiles`.
///
/// # Errors
/// `Corrupt` if the bytes cannot be decoded, or a file name is not one that a data directory may contain.
pub(crate) fn read_backup_files(bytes: &Bytes) -> Result<model::BackupFiles> {
    let BackupFiles { node, files } = read(bytes)?;
    let file = |file: &Bytes| {
        let BackupFile { name, bytes } = read(file)?;
        checked_file_name(name).map(|name| model::BackupFile { name, bytes })
    };
    Ok(model::BackupFiles { node, files: files.iter().map(file).collect::<Result<_>>()? })
}

/// Encodes `BackupRead`.
pub(crate) fn write_backup_read(file: &str, offset: u64, bytes: u32) -> Bytes {
    body(&BackupRead { file: file.to_string(), offset, bytes })
}

/// Decodes `BackupRead`; returns the name of a file, an offset and a number of bytes.
///
/// # Errors
/// `Corrupt` if the bytes cannot be decoded; `OverLimit` for more bytes than one message may have.
pub(crate) fn read_backup_read(bytes: &Bytes) -> Result<(String, u64, u32)> {
    let BackupRead { file, offset, bytes } = read(bytes)?;
    if bytes as usize > limits::BACKUP_READ_BYTES_MAX {
        let most = limits::BACKUP_READ_BYTES_MAX;
        return Err(Error::over_limit(format!(
            "{bytes} bytes of a file are asked for, and {most} are sent at once"
        )));
    }
    Ok((checked_file_name(file)?, offset, bytes))
}

/// Returns the name if it has only lower-case letters, digits and hyphens, as the files of a data directory have: a
/// node must not make the client write elsewhere.
fn checked_file_name(name: String) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match !name.is_empty() && name.len() <= limits::NAME_BYTES_MAX && name.bytes().all(is_plain) {
        true => Ok(name),
        false => Err(Error::corrupt(format!(
            "{:?} is not the name of a file of a backup",
            farpool_model::brief(&name)
        ))),
    }
}
