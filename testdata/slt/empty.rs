//! Empty: the manifest beside this file only names a package to fetch.
