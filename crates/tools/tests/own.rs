//! Internal tools: the calls that the core gets, and invalid arguments.

use std::path::Path;
use std::sync::Arc;

use minke_record::{Action, Class, InternalCall, Scope, TaskStatus};
use minke_tool::{CommandEventSink, Tool, ToolContext, ToolError, ToolInvocation};
use serde_json::json;

const DESCRIPTION_BYTES: usize = 500;

fn find_tool(name: &str) -> Arc<dyn Tool> {
    minke_tools::internal_tools().into_iter().find(|tool| tool.spec().name == name).expect("the tool exists")
}

fn test_place() -> ToolContext {
    ToolContext { cwd: Path::new("/w").to_owned(), scope: Scope::writable("/w") }
}

fn parse_call(name: &str, arguments: &str) -> Result<InternalCall, ToolError> {
    let tool = find_tool(name);
    let own = tool.internal_call(arguments).map(|own| own.expect("the core executes it"));
    let prepared = tool.prepare(arguments, &test_place());
    match &own {
        Ok(_) => assert_eq!(prepared, Ok(Action::default()), "{name}"),
        Err(e) => assert_eq!(prepared.as_ref(), Err(e), "{name}"),
    }
    own
}

#[test]
fn the_mind_is_asked_for_what_the_model_said() {
    assert_eq!(
        parse_call("TaskCreate", r#"{"subject":"find it","description":"the bug"}"#),
        Ok(InternalCall::TaskCreate { subject: "find it".into(), description: Some("the bug".into()) })
    );
    assert_eq!(
        parse_call("TaskCreate", r#"{"subject":"find it","description":null}"#),
        Ok(InternalCall::TaskCreate { subject: "find it".into(), description: None })
    );
    let update = |arguments: &str| parse_call("TaskUpdate", arguments);
    for status in TaskStatus::KNOWN {
        let arguments = json!({ "id": 3, "status": status }).to_string();
        let wanted = InternalCall::TaskUpdate {
            id: 3,
            subject: None,
            description: None,
            status: Some(status.clone()),
        };
        assert_eq!(update(&arguments), Ok(wanted));
    }
    assert_eq!(
        update(r#"{"id":3,"subject":"x","description":""}"#),
        Ok(InternalCall::TaskUpdate {
            id: 3,
            subject: Some("x".into()),
            description: Some(String::new()),
            status: None
        })
    );
    assert_eq!(parse_call("TaskList", "{}"), Ok(InternalCall::TaskList));
    assert_eq!(parse_call("TaskList", ""), Ok(InternalCall::TaskList));
    assert_eq!(
        parse_call("TaskGet", r#"{"id":18446744073709551615}"#),
        Ok(InternalCall::TaskGet { id: u64::MAX })
    );
    assert_eq!(
        parse_call("AskUser", r#"{"question":"which?","options":["a","b"]}"#),
        Ok(InternalCall::AskUser { question: "which?".into(), options: vec!["a".into(), "b".into()] })
    );
    assert_eq!(
        parse_call("AskUser", r#"{"question":"why?"}"#),
        Ok(InternalCall::AskUser { question: "why?".into(), options: Vec::new() })
    );
}

/// Texts of the maximum length, and one byte longer.
#[test]
fn bounds_are_counted_in_bytes() {
    let cases = [
        ("TaskCreate", "subject", 200),
        ("TaskUpdate", "subject", 200),
        ("TaskUpdate", "description", 4096),
        ("AskUser", "question", 4096),
    ];
    for (name, key, most) in cases {
        for unit in ["x", "ü"] {
            let fits = unit.repeat(most / unit.len());
            let with = |text: &str| {
                let mut arguments = json!({ key: text });
                if name == "TaskUpdate" {
                    arguments["id"] = 1.into();
                }
                parse_call(name, &arguments.to_string())
            };
            with(&fits).unwrap();
            let Err(ToolError::InvalidArguments(why)) = with(&format!("{fits}x")) else {
                panic!("{name} {key}")
            };
            assert!(why.contains(key) && why.contains(&most.to_string()), "{why}");
        }
    }
    let options = |count: usize, bytes: usize| {
        let options: Vec<String> = (0..count).map(|n| format!("{n:0>bytes$}")).collect();
        parse_call("AskUser", &json!({ "question": "?", "options": options }).to_string())
    };
    options(8, 200).unwrap();
    options(9, 200).unwrap_err();
    options(8, 201).unwrap_err();
}

#[test]
fn every_bad_argument_is_told_in_words() {
    let huge = json!({ "subject": "x".repeat(4 << 20) }).to_string();
    let deep = "[".repeat(100_000);
    // The tool, its arguments, and a word of the expected error.
    let cases = [
        ("TaskCreate", "", "arguments of TaskCreate"),
        ("TaskCreate", "null", "arguments of TaskCreate"),
        ("TaskCreate", "[]", "arguments of TaskCreate"),
        ("TaskCreate", "\"x\"", "arguments of TaskCreate"),
        ("TaskCreate", "{", "arguments of TaskCreate"),
        ("TaskCreate", "{}", "subject"),
        ("TaskCreate", r#"{"subject":7}"#, "string"),
        ("TaskCreate", r#"{"subject":null}"#, "string"),
        ("TaskCreate", r#"{"subject":""}"#, "empty"),
        ("TaskCreate", r#"{"subject":" \t "}"#, "empty"),
        ("TaskCreate", r#"{"subject":"a\nb"}"#, "one"),
        ("TaskCreate", r#"{"subject":"a\u0000b"}"#, "NUL"),
        ("TaskCreate", r#"{"subject":"a","description":[]}"#, "string"),
        ("TaskCreate", r#"{"subject":"a","status":"pending"}"#, "status"),
        ("TaskCreate", r#"{"subject":"a","subject":"b"}"#, "subject"),
        ("TaskCreate", &huge, "200"),
        ("TaskCreate", &deep, "arguments of TaskCreate"),
        ("TaskUpdate", r#"{"status":"completed"}"#, "id"),
        ("TaskUpdate", r#"{"id":"1","status":"completed"}"#, "expected u64"),
        ("TaskUpdate", r#"{"id":1.5,"status":"completed"}"#, "expected u64"),
        ("TaskUpdate", r#"{"id":-1,"status":"completed"}"#, "expected u64"),
        ("TaskUpdate", r#"{"id":18446744073709551616,"status":"completed"}"#, "expected u64"),
        ("TaskUpdate", r#"{"id":1}"#, "changes nothing"),
        ("TaskUpdate", r#"{"id":1,"status":null}"#, "changes nothing"),
        ("TaskUpdate", r#"{"id":1,"status":"done"}"#, "pending, in_progress, completed, deleted"),
        ("TaskUpdate", r#"{"id":1,"status":"COMPLETED"}"#, "pending, in_progress, completed, deleted"),
        ("TaskUpdate", r#"{"id":1,"status":""}"#, "pending, in_progress, completed, deleted"),
        ("TaskUpdate", r#"{"id":1,"state":"completed"}"#, "state"),
        ("TaskGet", "{}", "id"),
        ("TaskGet", r#"{"id":null}"#, "u64"),
        ("TaskGet", r#"{"id":1,"all":true}"#, "all"),
        ("TaskList", r#"{"id":1}"#, "id"),
        ("TaskList", "[1]", "arguments of TaskList"),
        ("AskUser", "{}", "question"),
        ("AskUser", r#"{"question":""}"#, "empty"),
        ("AskUser", r#"{"question":"?","options":"a"}"#, "sequence"),
        ("AskUser", r#"{"question":"?","options":[1]}"#, "string"),
        ("AskUser", r#"{"question":"?","options":["a"," "]}"#, "`options[1]` is empty: give an answer"),
        ("AskUser", r#"{"question":"?","options":["a","a"]}"#, "twice"),
        ("AskUser", r#"{"question":"?","options":["a\nb"]}"#, "one"),
    ];
    for (name, arguments, word) in cases {
        let Err(ToolError::InvalidArguments(why)) = parse_call(name, arguments) else {
            panic!("{name} took {}", arguments.chars().take(80).collect::<String>())
        };
        assert!(why.contains(word), "{name}: {why}");
        assert!(why.len() < 400, "{name}: {why}");
    }
}

#[tokio::test]
async fn they_are_pure_and_short_and_never_run() {
    let tools = minke_tools::internal_tools();
    let names: Vec<String> = tools.iter().map(|tool| tool.spec().name).collect();
    assert_eq!(names, ["AskUser", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate"]);
    for tool in tools {
        let spec = tool.spec();
        assert_eq!(tool.class(), Class::Pure);
        assert_eq!(spec.schema["additionalProperties"], false);
        assert!(!spec.description.is_empty() && spec.description.len() <= DESCRIPTION_BYTES, "{}", spec.name);
        assert!(!spec.description.contains("  "), "{}: {}", spec.name, spec.description);
        let call = ToolInvocation::new("c", test_place(), CommandEventSink::discard());
        let Err(ToolError::Internal(why)) = tool.execute("{}", &call).await else {
            panic!("{} ran", spec.name)
        };
        assert!(why.contains(&spec.name), "{why}");
    }
}
