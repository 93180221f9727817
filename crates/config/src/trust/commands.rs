//! Lists the commands that hooks and servers of a workspace would start, for the trust decision.
//!
//! Validates nothing; the crates that use the files do that. Invariant: the lines are limited and safe to
//! display (`a_hostile_file_is_told_in_plain_lines`).

use serde_json::Value as Json;
use toml::Value as Toml;

use crate::trust::inventory::InventoryKind;
use crate::trust::limits::{MAX_COMMAND_LINES, MAX_LINE_CHARS};
use crate::trust::sanitize::sanitize_bytes;

/// Returns the commands of one file, one per line.
pub(crate) fn list_commands(kind: InventoryKind, text: &str) -> Vec<String> {
    let lines = match kind {
        InventoryKind::Hooks => hook_commands(text),
        InventoryKind::Servers => server_commands(text),
        _ => Vec::new(),
    };
    let all = lines.len();
    let mut lines: Vec<String> = lines
        .into_iter()
        .take(MAX_COMMAND_LINES)
        .map(|line| sanitize_bytes(line.as_bytes(), MAX_LINE_CHARS))
        .collect();
    if all > MAX_COMMAND_LINES {
        lines.push(format!("and {} more", all - MAX_COMMAND_LINES));
    }
    lines
}

fn hook_commands(text: &str) -> Vec<String> {
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(e) => return vec![format!("invalid TOML: {}", e.message())],
    };
    let hooks = table.get("hook").and_then(Toml::as_array).map(Vec::as_slice).unwrap_or_default();
    hooks.iter().map(hook_command).collect()
}

fn hook_command(hook: &Toml) -> String {
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

fn server_commands(text: &str) -> Vec<String> {
    let file: Json = match serde_json::from_str(text) {
        Ok(file) => file,
        Err(e) => return vec![format!("invalid JSON: {e}")],
    };
    let servers = ["mcpServers", "servers"].iter().find_map(|key| file.get(key)).and_then(Json::as_object);
    servers
        .into_iter()
        .flatten()
        .map(|(name, server)| format!("server {name}: {}", server_command(server)))
        .collect()
}

fn server_command(server: &Json) -> String {
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
    use crate::trust::sanitize::is_invisible;

    #[test]
    fn hooks_and_servers_say_what_they_would_run() {
        let hooks = "[[hook]]\nevent = \"before_tool\"\ncommand = \"./check.sh\"\n[[hook]]\nevent = \"run_end\"\nhttp = \"https://x.example\"\n[[hook]]\nfile = \"/x\"\n[[hook]]\nevent=\"ask\"\n";
        assert_eq!(
            list_commands(InventoryKind::Hooks, hooks),
            [
                "before_tool: runs `./check.sh`",
                "run_end: sends it to `https://x.example`",
                "an event without a name: appends it to `/x`",
                "ask: names no handler"
            ]
        );
        let servers = r#"{"mcpServers":{"git":{"command":"npx","args":["-y","git-mcp"]},"far":{"url":"https://x.example/mcp"},"odd":{}}}"#;
        assert_eq!(
            list_commands(InventoryKind::Servers, servers),
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
            let lines = list_commands(InventoryKind::Hooks, text);
            assert!(lines.len() <= MAX_COMMAND_LINES + 1);
            assert!(lines.iter().all(|line| line.chars().count() <= MAX_LINE_CHARS * 10), "{lines:?}");
            assert!(!lines.concat().chars().any(is_invisible), "{lines:?}");
        }
        for text in [
            deep.as_str(),
            "",
            "[]",
            "{\"mcpServers\":[1]}",
            "{\"mcpServers\":{\"\\u001b\":{\"command\":\"\\n\"}}}",
        ] {
            let lines = list_commands(InventoryKind::Servers, text);
            assert!(!lines.concat().chars().any(is_invisible), "{lines:?}");
        }
    }
}
