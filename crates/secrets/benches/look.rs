//! How fast text is looked through for keys that nobody configured, and for those that somebody did.
//!
//! Run with `cargo bench -p minke-secrets`. Each line: what, megabytes a second.

use std::hint::black_box;
use std::time::Instant;

use minke_secrets::{Redactor, Secret, shapes_in};

fn main() {
    let code: String = [
        include_str!("../src/shape.rs"),
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
        rate(&format!("shapes in {name}"), text, |text| shapes_in(text).count());
        rate(&format!("ten values in {name}"), text, |text| redactor.text(text).len());
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn rate<T>(what: &str, text: &str, work: impl Fn(&str) -> T) {
    let (begun, before) = (Instant::now(), on_cpu());
    let mut bytes = 0;
    while begun.elapsed().as_millis() < 500 {
        black_box(work(black_box(text)));
        bytes += text.len();
    }
    let seconds =
        on_cpu().zip(before).map_or(begun.elapsed().as_secs_f64(), |(now, then)| (now - then) / 1e9);
    eprintln!("{what:32} {:8.0} MB/s", bytes as f64 / 1e6 / seconds);
}

/// Nanoseconds that this thread was at work: the machine may have other things to do.
fn on_cpu() -> Option<f64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}
