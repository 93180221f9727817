//! Figures of a host, in Prometheus' text form. Only read; nothing is ever sent by itself.
//!
//! Here: counting, and the text. What pods and threads there are is looked up when somebody asks.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minke_client::Home;
use minke_record::JobState;
use minke_registry::Runtime;

use crate::engine::Engine;
use crate::jobs::object;
use crate::lists::from_index;

/// Jobs that are counted.
const JOBS: usize = 100_000;

/// What is counted. Labels are routes of the table and status codes, so that there are only so many.
#[derive(Debug)]
pub struct Metrics {
    begun: Instant,
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    connections: AtomicI64,
    watchers: Arc<AtomicI64>,
    /// When the last connection came or went.
    touched: Mutex<Instant>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let now = Instant::now();
        Metrics {
            begun: now,
            requests: Mutex::default(),
            connections: AtomicI64::new(0),
            watchers: Arc::default(),
            touched: Mutex::new(now),
        }
    }
}

/// Somebody watches, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watcher(Arc<AtomicI64>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn answered(&self, route: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route, status)).or_default() += 1;
    }

    pub(crate) fn connected(&self, change: i64) {
        self.connections.fetch_add(change, Ordering::Relaxed);
        *self.touched.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn watcher(&self) -> Watcher {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watcher(self.watchers.clone())
    }

    /// How long nobody has been connected.
    pub fn idle(&self) -> Duration {
        if self.connections.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(crate) async fn text(&self, engine: &Engine) -> String {
        let home = engine.home.clone();
        let counted = tokio::task::spawn_blocking(move || {
            let pods = Runtime::new(&home.paths).look().map(|look| look.live.len()).ok();
            (pods, home.store.list().map(|all| all.len()).ok(), jobs(&home))
        });
        let (pods, threads, jobs) = counted.await.unwrap_or_default();
        let mut text = String::new();
        gauge(
            &mut text,
            "minke_up_seconds",
            "How long this host has been up",
            Some(self.begun.elapsed().as_secs()),
        );
        gauge(&mut text, "minke_pods", "Live pods", pods);
        gauge(&mut text, "minke_threads", "Threads, living or not", threads);
        if let Some(jobs) = jobs {
            head(&mut text, "minke_jobs", "Jobs by state", "gauge");
            for (state, count) in jobs {
                line(&mut text, &format!("minke_jobs{{state=\"{state}\"}} {count}"));
            }
        }
        let connections = self.connections.load(Ordering::Relaxed);
        gauge(&mut text, "minke_http_connections", "Open connections", Some(connections));
        let watchers = self.watchers.load(Ordering::Relaxed);
        gauge(&mut text, "minke_event_streams", "Streams of frames that somebody listens to", Some(watchers));
        head(&mut text, "minke_event_streams_cut_total", "Streams that were not read fast enough", "counter");
        line(&mut text, &format!("minke_event_streams_cut_total {}", engine.quiet.cut()));
        head(&mut text, "minke_http_requests_total", "Requests by route and status", "counter");
        for ((route, status), count) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            line(
                &mut text,
                &format!("minke_http_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}"),
            );
        }
        text
    }
}

/// Jobs by state, every state included.
fn jobs(home: &Home) -> Option<BTreeMap<&'static str, u64>> {
    let found = from_index(home, |index| index.jobs(false, JOBS)).ok()?;
    let mut counted: BTreeMap<&'static str, u64> = JobState::ALL.map(|state| (state.name(), 0)).into();
    for summary in &found.value {
        if let Some(job) = object(home, summary).ok()? {
            *counted.entry(job.status.name()).or_default() += 1;
        }
    }
    Some(counted)
}

/// A figure that could not be looked up is left out: a wrong one would be believed.
fn gauge(text: &mut String, name: &str, help: &str, value: Option<impl std::fmt::Display>) {
    let Some(value) = value else { return };
    head(text, name, help, "gauge");
    line(text, &format!("{name} {value}"));
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    line(text, &format!("# HELP {name} {help}"));
    line(text, &format!("# TYPE {name} {kind}"));
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}
