//! Benchmarks of searching text for configured keys and for keys recognized by their pattern.
//!
//! Run with `cargo bench -p minke-secrets`. Each line prints a name and megabytes per second.

use std::hint::black_box;
use std::time::Instant;

use minke_secrets::{Redactor, Secret, find_keys};

fn main() {
    let code: String = [
        include_str!("../src/key_patterns.rs"),
        include_str!("../src/redact.rs"),
        include_str!("../src/store.rs"),
        include_str!("../../../Cargo.lock"),
    ]
    .concat()
    .repeat(64);
    let blob = "QmFzZTY0IGlzIGEgZ3JvdXAgb2YgYmluYXJ5LXRvLXRleHQ+/0123456789".repeat(200_000);
    let addresses = "see https://docs.example.org/a/b?c=d and http://localhost:8080/ or ".repeat(200_000);
    let secrets = (0..10).map(|at| {
        let text = format!("sk-planted-{at}-0123456789abcdef0123456789");
        (format!("S{at}"), Secret::new(text).expect("a key"))
    });
    let redactor = Redactor::new(secrets);
    let coloured = code.replace("fn ", "\u{1b}[01;31m\u{1b}[Kfn\u{1b}[m\u{1b}[K ");
    let texts = [("code", &code), ("base64", &blob), ("addresses", &addresses), ("coloured code", &coloured)];
    for (name, text) in texts {
        measure_rate(&format!("shapes in {name}"), text, |text| find_keys(text).count());
        measure_rate(&format!("ten values in {name}"), text, |text| redactor.redact_text(text).len());
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn measure_rate<T>(what: &str, text: &str, work: impl Fn(&str) -> T) {
    let (begun, before) = (Instant::now(), thread_cpu_ns());
    let mut bytes = 0;
    while begun.elapsed().as_millis() < 500 {
        black_box(work(black_box(text)));
        bytes += text.len();
    }
    let seconds =
        thread_cpu_ns().zip(before).map_or(begun.elapsed().as_secs_f64(), |(now, then)| (now - then) / 1e9);
    eprintln!("{what:32} {:8.0} MB/s", bytes as f64 / 1e6 / seconds);
}

/// Returns the CPU time of this thread in nanoseconds, which other load on the machine does not distort.
fn thread_cpu_ns() -> Option<f64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}
