//! Whatever stands in a log, folding it never panics, and neither does auditing it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use minke_pod::{Audit, State};
use minke_record::line;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut state = State::default();
    let mut audit = Audit::new();
    for entry in text.lines().filter_map(|line| line::parse(line).ok()) {
        state.apply(&entry);
        audit.see(&entry);
        let _ = state.phase();
    }
    let _ = audit.finish();
});
