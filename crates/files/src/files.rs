//! Resolution of file names that a user typed to files of a known format.
//!
//! Invariant: the format is the one that the name states *and* the first bytes confirm. If they disagree, the error
//! says what the bytes look like, because a wrong guess would lead to a more confusing error later.

use super::compressed;
use super::input::Input;
use super::ipc::Kind;
use farpool_model::{
    CharacterEncoding, Error, ErrorKind, FileCompression, FileFormat, ReadOptions, Result, limits,
};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The format of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Parquet,
    Csv {
        /// Tab-separated.
        tabs: bool,
    },
    Json,
    Ipc(Kind),
}

/// Number of bytes read to detect the format.
const HEAD_BYTES: usize = 4096;

/// Bytes read of a compressed file to detect the format. Reason: more than a block of Zstandard, which has at most 128
/// KiB.
const COMPRESSED_HEAD_BYTES: u64 = 256 << 10;

/// Maximum depth of folders that are searched.
const FOLDER_DEPTH: usize = 32;

/// Returns the files that `pattern` stands for, sorted by name: those of a folder, or those that match a pattern. If a
/// file has exactly this name, it is the only result, even if the name has pattern characters.
pub(super) fn resolve(pattern: &str) -> Result<Vec<PathBuf>> {
    let literal = Path::new(pattern);
    if literal.is_dir() {
        return of_folder(literal);
    }
    if literal.exists() || !pattern.contains(['*', '?', '[', '{']) {
        return Ok(vec![literal.to_path_buf()]);
    }
    let mut paths = Vec::new();
    for pattern in alternatives(pattern)? {
        paths.extend(matching(&pattern)?);
        within_limit(paths.len())?;
    }
    if paths.is_empty() {
        return Err(Error::not_found(format!("no file matches {pattern}")).advise(where_we_are(literal)));
    }
    paths.sort();
    paths.dedup();
    Ok(paths)
}

pub(super) fn within_limit(files: usize) -> Result<()> {
    match files <= limits::FILES_MAX {
        true => Ok(()),
        false => Err(Error::over_limit(format!("a table may be made of {} files", limits::FILES_MAX))),
    }
}

/// Expands `{a,b}` to one pattern per choice.
pub(super) fn alternatives(pattern: &str) -> Result<Vec<String>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_string()];
    while let Some(pattern) = open.pop() {
        // The innermost pair first, since choices can be nested.
        let pair = pattern.find('}').and_then(|end| pattern[..end].rfind('{').map(|start| (start, end)));
        let Some((start, end)) = pair else {
            done.push(pattern);
            continue;
        };
        for choice in pattern[start + 1..end].split(',') {
            open.push(format!("{}{choice}{}", &pattern[..start], &pattern[end + 1..]));
        }
        if open.len() + done.len() > limits::PATTERN_ALTERNATIVES_MAX {
            let most = limits::PATTERN_ALTERNATIVES_MAX;
            return Err(Error::over_limit(format!("the braces of a pattern may stand for {most} patterns")));
        }
    }
    Ok(done)
}

fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    let matches = glob::glob(pattern).map_err(|error| {
        Error::invalid(format!("{pattern} is not a valid pattern: {}", error.msg))
            .advise("`*` stands for any characters, `?` for one, `[ab]` for one of those, `**` for folders")
    })?;
    let mut paths = Vec::new();
    for path in matches {
        let path = path.map_err(|error| unreadable(error.path(), error.error()))?;
        if path.is_file() {
            paths.push(path);
            within_limit(paths.len())?;
        }
    }
    Ok(paths)
}

/// Returns the files with the extension of a known format in a folder and its subfolders, except hidden ones.
fn of_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![(folder.to_path_buf(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| unreadable(&folder, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(&folder, &error))?;
            let (name, path) = (entry.file_name(), entry.path());
            if name.to_string_lossy().starts_with(['.', '_']) {
                continue;
            }
            // Links to folders are not followed, since they can form cycles.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match is_folder {
                true if depth < FOLDER_DEPTH => open.push((path, depth + 1)),
                false if path.is_file() && by_extension(&path).is_some() => files.push(path),
                true | false => {}
            }
        }
        within_limit(files.len() + open.len())?;
    }
    if files.is_empty() {
        return Err(Error::not_found(format!("{} has no file of a known format", folder.display()))
            .advise(format!("name the files in it, for example '{}/*'", folder.display())));
    }
    files.sort();
    Ok(files)
}

/// Opens a regular file; returns it and its size in bytes.
///
/// # Errors
/// `Invalid` if it is empty or not a regular file; errors of the file system.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "is a directory" } else { "is no regular file" };
        return Err(Error::invalid(format!("{} {what}", path.display())).advise(
            "name a file, a pattern or a folder; `farpool load` and `farpool profile` read standard input as `-`",
        ));
    }
    if metadata.len() == 0 {
        return Err(Error::invalid(format!("{} is empty", path.display())));
    }
    Ok((file, metadata.len()))
}

/// Returns the error for a file that the operating system failed to open or read.
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

/// Returns the format of the open `file` and its compression: from `options`, or the name and the first
/// bytes.
pub(super) fn format(
    path: &Path,
    file: &mut Input,
    options: &ReadOptions,
) -> Result<(Format, FileCompression)> {
    if let Input::Remote(reader) = &*file
        && options.compression.is_none()
        && has_footer(path, options)
        && reader.of.tail().map_err(|error| unreadable(path, &error))?.1.ends_with(b"PAR1")
    {
        // A Parquet file is recognized by its end, so that its beginning is not requested.
        return Ok((Format::Parquet, FileCompression::None));
    }
    let mut head = Vec::new();
    file.by_ref()
        .take(HEAD_BYTES as u64)
        .read_to_end(&mut head)
        .and_then(|_| file.seek(SeekFrom::Start(0)))
        .map_err(|error| unreadable(path, &error))?;
    let compression = options.compression.unwrap_or_else(|| compressed::of_head(&head));
    if compression != FileCompression::None {
        // Less than a whole block cannot be decompressed.
        head.clear();
        file.by_ref()
            .take(COMPRESSED_HEAD_BYTES)
            .read_to_end(&mut head)
            .and_then(|_| file.seek(SeekFrom::Start(0)))
            .map_err(|error| unreadable(path, &error))?;
    }
    let head = match compression {
        FileCompression::None => head,
        _ => compressed::head(&head, compression, HEAD_BYTES)
            .map_err(|error| super::damaged(path, format_args!("it cannot be decompressed: {error}")))?,
    };
    let looks = match Looks::of(&head) {
        // In UTF-16, every second byte of a Latin letter is 0, so that such a text looks binary.
        Looks::Binary if has_zeros(options) => Looks::Text,
        looks => looks,
    };
    let format = format_of(path, looks, options)?;
    if compression != FileCompression::None && matches!(format, Format::Parquet | Format::Ipc(_)) {
        let message = format!("{} is compressed as a whole", path.display());
        return Err(
            Error::invalid(message).advise("unpack it first; Parquet and Arrow compress by themselves")
        );
    }
    Ok((format, compression))
}

/// Returns whether text in the encoding that the options state may have zero bytes.
fn has_zeros(options: &ReadOptions) -> bool {
    matches!(
        options.encoding,
        Some(CharacterEncoding::Utf16 | CharacterEncoding::Utf16Le | CharacterEncoding::Utf16Be)
    )
}

/// Returns whether the name or the options say that the file is Parquet.
pub(super) fn has_footer(path: &Path, options: &ReadOptions) -> bool {
    match options.format {
        Some(format) => format == FileFormat::Parquet,
        None => matches!(by_extension(path), Some(Extension::Parquet)),
    }
}

fn format_of(path: &Path, looks: Looks, options: &ReadOptions) -> Result<Format> {
    let tabs = matches!(by_extension(path), Some(Extension::Tsv));
    let said = options.format.map(|format| match format {
        FileFormat::Csv => Extension::Csv,
        FileFormat::Json => Extension::Json,
        FileFormat::Parquet => Extension::Parquet,
    });
    let Some(extension) = said.or_else(|| by_extension(path)) else {
        return match looks {
            Looks::Parquet => Ok(Format::Parquet),
            Looks::IpcFile => Ok(Format::Ipc(Kind::File)),
            Looks::IpcStream => Ok(Format::Ipc(Kind::Stream)),
            other => {
                let what = other.name();
                let name = path.display();
                Err(Error::invalid(format!("{name}: cannot tell what format this is; it looks like {what}"))
                    .advise(
                        "give it an extension (.parquet, .csv, .tsv, .json or .arrow), or say it: FROM read_csv('…')",
                    ))
            }
        };
    };
    match (extension, looks) {
        (Extension::Parquet, Looks::Parquet) => Ok(Format::Parquet),
        (Extension::Csv | Extension::Tsv, Looks::Text) => Ok(Format::Csv { tabs }),
        (Extension::Json, Looks::Text) => Ok(Format::Json),
        (Extension::Ipc, Looks::IpcFile) => Ok(Format::Ipc(Kind::File)),
        (Extension::Ipc, Looks::IpcStream) => Ok(Format::Ipc(Kind::Stream)),
        (extension, other) => Err(other.mismatch(path, extension)),
    }
}

/// Format that a file's extension states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    Parquet,
    Csv,
    Tsv,
    Json,
    Ipc,
}

impl Extension {
    fn name(self) -> &'static str {
        match self {
            Extension::Parquet => "Parquet",
            Extension::Csv => "CSV",
            Extension::Tsv => "TSV",
            Extension::Json => "JSON",
            Extension::Ipc => "Arrow",
        }
    }
}

/// Returns the format that the extension states, after removing the extension of a compression; `None` if it states
/// none.
pub(super) fn by_extension(path: &Path) -> Option<Extension> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let stem = [".gz", ".zst", ".zstd"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
    let (_, extension) = stem.rsplit_once('.')?;
    Some(match extension {
        "parquet" | "pq" | "parq" => Extension::Parquet,
        "csv" => Extension::Csv,
        "tsv" | "tab" => Extension::Tsv,
        "json" | "jsonl" | "ndjson" => Extension::Json,
        "arrow" | "arrows" | "feather" | "ipc" => Extension::Ipc,
        _ => return None,
    })
}

/// Format that the first bytes of a file suggest.
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
            // gzip, zstd (where they were not expected), bzip2, xz, zip
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

    fn mismatch(self, path: &Path, extension: Extension) -> Error {
        let advice = match self {
            Looks::Compressed => "unpack it first; of CSV and JSON, gzip and Zstandard are read",
            Looks::Text => "the file is damaged or something else; say what it is, as in FROM read_csv('…')",
            Looks::Binary => "the file is damaged or something else",
            Looks::Parquet => "rename it to .parquet",
            Looks::IpcFile | Looks::IpcStream => "rename it to .arrow",
            Looks::EncryptedParquet | Looks::FeatherV1 => {
                "write it again in a format that is read: Parquet, CSV, JSON or Arrow IPC"
            }
        };
        let kind = match self {
            Looks::Binary | Looks::Text => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        };
        let (what, format) = (self.name(), extension.name());
        Error::new(kind, format!("{} is no {format} file: it looks like {what}", path.display()))
            .advise(advice)
    }
}
