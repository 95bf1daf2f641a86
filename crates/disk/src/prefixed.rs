//! A view of the files of a directory whose names have a common prefix. Within the view the names lack the prefix.

use crate::files::Directory;
use crate::over::DirectoryOver;
use std::borrow::Cow;
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

impl DirectoryOver for PrefixedDirectory {
    fn below(&self) -> &dyn Directory {
        &*self.inner
    }

    fn name_below<'a>(&self, name: &'a str) -> Cow<'a, str> {
        format!("{}{name}", self.prefix).into()
    }

    fn name_here(&self, below: String) -> Option<String> {
        below.strip_prefix(&self.prefix).map(str::to_string)
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
