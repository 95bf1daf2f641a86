//! A view of the files of a directory whose names have a common prefix. Within the view the names lack the prefix.

use crate::compression::CodecSelector;
use crate::files::{Directory, File};
use crate::keys::Keys;
use std::io;
use std::sync::Arc;

/// Returns a view of the files of `directory` whose names begin with `prefix`, by their names without the prefix. With
/// it one flat directory can hold several logs.
pub fn prefixed(directory: Arc<dyn Directory>, prefix: &str) -> Arc<dyn Directory> {
    Arc::new(PrefixedDirectory { inner: directory, prefix: prefix.to_string() })
}

#[derive(Debug)]
struct PrefixedDirectory {
    inner: Arc<dyn Directory>,
    prefix: String,
}

impl PrefixedDirectory {
    fn whole(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Directory for PrefixedDirectory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.inner.create(&self.whole(name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.inner.open(&self.whole(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(&self.whole(from), &self.whole(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(&self.whole(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = self.inner.names()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(&self.prefix)).map(str::to_string).collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn full_name(&self, name: &str) -> String {
        self.inner.full_name(&self.whole(name))
    }

    fn keys(&self) -> Option<&Keys> {
        self.inner.keys()
    }

    fn codec_selector(&self) -> Option<&CodecSelector> {
        self.inner.codec_selector()
    }

    fn read_rate(&self) -> Option<f64> {
        self.inner.read_rate()
    }
}

#[cfg(test)]
mod tests {
    use super::prefixed;
    use crate::files::Directory;
    use crate::simulated::SimulatedDirectory;

    #[test]
    fn files_are_those_whose_names_begin_alike() {
        let whole = SimulatedDirectory::new();
        let (a, ab) = (prefixed(whole.clone(), "a-"), prefixed(prefixed(whole.clone(), "a-"), "b-"));
        whole.create("x").unwrap();
        a.create("x").unwrap();
        ab.create("new").unwrap();
        ab.rename("new", "x").unwrap();
        assert_eq!(whole.names().unwrap(), ["a-b-x", "a-x", "x"]);
        assert_eq!(
            (a.names().unwrap(), ab.names().unwrap()),
            (vec!["b-x".into(), "x".into()], vec!["x".into()])
        );
        assert!(a.open("b-x").is_ok() && ab.open("new").is_err());
        a.remove("x").unwrap();
        assert_eq!(whole.names().unwrap(), ["a-b-x", "x"]);
        assert_eq!((ab.full_name("x"), ab.describe()), ("a-b-x".into(), whole.describe()));
    }
}
