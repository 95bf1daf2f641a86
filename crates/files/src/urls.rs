//! Resolution of URLs, and of URL patterns such as `s3://bucket/x/*.parquet`, to remote files.
//!
//! In `http` and `https` URLs no character is a pattern, because servers cannot list files, and `?` begins a query.

use super::files::{alternatives, by_extension, within_limit};
use super::remote::{RemoteFile, Remotes};
use farpool_model::{Error, ErrorKind, Result};
use std::path::Path;

/// Returns whether a text is the URL of a file on a network.
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
    })
}

/// Returns the files that `pattern` stands for, sorted by name: the single file of a URL; the files that match a
/// pattern; or, for a prefix that ends with a slash, those with the extension of a known format.
pub(super) fn resolve(pattern: &str, remotes: &dyn Remotes) -> Result<Vec<RemoteFile>> {
    let is_web = ["http://", "https://"].iter().any(|scheme| pattern.starts_with(scheme));
    let is_pattern = !is_web && pattern.contains(['*', '?', '[', '{']);
    if is_pattern {
        return matching(pattern, remotes);
    }
    if !is_web && pattern.ends_with('/') {
        return of_prefix(pattern, remotes);
    }
    match remotes.file(pattern) {
        Ok(file) => Ok(vec![file]),
        // The URL may be that of a folder.
        Err(error)
            if error.kind == ErrorKind::NotFound && !is_web && by_extension(Path::new(pattern)).is_none() =>
        {
            of_prefix(&format!("{pattern}/"), remotes).map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}

fn matching(pattern: &str, remotes: &dyn Remotes) -> Result<Vec<RemoteFile>> {
    let mut files = Vec::new();
    for pattern in alternatives(pattern)? {
        let wild = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
        if wild == pattern.len() {
            match remotes.file(&pattern) {
                Ok(file) => files.push(file),
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            continue;
        }
        let prefix = pattern[..wild].rfind('/').map_or("", |end| &pattern[..=end]);
        if !is_url(prefix) || prefix.ends_with("://") {
            return Err(Error::invalid(format!("{pattern}: the bucket is a pattern"))
                .advise("name one bucket, as in s3://bucket/x/*.parquet"));
        }
        let compiled = glob::Pattern::new(&pattern).map_err(|error| {
            Error::invalid(format!("{pattern:?} is no valid pattern: {}", error.msg)).advise(
                "`*` stands for any characters, `?` for one, `[ab]` for one of those, `**` for folders",
            )
        })?;
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let is_matching = |file: &RemoteFile| compiled.matches_with(&file.path.to_string_lossy(), options);
        let is_deep = pattern[prefix.len()..].contains('/');
        files.extend(remotes.list(prefix, is_deep)?.into_iter().filter(is_matching));
        within_limit(files.len())?;
    }
    if files.is_empty() {
        return Err(
            Error::not_found(format!("no file matches {pattern}")).advise("check the bucket and the path")
        );
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}

fn of_prefix(prefix: &str, remotes: &dyn Remotes) -> Result<Vec<RemoteFile>> {
    let is_shown = |file: &RemoteFile| {
        let path = file.path.to_string_lossy();
        let below = path.strip_prefix(prefix).unwrap_or(&path);
        let is_hidden = below.split('/').any(|name| name.starts_with(['.', '_']));
        !is_hidden && file.file.bytes() > 0 && by_extension(&file.path).is_some()
    };
    let mut files: Vec<RemoteFile> = remotes.list(prefix, true)?.into_iter().filter(is_shown).collect();
    within_limit(files.len())?;
    if files.is_empty() {
        return Err(Error::not_found(format!("there is no file of a known format below {prefix}"))
            .advise(format!("name the files, for example '{prefix}*'")));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::super::remote::tests::Counted;
    use super::*;
    use std::path::PathBuf;

    /// A test bucket with files of one byte each, by their names.
    struct Bucket(&'static [&'static str]);

    impl Remotes for Bucket {
        fn file(&self, url: &str) -> Result<RemoteFile> {
            match self.0.contains(&url) {
                true => Ok(RemoteFile { path: PathBuf::from(url), file: Counted::new(vec![b'a']) }),
                false => Err(Error::not_found(url)),
            }
        }

        fn list(&self, prefix: &str, is_deep: bool) -> Result<Vec<RemoteFile>> {
            let is_listed = |rest: &str| is_deep || !rest.contains('/');
            let is_listed = |url: &&&str| url.strip_prefix(prefix).is_some_and(is_listed);
            self.0.iter().filter(is_listed).map(|url| self.file(url)).collect()
        }
    }

    const BUCKET: Bucket = Bucket(&[
        "s3://b/x/2.csv",
        "s3://b/x/1.parquet",
        "s3://b/x/y/3.parquet",
        "s3://b/x/_m/4.parquet",
        "s3://b/x/.5.parquet",
        "s3://b/x/read",
        "s3://b/one",
        "http://h/a.csv?x=*",
    ]);

    fn resolved(pattern: &str) -> Vec<String> {
        let files = resolve(pattern, &BUCKET).unwrap();
        files.iter().map(|file| file.path.display().to_string()).collect()
    }

    #[test]
    fn urls_stand_for_what_paths_stand_for() {
        assert_eq!(resolved("s3://b/x/*.parquet"), ["s3://b/x/1.parquet"]);
        assert_eq!(resolved("s3://b/x/**/*.parquet").len(), 3);
        assert_eq!(resolved("s3://b/x/{2.csv,1.parquet,no}"), ["s3://b/x/1.parquet", "s3://b/x/2.csv"]);
        assert_eq!(resolved("s3://b/x/"), ["s3://b/x/1.parquet", "s3://b/x/2.csv", "s3://b/x/y/3.parquet"]);
        assert_eq!(resolved("s3://b/x"), resolved("s3://b/x/"));
        assert_eq!(resolved("s3://b/one"), ["s3://b/one"]);
        assert_eq!(resolved("http://h/a.csv?x=*"), ["http://h/a.csv?x=*"]);
        for (pattern, expected) in [
            ("s3://b/x/*.json", "no file matches"),
            ("s3://*/x", "bucket is a pattern"),
            ("s3://b/[", "no valid pattern"),
            ("s3://b/none.csv", "none.csv"),
            ("s3://b/none/", "no file of a known format"),
        ] {
            let error = resolve(pattern, &BUCKET).unwrap_err();
            assert!(error.message.contains(expected), "{pattern}: {error}");
        }
        assert!(
            is_url("s3://b/x")
                && is_url("https://h")
                && !is_url("c://x")
                && !is_url("a b://c")
                && !is_url("x/y")
        );
    }
}
