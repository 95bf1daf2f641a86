//! Wrappers of a data directory that change some of its operations (decorators) and pass on all others.

use crate::compression::CodecSelector;
use crate::files::{Directory, File};
use crate::keys::Keys;
use std::borrow::Cow;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A directory that wraps another one, the directory below. Operations that an implementation does not define are
/// passed on to the directory below.
pub(crate) trait DirectoryOver: Debug + Send + Sync {
    fn below(&self) -> &dyn Directory;

    /// Returns the name, in the directory below, of the file that is called `name` here.
    fn name_below<'a>(&self, name: &'a str) -> Cow<'a, str> {
        name.into()
    }

    /// Returns the name here of the file that is called `below` in the directory below; `None` if the file is hidden.
    fn name_here(&self, below: String) -> Option<String> {
        Some(below)
    }

    fn keys_here(&self) -> Option<&Keys> {
        self.below().keys()
    }

    fn codec_selector_here(&self) -> Option<&CodecSelector> {
        self.below().codec_selector()
    }
}

impl<T: DirectoryOver> Directory for T {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.below().create(&self.name_below(name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.below().open(&self.name_below(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below().rename(&self.name_below(from), &self.name_below(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.below().remove(&self.name_below(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.below().names()?.into_iter().filter_map(|name| self.name_here(name)).collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.below().sync()
    }

    fn describe(&self) -> String {
        self.below().describe()
    }

    fn full_name(&self, name: &str) -> String {
        self.below().full_name(&self.name_below(name))
    }

    fn keys(&self) -> Option<&Keys> {
        self.keys_here()
    }

    fn codec_selector(&self) -> Option<&CodecSelector> {
        self.codec_selector_here()
    }

    fn read_rate(&self) -> Option<f64> {
        self.below().read_rate()
    }
}
