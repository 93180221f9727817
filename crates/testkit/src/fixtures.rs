//! Where the recorded material of other programs lies, and how a test says that it is not there.
//!
//! What a test needs in a fresh clone is copied into the repository; this is for the large rest.

use std::path::PathBuf;

/// The directory of fixtures, if it is there: `MINKE_FIXTURES`, else `../shared/fixtures` beside the workspace.
pub fn fixtures() -> Option<PathBuf> {
    let place = match std::env::var_os("MINKE_FIXTURES") {
        Some(place) => PathBuf::from(place),
        None => workspace_root().join("../shared/fixtures"),
    };
    place.is_dir().then_some(place)
}

/// The fixtures of one subject; a test that gets `None` says so with `skipped` and ends.
pub fn fixture(subject: &str) -> Option<PathBuf> {
    fixtures().map(|place| place.join(subject)).filter(|place| place.is_dir())
}

/// Says that a test did not run. With `MINKE_NO_SKIP`, which `.ci/run` sets, that is a failure: a runner that hides
/// what passing tests say would hide this too.
pub fn skipped(test: &str, missing: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED {test}: {missing}");
    eprintln!("SKIPPED {test}: {missing}");
}

/// The root of the workspace that this crate was built in.
pub fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found() {
        assert!(workspace_root().join("Cargo.toml").is_file());
        assert!(fixture("no such subject").is_none());
    }
}
