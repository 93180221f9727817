//! The location of recorded fixtures, and the report of skipped tests.
//!
//! Fixtures that a test needs in a fresh clone are in the repository; this is for large ones.

use std::path::PathBuf;

/// Returns the fixtures directory if it exists: `MINKE_FIXTURES`, else `../shared/fixtures` next to the
/// workspace.
pub fn fixtures_dir() -> Option<PathBuf> {
    let directory = match std::env::var_os("MINKE_FIXTURES") {
        Some(place) => PathBuf::from(place),
        None => workspace_root().join("../shared/fixtures"),
    };
    directory.is_dir().then_some(directory)
}

/// Returns the fixtures of one subject. A test that gets `None` calls `report_skipped` and returns.
pub fn fixture_dir(subject: &str) -> Option<PathBuf> {
    fixtures_dir().map(|place| place.join(subject)).filter(|directory| directory.is_dir())
}

/// Reports a skipped test. With `MINKE_NO_SKIP`, which `.ci/run` sets, it fails, because a runner that hides
/// the output of passing tests would hide the report.
pub fn report_skipped(test: &str, missing: &str) {
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED {test}: {missing}");
    eprintln!("SKIPPED {test}: {missing}");
}

/// Returns the root of the workspace.
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
        assert!(fixture_dir("no such subject").is_none());
    }
}
