//! Metrics of a host in the Prometheus text format. They are only served on request and never sent anywhere.
//!
//! Here: the counters, and the text. The numbers of pods and threads are determined for each request.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minke_client::UserHome;
use minke_record::JobState;
use minke_registry::RuntimeDir;

use crate::engine::Engine;
use crate::jobs::job_object;
use crate::threads::lists::query_index;

/// The maximum number of counted jobs.
const MAX_COUNTED_JOBS: usize = 100_000;

/// The counters. Labels are routes of the table and status codes, so their number is limited.
#[derive(Debug)]
pub struct HostMetrics {
    started_at: Instant,
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    connections: AtomicI64,
    subscribers: Arc<AtomicI64>,
    /// When the last connection was opened or closed.
    last_activity: Mutex<Instant>,
}

impl Default for HostMetrics {
    fn default() -> HostMetrics {
        let now = Instant::now();
        HostMetrics {
            started_at: now,
            requests: Mutex::default(),
            connections: AtomicI64::new(0),
            subscribers: Arc::default(),
            last_activity: Mutex::new(now),
        }
    }
}

/// Counts a subscriber until it is dropped.
#[derive(Debug)]
pub(crate) struct SubscriberGuard(Arc<AtomicI64>);

impl Drop for SubscriberGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HostMetrics {
    pub(crate) fn count_request(&self, route: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route, status)).or_default() += 1;
    }

    pub(crate) fn change_connections(&self, change: i64) {
        self.connections.fetch_add(change, Ordering::Relaxed);
        *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn count_subscriber(&self) -> SubscriberGuard {
        self.subscribers.fetch_add(1, Ordering::Relaxed);
        SubscriberGuard(self.subscribers.clone())
    }

    /// Returns how long there has been no connection.
    pub fn idle_time(&self) -> Duration {
        if self.connections.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.last_activity.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(crate) async fn render_text(&self, engine: &Engine) -> String {
        let home = engine.home.clone();
        let counted = tokio::task::spawn_blocking(move || {
            let pods = RuntimeDir::new(&home.paths)
                .take_snapshot()
                .map(|registry_look| registry_look.live.len())
                .ok();
            (pods, home.store.list_sessions().map(|all| all.len()).ok(), count_jobs_by_state(&home))
        });
        let (pods, threads, jobs) = counted.await.unwrap_or_default();
        let mut text = String::new();
        write_gauge(
            &mut text,
            "minke_up_seconds",
            "Uptime of this host",
            Some(self.started_at.elapsed().as_secs()),
        );
        write_gauge(&mut text, "minke_pods", "Live pods", pods);
        write_gauge(&mut text, "minke_threads", "Threads, with or without a pod", threads);
        if let Some(jobs) = jobs {
            write_header(&mut text, "minke_jobs", "Jobs by state", "gauge");
            for (state, count) in jobs {
                write_line(&mut text, &format!("minke_jobs{{state=\"{state}\"}} {count}"));
            }
        }
        let connections = self.connections.load(Ordering::Relaxed);
        write_gauge(&mut text, "minke_http_connections", "Open connections", Some(connections));
        let watchers = self.subscribers.load(Ordering::Relaxed);
        write_gauge(&mut text, "minke_event_streams", "Open streams of frames", Some(watchers));
        write_header(
            &mut text,
            "minke_event_streams_cut_total",
            "Streams closed because the client was too slow",
            "counter",
        );
        write_line(
            &mut text,
            &format!("minke_event_streams_cut_total {}", engine.fold_cache.slow_client_count()),
        );
        write_header(&mut text, "minke_http_requests_total", "Requests by route and status", "counter");
        for ((route, status), count) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            write_line(
                &mut text,
                &format!("minke_http_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}"),
            );
        }
        text
    }
}

/// Returns the number of jobs in every state.
fn count_jobs_by_state(home: &UserHome) -> Option<BTreeMap<&'static str, u64>> {
    let index_answer = query_index(home, |index| index.list_jobs(false, MAX_COUNTED_JOBS)).ok()?;
    let mut counted: BTreeMap<&'static str, u64> = JobState::ALL.map(|state| (state.state_name(), 0)).into();
    for summary in &index_answer.value {
        if let Some(job) = job_object(home, summary).ok()? {
            *counted.entry(job.status.state_name()).or_default() += 1;
        }
    }
    Some(counted)
}

/// Writes a gauge. Omits an unknown value: a wrong one would mislead.
fn write_gauge(text: &mut String, name: &str, help: &str, value: Option<impl std::fmt::Display>) {
    let Some(value) = value else { return };
    write_header(text, name, help, "gauge");
    write_line(text, &format!("{name} {value}"));
}

fn write_header(text: &mut String, name: &str, help: &str, kind: &str) {
    write_line(text, &format!("# HELP {name} {help}"));
    write_line(text, &format!("# TYPE {name} {kind}"));
}

fn write_line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a string does not fail");
}
