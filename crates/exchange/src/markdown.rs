//! Exports a conversation as Markdown.

use minke_record::{Item, Role};

use crate::normalize::{inline_text, message_text, normalize_raw};
use crate::omissions::OmissionCounts;
use crate::outputs::result_text;
use crate::{PortableConversation, timestamp};

/// Returns the conversation as Markdown. Images are named, not included.
pub fn to_markdown(conversation: &PortableConversation) -> String {
    let PortableConversation { info, items: timed_item, .. } =
        normalize_raw(conversation.clone(), &mut OmissionCounts::default());
    let mut out = format!("# {}\n\n", info.title.as_deref().unwrap_or("Conversation"));
    let facts =
        [("session", &info.session), ("in", &info.cwd), ("branch", &info.branch), ("model", &info.model)];
    for (label, value) in facts {
        out.extend(value.iter().map(|value| format!("- {label}: {}\n", inline_code(value))));
    }
    out.extend(info.began.map(|at| format!("- begun: {}\n", timestamp::format_timestamp(at))));
    for said in &timed_item {
        out.push('\n');
        out.push_str(&item_markdown(&said.item));
    }
    out
}

fn item_markdown(item: &Item) -> String {
    match item {
        Item::Message { role, content } => {
            let speaker = match role {
                Role::User => "Person",
                Role::Assistant => "Model",
                _ => "Note",
            };
            format!("## {speaker}\n\n{}\n", message_text(content))
        }
        Item::Reasoning { text, summary, .. } => {
            let text_parts = std::iter::once(inline_text(text)).chain(summary.iter().map(String::as_str));
            let whole: Vec<&str> = text_parts.filter(|text| !text.is_empty()).collect();
            let quoted: Vec<String> =
                whole.join("\n\n").lines().map(|line| format!("> {line}").trim_end().to_owned()).collect();
            format!("{}\n", quoted.join("\n"))
        }
        Item::ToolCall { name, arguments, .. } => {
            format!("**{}**\n\n{}", inline_code(name), fenced_block(inline_text(arguments)))
        }
        Item::ToolResult { is_error, images, .. } => {
            let shown: String = images.iter().map(|image| format!("\n[{}]\n", image.media_type)).collect();
            format!(
                "{}\n\n{}{shown}",
                if *is_error { "Failed:" } else { "Result:" },
                fenced_block(result_text(item))
            )
        }
        Item::Unknown => String::new(),
    }
}

/// Returns a code block that no line of the text can end.
fn fenced_block(text: &str) -> String {
    let fence = "`".repeat(longest_backticks(text).max(2) + 1);
    format!("{fence}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

fn inline_code(text: &str) -> String {
    let mark = "`".repeat(longest_backticks(text) + 1);
    let text = text.replace(['\n', '\r'], " ");
    if text.starts_with('`') || text.ends_with('`') {
        format!("{mark} {text} {mark}")
    } else {
        format!("{mark}{text}{mark}")
    }
}

/// Returns the length of the longest run of backticks.
fn longest_backticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
