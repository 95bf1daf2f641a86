//! From what a user typed to files of a known format.
//!
//! Invariant: the format is what the name says *and* the first bytes confirm; where they disagree the
//! error says what the bytes look like, because a wrong guess ends in a wilder error later.

use super::ipc::Kind;
use farpool_model::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Parquet,
    Csv {
        /// Tab-separated.
        tabs: bool,
    },
    Ipc(Kind),
}

/// Bytes looked at to tell formats apart.
const HEAD_BYTES: usize = 4096;

/// The files that `pattern` stands for, sorted by name. A file that exists under the very name is that
/// file, whatever characters its name has.
pub(super) fn resolve(pattern: &str) -> Result<Vec<PathBuf>> {
    let literal = Path::new(pattern);
    if literal.exists() || !pattern.contains(['*', '?', '[']) {
        return Ok(vec![literal.to_path_buf()]);
    }
    let matches = glob::glob(pattern).map_err(|error| {
        Error::invalid(format!("{pattern} is not a valid pattern: {}", error.msg))
            .advise("`*` stands for any characters, `?` for one, `[ab]` for one of those")
    })?;
    let mut paths = Vec::new();
    for path in matches {
        let path = path.map_err(|error| unreadable(error.path(), error.error()))?;
        if path.is_file() {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(Error::not_found(format!("no file matches {pattern}")).advise(where_we_are(literal)));
    }
    paths.sort();
    Ok(paths)
}

/// Opens a file, which must be one and not be empty, and its size.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    if metadata.is_dir() {
        return Err(Error::invalid(format!("{} is a directory", path.display()))
            .advise(format!("name the files in it, for example '{}/*.parquet'", path.display())));
    }
    if metadata.is_file() && metadata.len() == 0 {
        return Err(Error::invalid(format!("{} is empty", path.display())));
    }
    Ok((file, metadata.len()))
}

/// An error of the operating system about a file.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::not_found(format!("there is no file {}", path.display())).advise(where_we_are(path))
        }
        _ => Error::new(ErrorKind::Invalid, format!("{} cannot be read: {error}", path.display())),
    }
}

fn where_we_are(path: &Path) -> String {
    match std::env::current_dir() {
        Ok(directory) if path.is_relative() => {
            format!("check the path; it was looked for from {}", directory.display())
        }
        _ => "check the path".to_string(),
    }
}

/// The format of the open `file`, by name and first bytes.
pub(super) fn format(path: &Path, mut file: &File) -> Result<Format> {
    let mut head = Vec::new();
    file.take(HEAD_BYTES as u64)
        .read_to_end(&mut head)
        .and_then(|_| file.seek(SeekFrom::Start(0)))
        .map_err(|error| unreadable(path, &error))?;
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let by_head = Looks::of(&head);
    let format = match (extension.as_str(), by_head) {
        ("parquet" | "pq" | "parq", Looks::Parquet) => Format::Parquet,
        ("csv", Looks::Text) => Format::Csv { tabs: false },
        ("tsv" | "tab", Looks::Text) => Format::Csv { tabs: true },
        ("arrow" | "arrows" | "feather" | "ipc", Looks::IpcFile) => Format::Ipc(Kind::File),
        ("arrow" | "arrows" | "feather" | "ipc", Looks::IpcStream) => Format::Ipc(Kind::Stream),
        (
            "parquet" | "pq" | "parq" | "csv" | "tsv" | "tab" | "arrow" | "arrows" | "feather" | "ipc",
            other,
        ) => {
            return Err(other.mismatch(path, &extension));
        }
        (_, Looks::Parquet) => Format::Parquet,
        (_, Looks::IpcFile) => Format::Ipc(Kind::File),
        (_, Looks::IpcStream) => Format::Ipc(Kind::Stream),
        (_, other) => {
            return Err(Error::invalid(format!(
                "{}: cannot tell what format this is; it looks like {}",
                path.display(),
                other.name()
            ))
            .advise("give it an extension: .parquet, .csv, .tsv or .arrow"));
        }
    };
    Ok(format)
}

/// What the first bytes of a file look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    Parquet,
    EncryptedParquet,
    IpcFile,
    IpcStream,
    FeatherV1,
    Compressed,
    Text,
    Binary,
}

impl Looks {
    fn of(head: &[u8]) -> Looks {
        match head {
            [b'P', b'A', b'R', b'1', ..] => Looks::Parquet,
            [b'P', b'A', b'R', b'E', ..] => Looks::EncryptedParquet,
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Looks::IpcFile,
            [0xff, 0xff, 0xff, 0xff, ..] => Looks::IpcStream,
            [b'F', b'E', b'A', b'1', ..] => Looks::FeatherV1,
            // gzip, zstd, bzip2, xz, zip
            [0x1f, 0x8b, ..]
            | [0x28, 0xb5, 0x2f, 0xfd, ..]
            | [b'B', b'Z', b'h', ..]
            | [0xfd, b'7', b'z', ..]
            | [b'P', b'K', 3, 4, ..] => Looks::Compressed,
            _ if head.contains(&0) => Looks::Binary,
            _ => Looks::Text,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Looks::Parquet => "Parquet",
            Looks::EncryptedParquet => "encrypted Parquet, which is not read",
            Looks::IpcFile | Looks::IpcStream => "Arrow IPC",
            Looks::FeatherV1 => "Feather version 1, which is not read",
            Looks::Compressed => "a compressed file or archive",
            Looks::Text => "text",
            Looks::Binary => "binary data",
        }
    }

    fn mismatch(self, path: &Path, extension: &str) -> Error {
        let advice = match self {
            Looks::Compressed => "unpack it first",
            Looks::Binary | Looks::Text if extension != "csv" => "the file is damaged or something else",
            Looks::Parquet => "rename it to .parquet",
            Looks::IpcFile | Looks::IpcStream => "rename it to .arrow",
            _ => "write it again in a format that is read: Parquet, CSV or Arrow IPC",
        };
        let kind = match self {
            Looks::Binary | Looks::Text => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        };
        let what = self.name();
        Error::new(kind, format!("{} is no .{extension} file: it looks like {what}", path.display()))
            .advise(advice)
    }
}
