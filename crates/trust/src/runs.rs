//! Runs: what hooks and servers of a workspace would start, read out of their files for the person who decides.
//!
//! Nothing is checked here and nothing is decided by it: that is done by whoever uses the file. Invariant: what is shown
//! is bounded and can be shown as it is (`a_hostile_file_is_told_in_plain_lines`).

use serde_json::Value as Json;
use toml::Value as Toml;

use crate::found::Kind;
use crate::limits::{LINE_CHARS, LINES};
use crate::words::shown;

/// What one file would run, a line each.
pub(crate) fn runs(kind: Kind, text: &str) -> Vec<String> {
    let lines = match kind {
        Kind::Hooks => hooks(text),
        Kind::Servers => servers(text),
        _ => Vec::new(),
    };
    let all = lines.len();
    let mut lines: Vec<String> =
        lines.into_iter().take(LINES).map(|line| shown(line.as_bytes(), LINE_CHARS)).collect();
    if all > LINES {
        lines.push(format!("and {} more", all - LINES));
    }
    lines
}

fn hooks(text: &str) -> Vec<String> {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(e) => return vec![format!("cannot be read as TOML: {}", e.message())],
    };
    let hooks = table.get("hook").and_then(Toml::as_array).map(Vec::as_slice).unwrap_or_default();
    hooks.iter().map(hook).collect()
}

fn hook(hook: &Toml) -> String {
    let said = |key: &str| hook.get(key).and_then(Toml::as_str);
    let event = said("event").unwrap_or("an event without a name");
    let handler = [
        ("command", "runs"),
        ("http", "sends it to"),
        ("file", "appends it to"),
        ("socket", "sends it to the socket"),
    ];
    let does: Vec<String> =
        handler.into_iter().filter_map(|(key, does)| Some(format!("{does} `{}`", said(key)?))).collect();
    if does.is_empty() {
        format!("{event}: names no handler")
    } else {
        format!("{event}: {}", does.join(", "))
    }
}

fn servers(text: &str) -> Vec<String> {
    let file: Json = match serde_json::from_str(text) {
        Ok(file) => file,
        Err(e) => return vec![format!("cannot be read as JSON: {e}")],
    };
    let servers = ["mcpServers", "servers"].iter().find_map(|key| file.get(key)).and_then(Json::as_object);
    servers.into_iter().flatten().map(|(name, server)| format!("server {name}: {}", serves(server))).collect()
}

fn serves(server: &Json) -> String {
    let said = |key: &str| server.get(key).and_then(Json::as_str);
    match (said("command"), said("url")) {
        (Some(command), _) => {
            let args = server.get("args").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
            let words: Vec<&str> =
                std::iter::once(command).chain(args.iter().filter_map(Json::as_str)).collect();
            format!("starts `{}`", words.join(" "))
        }
        (None, Some(url)) => format!("connects to {url}"),
        (None, None) => "names neither a command nor an address".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::hidden;

    #[test]
    fn hooks_and_servers_say_what_they_would_run() {
        let hooks = "[[hook]]\nevent = \"before_tool\"\ncommand = \"./check.sh\"\n[[hook]]\nevent = \"run_end\"\nhttp = \"https://x.example\"\n[[hook]]\nfile = \"/x\"\n[[hook]]\nevent=\"ask\"\n";
        assert_eq!(
            runs(Kind::Hooks, hooks),
            [
                "before_tool: runs `./check.sh`",
                "run_end: sends it to `https://x.example`",
                "an event without a name: appends it to `/x`",
                "ask: names no handler"
            ]
        );
        let servers = r#"{"mcpServers":{"git":{"command":"npx","args":["-y","git-mcp"]},"far":{"url":"https://x.example/mcp"},"odd":{}}}"#;
        assert_eq!(
            runs(Kind::Servers, servers),
            [
                "server git: starts `npx -y git-mcp`",
                "server far: connects to https://x.example/mcp",
                "server odd: names neither a command nor an address"
            ]
        );
    }

    #[test]
    fn a_hostile_file_is_told_in_plain_lines() {
        let many = "[[hook]]\nevent = \"ask\"\ncommand = \"x\"\n".repeat(1_000);
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let escapes = "[[hook]]\nevent = \"\\u001b]0;x\\u0007\"\ncommand = \"a\\nb\"\n";
        let long = format!("[[hook]]\nevent = \"ask\"\ncommand = \"{}\"\n", "y".repeat(100_000));
        for text in
            [many.as_str(), &format!("x = {deep}"), escapes, &long, "\u{1b}", "", "hook = 7", "hook = [7]"]
        {
            let lines = runs(Kind::Hooks, text);
            assert!(lines.len() <= LINES + 1);
            assert!(lines.iter().all(|line| line.chars().count() <= LINE_CHARS * 10), "{lines:?}");
            assert!(!lines.concat().chars().any(hidden), "{lines:?}");
        }
        for text in [
            deep.as_str(),
            "",
            "[]",
            "{\"mcpServers\":[1]}",
            "{\"mcpServers\":{\"\\u001b\":{\"command\":\"\\n\"}}}",
        ] {
            let lines = runs(Kind::Servers, text);
            assert!(!lines.concat().chars().any(hidden), "{lines:?}");
        }
    }
}
