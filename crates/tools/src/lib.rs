//! Tools: what a model may call, one file each.
//!
//! Here: Read and Note, and what they share: arguments (`arguments`), opening a path for writing beneath a directory
//! (`beneath`). Elsewhere: the contract (`tool`), who may call them (`policy`), when they run (`pod`).

mod arguments;
mod beneath;
mod note;
mod own;
mod read;
mod search;

use std::sync::Arc;

use minke_tool::Tool;

pub use own::own_tools;
pub use search::search_tools;

/// Every built-in tool, sorted by name.
pub fn builtin() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(note::Note), Arc::new(read::Read)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_sorted_by_name_and_their_schemas_are_closed() {
        let specs: Vec<_> = builtin().iter().map(|tool| tool.spec()).collect();
        assert!(specs.is_sorted_by(|a, b| a.name < b.name));
        for spec in specs {
            assert_eq!(spec.schema["additionalProperties"], false, "{}", spec.name);
            assert!(
                spec.schema["required"].as_array().is_some_and(|names| !names.is_empty()),
                "{}",
                spec.name
            );
        }
    }
}
