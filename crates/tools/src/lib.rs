//! Tools: what a model may call, one file each.
//!
//! Here: Read and Note, and what they share: arguments (`arguments`), opening a path for writing beneath a directory
//! (`beneath`). Elsewhere: the contract (`tool`), who may call them (`policy`), when they run (`pod`).

mod arguments;
mod beneath;
mod diff;
mod edit;
mod image;
mod note;
mod own;
mod read;
mod search;
mod shell;
mod text;
mod write;

use std::sync::Arc;

use minke_exec::command::Commands;
use minke_files::Files;
use minke_tool::Tool;

pub use edit::file_tools;
pub use own::own_tools;
pub use search::search_tools;
pub use shell::shell_tools;

/// What the tools of a pod work with.
pub struct Kit {
    pub files: Arc<Files>,
    /// Absent where nothing is to be run: a replay only asks what a call would touch.
    pub commands: Option<Arc<Commands>>,
    /// Whether commands are offered at all.
    pub offers_commands: bool,
}

impl Kit {
    /// Tools that say what they are and what they would touch, and can do nothing.
    pub fn idle() -> Kit {
        Kit { files: Arc::new(Files::none()), commands: None, offers_commands: true }
    }
}

/// Every built-in tool that this kit offers, sorted by name.
pub fn builtin(kit: &Kit) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(note::Note)];
    tools.extend(file_tools(&kit.files));
    if kit.offers_commands {
        tools.extend(shell_tools(kit.commands.clone()));
    }
    tools.extend(search_tools(&kit.files));
    tools.extend(own_tools());
    tools.sort_by_key(|tool| tool.spec().name);
    tools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_sorted_by_name_and_their_schemas_are_closed() {
        let specs: Vec<_> = builtin(&Kit::idle()).iter().map(|tool| tool.spec()).collect();
        assert!(specs.is_sorted_by(|a, b| a.name < b.name));
        for spec in specs {
            assert_eq!(spec.schema["additionalProperties"], false, "{}", spec.name);
        }
    }
}
