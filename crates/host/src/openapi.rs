//! The OpenAPI document, generated from the table of routes, so that both have the same routes.

use serde_json::{Map, Value, json};

use crate::http::{FieldKind, HttpVerb, ROUTES, Route, RouteField};

/// The statuses other than 200 that every route may return.
const COMMON_STATUSES: &[(u16, &str)] = &[
    (400, "The request is invalid for this route (`invalid_request`)"),
    (401, "The token is missing or wrong"),
    (403, "The request addresses another host, comes from another site's page, or is denied (`denied`)"),
    (404, "The requested object does not exist (`not_found`)"),
    (408, "The body did not arrive in time"),
    (409, "The current state does not allow the request (`conflict`, `already_running`, …)"),
    (411, "The body has no Content-Length"),
    (413, "The body is too large"),
    (414, "The path is too long"),
    (415, "The body is not declared as application/json"),
    (422, "The model refused to answer, or the provider's filter stopped it (`refused`)"),
    (426, "The connection cannot become a WebSocket"),
    (429, "A limit is exceeded (`too_many`)"),
    (500, "An internal error (`internal`, `tool_error`)"),
    (502, "The provider failed (`provider_error`)"),
    (507, "The data could not be stored (`storage_failed`)"),
];

/// Returns the document.
pub fn openapi_document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[verb_name(route)] = route_operation(route);
    }
    for (path, about, kind, query) in EXTRA_ROUTES {
        let mut operation = json!({ "summary": about, "responses": response_schemas(kind) });
        if *path == "/healthz" {
            operation["security"] = json!([]);
        }
        let parameters: Vec<Value> = query
            .iter()
            .map(|(name, must)| parameter_schema(name, "query", *must, FieldKind::Text))
            .collect();
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        paths.insert((*path).to_owned(), json!({ "get": operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Minke host", "version": env!("CARGO_PKG_VERSION") },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Error": {
                "type": "object",
                "properties": { "error": {
                    "type": "object",
                    "properties": { "code": { "type": "string" }, "message": { "type": "string" } },
                    "required": ["code", "message"],
                } },
                "required": ["error"],
            } },
        },
    })
}

/// A route outside the engine: its path, its summary, its content type, and its query.
type ExtraRoute = (&'static str, &'static str, &'static str, &'static [(&'static str, bool)]);

const EXTRA_ROUTES: &[ExtraRoute] = &[
    (
        "/v1/events",
        "Return the frames of a thread as server-sent events",
        "text/event-stream",
        &[("thread", true), ("since", false)],
    ),
    ("/v1/ws", "Open a WebSocket for JSON-RPC 2.0 and frames", "application/json", &[]),
    ("/healthz", "Check that the host is running", "application/json", &[]),
    ("/metrics", "Return metrics in the Prometheus text format", "text/plain", &[]),
    ("/openapi.json", "Return this document", "application/json", &[]),
];

fn verb_name(route: &Route) -> &'static str {
    match route.verb {
        HttpVerb::Get => "get",
        HttpVerb::Post => "post",
    }
}

fn route_operation(route: &Route) -> Value {
    let path_params = route.path_names().map(|name| parameter_schema(name, "path", true, FieldKind::Text));
    let queried =
        route.query.iter().map(|field| parameter_schema(field.name, "query", field.required, field.kind));
    let mut operation = json!({
        "operationId": format!("{}-{}", verb_name(route), route.method.replace('/', "-")),
        "summary": route.summary,
        "parameters": path_params.chain(queried).collect::<Vec<Value>>(),
        "responses": response_schemas("application/json"),
    });
    if route.verb == HttpVerb::Post {
        operation["requestBody"] = json!({
            "required": route.body.iter().any(|field| field.required),
            "content": { "application/json": { "schema": body_schema(route.body) } },
        });
    }
    operation
}

fn parameter_schema(name: &str, location: &str, required: bool, kind: FieldKind) -> Value {
    json!({ "name": name, "in": location, "required": required, "schema": field_schema(kind) })
}

fn body_schema(fields: &[RouteField]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), field_schema(field.kind))).collect();
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn field_schema(kind: FieldKind) -> Value {
    match kind {
        FieldKind::Text => json!({ "type": "string" }),
        FieldKind::Number => json!({ "type": "integer", "minimum": 0 }),
        FieldKind::Flag => json!({ "type": "boolean" }),
        FieldKind::Object => json!({ "type": "object" }),
        FieldKind::List => json!({ "type": "array" }),
        FieldKind::Input => json!({ "type": ["string", "array"] }),
        FieldKind::Any => json!({}),
    }
}

fn response_schemas(kind: &str) -> Value {
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({ "description": "The answer", "content": { kind: {} } }));
    for (status, why) in COMMON_STATUSES {
        let content = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } });
        responses.insert(status.to_string(), json!({ "description": why, "content": content }));
    }
    responses.into()
}
