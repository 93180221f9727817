//! The OpenAPI document, made from the table of routes: it cannot name what is not served, or leave out what is.

use serde_json::{Map, Value, json};

use crate::http::{Field, Kind, ROUTES, Route, Verb};

/// Statuses that every route may answer with beside 200, and why.
const STATUSES: &[(u16, &str)] = &[
    (400, "The request is not one of this route (`invalid_request`)"),
    (401, "No token, or not the right one"),
    (403, "Not addressed to this host, from another site's page, or denied (`denied`)"),
    (404, "There is no such thing (`not_found`)"),
    (408, "The body did not come in time"),
    (409, "It is not the moment for that (`conflict`, `already_running`, …)"),
    (411, "A body without Content-Length"),
    (413, "The body is too large"),
    (414, "The path is too long"),
    (415, "The body is not declared as application/json"),
    (422, "The model refused to answer, or the provider's filter stopped it (`refused`)"),
    (426, "The connection cannot become a WebSocket"),
    (429, "Too many (`too_many`)"),
    (500, "Something here failed (`internal`, `tool_error`)"),
    (502, "The provider failed (`provider_error`)"),
    (507, "It could not be stored (`storage_failed`)"),
];

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[verb(route)] = operation(route);
    }
    for (path, about, kind, query) in OTHERS {
        let mut operation = json!({ "summary": about, "responses": responses(kind) });
        if *path == "/healthz" {
            operation["security"] = json!([]);
        }
        let parameters: Vec<Value> =
            query.iter().map(|(name, must)| parameter(name, "query", *must, Kind::Text)).collect();
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

/// A route that is no method of the engine: its path, what it is, what it gives, and its query.
type Other = (&'static str, &'static str, &'static str, &'static [(&'static str, bool)]);

const OTHERS: &[Other] = &[
    (
        "/v1/events",
        "Frames of a thread, as server-sent events",
        "text/event-stream",
        &[("thread", true), ("since", false)],
    ),
    ("/v1/ws", "JSON-RPC 2.0 and frames over a WebSocket", "application/json", &[]),
    ("/healthz", "Whether somebody is here", "application/json", &[]),
    ("/metrics", "Figures in Prometheus' text form", "text/plain", &[]),
    ("/openapi.json", "This document", "application/json", &[]),
];

fn verb(route: &Route) -> &'static str {
    match route.verb {
        Verb::Get => "get",
        Verb::Post => "post",
    }
}

fn operation(route: &Route) -> Value {
    let named = route.names().map(|name| parameter(name, "path", true, Kind::Text));
    let queried = route.query.iter().map(|field| parameter(field.name, "query", field.required, field.kind));
    let mut operation = json!({
        "operationId": format!("{}-{}", verb(route), route.method.replace('/', "-")),
        "summary": route.about,
        "parameters": named.chain(queried).collect::<Vec<Value>>(),
        "responses": responses("application/json"),
    });
    if route.verb == Verb::Post {
        operation["requestBody"] = json!({
            "required": route.body.iter().any(|field| field.required),
            "content": { "application/json": { "schema": body(route.body) } },
        });
    }
    operation
}

fn parameter(name: &str, place: &str, required: bool, kind: Kind) -> Value {
    json!({ "name": name, "in": place, "required": required, "schema": schema(kind) })
}

fn body(fields: &[Field]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), schema(field.kind))).collect();
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Number => json!({ "type": "integer", "minimum": 0 }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Object => json!({ "type": "object" }),
        Kind::List => json!({ "type": "array" }),
        Kind::Input => json!({ "type": ["string", "array"] }),
        Kind::Any => json!({}),
    }
}

fn responses(kind: &str) -> Value {
    let mut responses = Map::new();
    responses.insert("200".to_owned(), json!({ "description": "The answer", "content": { kind: {} } }));
    for (status, why) in STATUSES {
        let content = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } });
        responses.insert(status.to_string(), json!({ "description": why, "content": content }));
    }
    responses.into()
}
