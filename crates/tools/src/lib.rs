//! The built-in tools that a model can call.
//!
//! The modules are groups of tools: files (`read`, `write`, `edit`), `search`, `shell`, `web`, and the tools
//! that the pod core executes itself (`internal`, `pods`). `tool` has the trait, `files` and `exec` access
//! files and processes, `policy` decides on calls, and `pod` schedules them.

mod arguments;
mod diff;
mod edit;
mod file_content;
mod image;
mod internal;
mod pods;
mod read;
mod search;
mod shell;
mod text;
mod web;
mod write;

use std::sync::Arc;

use minke_exec::command::Commands;
use minke_files::ScopedFiles;
use minke_manifest::profiles::ProfileCatalog;
use minke_tool::Tool;

pub use edit::file_tools;
pub use file_content::{FileContent, classify_content, starts_as_image};
pub use internal::internal_tools;
pub use minke_tool::ToolImage as Picture;
pub use pods::{PROFILES_LABEL, pod_tools};
pub use search::{FileListing, list_files, search_tools};
pub use shell::shell_tools;
pub use web::{FetchSettings, SearchKind, SearchSettings, WebSettings, web_tools, web_tools_in};

/// The resources that the tools of a pod use.
pub struct ToolResources {
    pub files: Arc<ScopedFiles>,
    /// Absent if no command can run: a replay only asks for the actions of calls.
    pub commands: Option<Arc<Commands>>,
    /// Whether commands are offered at all.
    pub can_run_commands: bool,
    pub web: WebSettings,
    /// The profiles for child pods.
    pub profiles: Arc<ProfileCatalog>,
}

impl ToolResources {
    /// Creates resources for tools that only describe themselves and their actions.
    pub fn inert() -> ToolResources {
        let search = Some(SearchSettings::new(SearchKind::Brave));
        let web = WebSettings { fetch: Some(FetchSettings::default()), search };
        let profiles = Arc::new(ProfileCatalog::accepting_any());
        ToolResources {
            files: Arc::new(ScopedFiles::without_grants()),
            commands: None,
            can_run_commands: true,
            web,
            profiles,
        }
    }
}

/// Returns every built-in tool for these resources, sorted by name.
pub fn builtin_tools(resources: &ToolResources) -> Vec<Arc<dyn Tool>> {
    let mut tools = file_tools(&resources.files);
    if resources.can_run_commands {
        tools.extend(shell_tools(resources.commands.clone()));
    }
    tools.extend(search_tools(&resources.files));
    tools.extend(internal_tools());
    tools.extend(pod_tools(&resources.profiles));
    tools.extend(web_tools(&resources.web));
    tools.sort_by_key(|tool| tool.spec().name);
    tools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_sorted_by_name_and_their_schemas_are_closed() {
        let specs: Vec<_> = builtin_tools(&ToolResources::inert()).iter().map(|tool| tool.spec()).collect();
        assert!(specs.is_sorted_by(|a, b| a.name < b.name));
        for spec in specs {
            assert_eq!(spec.schema["additionalProperties"], false, "{}", spec.name);
        }
    }

    /// Every request contains the descriptions.
    #[test]
    fn what_tools_say_of_themselves_is_short() {
        const DESCRIPTION: usize = 700;
        const ALL: usize = 16 * 1024;
        let mut all = 0;
        for spec in builtin_tools(&ToolResources::inert()).iter().map(|tool| tool.spec()) {
            assert!(spec.description.len() <= DESCRIPTION, "{}: {}", spec.name, spec.description.len());
            all += spec.name.len() + spec.description.len() + spec.schema.to_string().len();
        }
        eprintln!("all tools: {all} bytes");
        assert!(all <= ALL, "{all} bytes");
    }
}
