//! Where recorded material lies, for the tests of this crate.
//!
//! `testkit` has the same for the rest; it stands on half the workspace, which these tests need not wait for.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};

/// The recorded answers of providers: the whole collection if it is there (`MINKE_FIXTURES`, else beside the
/// workspace), else the part of it that is kept in this repository.
pub(crate) fn providers() -> PathBuf {
    match collection() {
        Some(all) => all.join("providers"),
        None => {
            eprintln!(
                "the collection of fixtures is not here: the copies in the repository are used instead"
            );
            copies().join("providers")
        }
    }
}

/// The collection of fixtures outside the repository, if it is there.
pub(crate) fn collection() -> Option<PathBuf> {
    let place = match std::env::var_os("MINKE_FIXTURES") {
        Some(place) => PathBuf::from(place),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures"),
    };
    place.join("providers").is_dir().then_some(place)
}

/// What is kept in this repository.
pub(crate) fn copies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}
