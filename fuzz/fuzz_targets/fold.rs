//! Any log text: replaying and auditing it never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use minke_pod::{Audit, State};
use minke_record::line;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut state = State::default();
    let mut audit = Audit::new();
    for entry in text.lines().filter_map(|line| line::parse_entry(line).ok()) {
        state.apply_entry(&entry);
        audit.check_entry(&entry);
        let _ = state.phase();
    }
    let _ = audit.into_problems();
});
