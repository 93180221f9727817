//! Tools: what a model may call, one file each.
//!
//! Here: the tools, in groups that share something: files (`read`, `write`, `edit`), `search`, `shell`, `web`, and those
//! that the mind carries out itself (`own`, `pods`). Elsewhere: the contract (`tool`), files and processes (`files`, `exec`), who
//! may call them (`policy`), when they run (`pod`).

mod arguments;
mod diff;
mod edit;
mod image;
mod own;
mod pods;
mod read;
mod search;
mod shell;
mod sight;
mod text;
mod web;
mod write;

use std::sync::Arc;

use minke_exec::command::Commands;
use minke_files::Files;
use minke_manifest::profiles::Offer;
use minke_tool::Tool;

pub use edit::file_tools;
pub use minke_tool::Image as Picture;
pub use own::own_tools;
pub use pods::{PROFILES, pod_tools};
pub use search::{Listing, list_files, search_tools};
pub use shell::shell_tools;
pub use sight::{Sight, begins_as_image, look_at};
pub use web::{FetchSettings, SearchKind, SearchSettings, WebSettings, web_tools, web_tools_in};

/// What the tools of a pod work with.
pub struct Kit {
    pub files: Arc<Files>,
    /// Absent where nothing is to be run: a replay only asks what a call would touch.
    pub commands: Option<Arc<Commands>>,
    /// Whether commands are offered at all.
    pub offers_commands: bool,
    pub web: WebSettings,
    /// The profiles that a child can be made from.
    pub profiles: Arc<Offer>,
}

impl Kit {
    /// Tools that say what they are and what they would touch, and can do nothing.
    pub fn idle() -> Kit {
        let search = Some(SearchSettings::new(SearchKind::Brave));
        let web = WebSettings { fetch: Some(FetchSettings::default()), search };
        let profiles = Arc::new(Offer::unseen());
        Kit { files: Arc::new(Files::none()), commands: None, offers_commands: true, web, profiles }
    }
}

/// Every built-in tool that this kit offers, sorted by name.
pub fn builtin(kit: &Kit) -> Vec<Arc<dyn Tool>> {
    let mut tools = file_tools(&kit.files);
    if kit.offers_commands {
        tools.extend(shell_tools(kit.commands.clone()));
    }
    tools.extend(search_tools(&kit.files));
    tools.extend(own_tools());
    tools.extend(pod_tools(&kit.profiles));
    tools.extend(web_tools(&kit.web));
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

    /// Every request carries them.
    #[test]
    fn what_tools_say_of_themselves_is_short() {
        const DESCRIPTION: usize = 700;
        const ALL: usize = 16 * 1024;
        let mut all = 0;
        for spec in builtin(&Kit::idle()).iter().map(|tool| tool.spec()) {
            assert!(spec.description.len() <= DESCRIPTION, "{}: {}", spec.name, spec.description.len());
            all += spec.name.len() + spec.description.len() + spec.schema.to_string().len();
        }
        eprintln!("all tools: {all} bytes");
        assert!(all <= ALL, "{all} bytes");
    }
}
