//! The table of routes: which path is which method of the engine, and what its path, query and body hold.
//!
//! The server and its OpenAPI document are made from it, so that neither knows a route that the other does not
//! (`every_documented_route_answers_as_documented`).

use serde_json::Value;

/// How a route is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
}

/// What a member holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    Flag,
    Object,
    List,
    /// Text, or a list of input segments.
    Input,
    Any,
}

/// A member of a request.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
}

/// One route.
#[derive(Debug)]
pub struct Route {
    pub verb: Verb,
    pub path: &'static str,
    /// The engine's name of it, which is also that of JSON-RPC.
    pub method: &'static str,
    pub about: &'static str,
    pub query: &'static [Field],
    pub body: &'static [Field],
}

const fn must(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: true }
}

const fn may(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: false }
}

const fn get(
    path: &'static str,
    method: &'static str,
    about: &'static str,
    query: &'static [Field],
) -> Route {
    Route { verb: Verb::Get, path, method, about, query, body: &[] }
}

const fn post(
    path: &'static str,
    method: &'static str,
    about: &'static str,
    body: &'static [Field],
) -> Route {
    Route { verb: Verb::Post, path, method, about, query: &[], body }
}

use Kind::{Any, Flag, Input, List, Number, Object, Text};

/// Every route that is a method of the engine. The others (frames, health, metrics, the document) are in `Door::router`.
pub const ROUTES: &[Route] = &[
    post(
        "/v1/thread",
        "thread",
        "One request about threads; `kind` says which",
        &[
            must("kind", Text),
            may("thread_id", Text),
            may("model", Text),
            may("model_provider", Text),
            may("cwd", Text),
            may("profile", Text),
            may("name", Text),
            may("metadata", Any),
            may("mandate", Object),
            may("ephemeral", Flag),
            may("history", List),
            may("approval_policy", Text),
            may("sandbox", Text),
            may("at_seq", Number),
            may("include_archived", Flag),
            may("limit", Number),
            may("cursor", Text),
            may("status", Text),
            may("query", Text),
            may("from_seq", Number),
            may("input", Input),
            may("mode", Text),
            may("op_id", Text),
            may("objective", Text),
            may("budget", Any),
            may("checkpoint_id", Text),
            may("state", Any),
            may("persist_extended_history", Flag),
        ],
    ),
    post(
        "/v1/prompt",
        "prompt",
        "Runs one answer and returns it",
        &[may("thread_id", Text), must("prompt", Text), may("model", Text), may("cwd", Text)],
    ),
    post(
        "/v1/tool/invoke",
        "tool/invoke",
        "One call of a tool, through the gate of the thread's pod",
        &[must("thread_id", Text), must("call", Object), may("cwd", Text)],
    ),
    post(
        "/v1/approval/answer",
        "approval/answer",
        "Goes on with a call that waits",
        &[must("approval_id", Text), must("decision", Any), may("note", Text)],
    ),
    get("/v1/asks", "asks", "Open questions of all threads", &[]),
    post("/v1/asks/{id}", "asks/answer", "Answers a question", &[must("decision", Any), may("note", Text)]),
    get("/v1/jobs", "jobs", "Jobs, the one that changed last first", &[may("limit", Number)]),
    post(
        "/v1/jobs",
        "jobs/start",
        "A new job: a `start` whose mandate is required",
        &[
            must("mandate", Object),
            may("model", Text),
            may("model_provider", Text),
            may("cwd", Text),
            may("profile", Text),
            may("name", Text),
            may("metadata", Any),
        ],
    ),
    get("/v1/jobs/{id}", "jobs/get", "One job", &[]),
    post("/v1/jobs/{id}/cancel", "jobs/cancel", "Ends a job", &[may("detail", Text)]),
    post("/v1/jobs/{id}/pause", "jobs/pause", "Stops a job at a safe point", &[may("detail", Text)]),
    post("/v1/jobs/{id}/resume", "jobs/resume", "Goes on with a job", &[may("detail", Text)]),
    post("/v1/jobs/{id}/retry", "jobs/retry", "Begins a finished job again, as a fork", &[]),
    post(
        "/v1/jobs/{id}/progress",
        "jobs/progress",
        "Says how far a job is",
        &[must("progress", Number), may("detail", Text)],
    ),
    get("/v1/status", "status", "The newest jobs at a glance", &[may("limit", Number)]),
    get("/v1/pods", "pods", "Live pods", &[]),
    get("/v1/pods/{name}", "pods/get", "One live pod", &[]),
    post(
        "/v1/pods/{name}/stop",
        "pods/stop",
        "Ends the process of a pod; its session stays",
        &[may("mode", Text)],
    ),
    post(
        "/v1/pods/{name}/send",
        "pods/send",
        "Says something to a pod",
        &[must("input", Input), may("mode", Text), may("op_id", Text)],
    ),
    get("/v1/models", "models", "The catalog", &[]),
    get("/v1/config", "config", "Every key with its value and its origin", &[may("cwd", Text)]),
    post(
        "/v1/config",
        "config/set",
        "Changes the person's own configuration",
        &[must("key", Text), may("value", Any)],
    ),
];

impl Route {
    /// The names in its path.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// A member of the query, as the value that it is.
    pub(crate) fn query(&self, name: &str, text: &str) -> Result<Value, String> {
        let shown: String = name.chars().take(64).collect();
        let Some(field) = self.query.iter().find(|field| field.name == name) else {
            return Err(format!("the query has an unknown member `{shown}`"));
        };
        let wrong = |what: &str| format!("`{shown}` must be {what}");
        match field.kind {
            Kind::Number => text.parse::<u64>().map(Value::from).map_err(|_| wrong("a number")),
            Kind::Flag => text.parse::<bool>().map(Value::from).map_err(|_| wrong("true or false")),
            Kind::Text | Kind::Object | Kind::List | Kind::Input | Kind::Any => Ok(text.into()),
        }
    }
}
