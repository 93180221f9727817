//! A conversation for people to read.

use minke_record::{Item, Role};

use crate::outputs::text_of;
use crate::settled::{here, settled, words};
use crate::tally::Tally;
use crate::{Conversation, moment};

/// The conversation as Markdown. Images are named, not shown.
pub fn markdown(conversation: &Conversation) -> String {
    let Conversation { about, said, .. } = settled(conversation.clone(), &mut Tally::default());
    let mut out = format!("# {}\n\n", about.title.as_deref().unwrap_or("Conversation"));
    let facts =
        [("session", &about.session), ("in", &about.cwd), ("branch", &about.branch), ("model", &about.model)];
    for (what, value) in facts {
        out.extend(value.iter().map(|value| format!("- {what}: {}\n", code(value))));
    }
    out.extend(about.began.map(|at| format!("- begun: {}\n", moment::written(at))));
    for said in &said {
        out.push('\n');
        out.push_str(&piece(&said.item));
    }
    out
}

fn piece(item: &Item) -> String {
    match item {
        Item::Message { role, content } => {
            let who = match role {
                Role::User => "Person",
                Role::Assistant => "Model",
                _ => "Note",
            };
            format!("## {who}\n\n{}\n", words(content))
        }
        Item::Reasoning { text, summary, .. } => {
            let whole = std::iter::once(here(text)).chain(summary.iter().map(String::as_str));
            let whole: Vec<&str> = whole.filter(|text| !text.is_empty()).collect();
            let quoted: Vec<String> =
                whole.join("\n\n").lines().map(|line| format!("> {line}").trim_end().to_owned()).collect();
            format!("{}\n", quoted.join("\n"))
        }
        Item::ToolCall { name, arguments, .. } => {
            format!("**{}**\n\n{}", code(name), fenced(here(arguments)))
        }
        Item::ToolResult { is_error, images, .. } => {
            let shown: String = images.iter().map(|image| format!("\n[{}]\n", image.media_type)).collect();
            format!("{}\n\n{}{shown}", if *is_error { "Failed:" } else { "Result:" }, fenced(text_of(item)))
        }
        Item::Unknown => String::new(),
    }
}

/// A block that no line of the text can end.
fn fenced(text: &str) -> String {
    let fence = "`".repeat(longest(text).max(2) + 1);
    format!("{fence}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

fn code(text: &str) -> String {
    let mark = "`".repeat(longest(text) + 1);
    let text = text.replace(['\n', '\r'], " ");
    if text.starts_with('`') || text.ends_with('`') {
        format!("{mark} {text} {mark}")
    } else {
        format!("{mark}{text}{mark}")
    }
}

/// The longest row of backticks.
fn longest(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
