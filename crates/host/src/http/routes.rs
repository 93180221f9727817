//! The table of routes: maps each path to a method of the engine, and describes its path, query and body.
//!
//! The server and its OpenAPI document are generated from it, so both have the same routes
//! (`every_documented_route_answers_as_documented`).

use serde_json::Value;

/// The HTTP method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVerb {
    Get,
    Post,
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Text,
    Number,
    Flag,
    Object,
    List,
    /// A text, or a list of input segments.
    Input,
    Any,
}

/// A field of a request.
#[derive(Debug, Clone, Copy)]
pub struct RouteField {
    pub name: &'static str,
    pub kind: FieldKind,
    pub required: bool,
}

/// One route.
#[derive(Debug)]
pub struct Route {
    pub verb: HttpVerb,
    pub path: &'static str,
    /// The method name in the engine and in JSON-RPC.
    pub method: &'static str,
    pub summary: &'static str,
    pub query: &'static [RouteField],
    pub body: &'static [RouteField],
}

const fn required_field(name: &'static str, kind: FieldKind) -> RouteField {
    RouteField { name, kind, required: true }
}

const fn optional_field(name: &'static str, kind: FieldKind) -> RouteField {
    RouteField { name, kind, required: false }
}

const fn get_route(
    path: &'static str,
    method: &'static str,
    summary: &'static str,
    query: &'static [RouteField],
) -> Route {
    Route { verb: HttpVerb::Get, path, method, summary, query, body: &[] }
}

const fn post_route(
    path: &'static str,
    method: &'static str,
    about: &'static str,
    body: &'static [RouteField],
) -> Route {
    Route { verb: HttpVerb::Post, path, method, summary: about, query: &[], body }
}

use FieldKind::{Any, Flag, Input, List, Number, Object, Text};

/// Every route that calls the engine. The others (frames, health, metrics, the document) are in
/// `HttpServer::build_router`.
pub const ROUTES: &[Route] = &[
    post_route(
        "/v1/thread",
        "thread",
        "Execute one request about threads, selected by `kind`",
        &[
            required_field("kind", Text),
            optional_field("thread_id", Text),
            optional_field("model", Text),
            optional_field("model_provider", Text),
            optional_field("cwd", Text),
            optional_field("profile", Text),
            optional_field("name", Text),
            optional_field("metadata", Any),
            optional_field("mandate", Object),
            optional_field("ephemeral", Flag),
            optional_field("history", List),
            optional_field("approval_policy", Text),
            optional_field("sandbox", Text),
            optional_field("at_seq", Number),
            optional_field("include_archived", Flag),
            optional_field("limit", Number),
            optional_field("cursor", Text),
            optional_field("status", Text),
            optional_field("query", Text),
            optional_field("from_seq", Number),
            optional_field("input", Input),
            optional_field("mode", Text),
            optional_field("op_id", Text),
            optional_field("objective", Text),
            optional_field("budget", Any),
            optional_field("checkpoint_id", Text),
            optional_field("state", Any),
            optional_field("persist_extended_history", Flag),
        ],
    ),
    post_route(
        "/v1/prompt",
        "prompt",
        "Run one prompt and return the answer",
        &[
            optional_field("thread_id", Text),
            required_field("prompt", Text),
            optional_field("model", Text),
            optional_field("cwd", Text),
        ],
    ),
    post_route(
        "/v1/tool/invoke",
        "tool/invoke",
        "Call a tool with the permissions of the thread's pod",
        &[required_field("thread_id", Text), required_field("call", Object), optional_field("cwd", Text)],
    ),
    post_route(
        "/v1/approval/answer",
        "approval/answer",
        "Answer the ask of a waiting call",
        &[required_field("approval_id", Text), required_field("decision", Any), optional_field("note", Text)],
    ),
    get_route("/v1/asks", "asks", "List the open asks of all threads", &[]),
    post_route(
        "/v1/asks/{id}",
        "asks/answer",
        "Answer an ask",
        &[required_field("decision", Any), optional_field("note", Text)],
    ),
    get_route("/v1/jobs", "jobs", "List jobs, last changed first", &[optional_field("limit", Number)]),
    post_route(
        "/v1/jobs",
        "jobs/start",
        "Start a job: a `start` with a required mandate",
        &[
            required_field("mandate", Object),
            optional_field("model", Text),
            optional_field("model_provider", Text),
            optional_field("cwd", Text),
            optional_field("profile", Text),
            optional_field("name", Text),
            optional_field("metadata", Any),
        ],
    ),
    get_route("/v1/jobs/{id}", "jobs/get", "Return one job", &[]),
    post_route("/v1/jobs/{id}/cancel", "jobs/cancel", "Cancel a job", &[optional_field("detail", Text)]),
    post_route(
        "/v1/jobs/{id}/pause",
        "jobs/pause",
        "Pause a job at a safe point",
        &[optional_field("detail", Text)],
    ),
    post_route("/v1/jobs/{id}/resume", "jobs/resume", "Resume a job", &[optional_field("detail", Text)]),
    post_route("/v1/jobs/{id}/retry", "jobs/retry", "Restart a finished job as a fork", &[]),
    post_route(
        "/v1/jobs/{id}/progress",
        "jobs/progress",
        "Report the progress of a job",
        &[required_field("progress", Number), optional_field("detail", Text)],
    ),
    get_route("/v1/status", "status", "List the newest jobs", &[optional_field("limit", Number)]),
    get_route("/v1/pods", "pods", "List live pods", &[]),
    get_route("/v1/pods/{name}", "pods/get", "Return one live pod", &[]),
    post_route(
        "/v1/pods/{name}/stop",
        "pods/stop",
        "Stop the process of a pod; its session remains",
        &[optional_field("mode", Text)],
    ),
    post_route(
        "/v1/pods/{name}/send",
        "pods/send",
        "Send a message to a pod",
        &[required_field("input", Input), optional_field("mode", Text), optional_field("op_id", Text)],
    ),
    get_route("/v1/models", "models", "Return the model catalog", &[]),
    get_route(
        "/v1/config",
        "config",
        "List every key with its value and its origin",
        &[optional_field("cwd", Text)],
    ),
    post_route(
        "/v1/config",
        "config/set",
        "Change the user's configuration",
        &[required_field("key", Text), optional_field("value", Any)],
    ),
];

impl Route {
    /// Returns the parameter names in its path.
    pub fn path_names(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Parses a query parameter into its type.
    pub(crate) fn parse_query_value(&self, name: &str, text: &str) -> Result<Value, String> {
        let shown_name: String = name.chars().take(64).collect();
        let Some(field) = self.query.iter().find(|field| field.name == name) else {
            return Err(format!("unknown query parameter `{shown_name}`"));
        };
        let wrong = |expected: &str| format!("`{shown_name}` must be {expected}");
        match field.kind {
            FieldKind::Number => text.parse::<u64>().map(Value::from).map_err(|_| wrong("a number")),
            FieldKind::Flag => text.parse::<bool>().map(Value::from).map_err(|_| wrong("true or false")),
            FieldKind::Text | FieldKind::Object | FieldKind::List | FieldKind::Input | FieldKind::Any => {
                Ok(text.into())
            }
        }
    }
}
