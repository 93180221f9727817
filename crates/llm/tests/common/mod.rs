//! Locations of recorded material for the tests of this crate.
//!
//! `testkit` has the same for other crates, but it depends on half the workspace.

#![allow(dead_code, reason = "each test target uses a part")]

use std::path::{Path, PathBuf};

/// Returns the recorded responses of providers: the whole collection if it exists (`MINKE_FIXTURES`, else
/// next to the workspace), else the copies in this repository.
pub(crate) fn provider_fixtures() -> PathBuf {
    match external_fixtures() {
        Some(all) => all.join("providers"),
        None => {
            eprintln!("the collection of fixtures is missing: using the copies in the repository");
            repository_fixtures().join("providers")
        }
    }
}

/// Returns the collection of fixtures outside the repository, if it exists.
pub(crate) fn external_fixtures() -> Option<PathBuf> {
    let place = match std::env::var_os("MINKE_FIXTURES") {
        Some(place) => PathBuf::from(place),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures"),
    };
    place.join("providers").is_dir().then_some(place)
}

/// Returns the fixtures in this repository.
pub(crate) fn repository_fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}
