//! The web tools WebFetch and WebSearch, disabled unless the user configures them.
//!
//! This module has their settings. Submodules: the tools (`fetch`, `search`), HTTP requests (`http_client`),
//! conversion to text (`content`) and of pages (`html`). `net::address` decides which addresses may be
//! dialed; callers pass keys as a function.
//! Invariant: every dialed address was checked after its only resolution, at every redirect
//! (`a_rebinding_name_is_asked_for_once`, `a_redirect_to_a_private_address_is_refused`), and every response
//! is limited and marked as untrusted (`a_page_is_marked_as_untrusted`).

mod content;
mod fetch;
mod html;
mod http_client;
mod search;

use std::sync::Arc;
use std::time::Duration;

use minke_net::address::Dialer;
use minke_tool::Tool;

pub use search::SearchKind;

/// The settings of the enabled web tools.
#[derive(Clone, Default)]
pub struct WebSettings {
    pub fetch: Option<FetchSettings>,
    pub search: Option<SearchSettings>,
}

/// `web.fetch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchSettings {
    pub timeout: Duration,
    pub redirects: usize,
    pub max_response_bytes: usize,
    pub max_output_bytes: usize,
    /// Allows this machine and its networks on any port, but never a cloud metadata service.
    pub allow_private: bool,
}

impl Default for FetchSettings {
    fn default() -> FetchSettings {
        FetchSettings {
            timeout: Duration::from_secs(20),
            redirects: 5,
            max_response_bytes: 2 * 1024 * 1024,
            max_output_bytes: 64 * 1024,
            allow_private: false,
        }
    }
}

/// `web.search`. The user configures the address, so it may be on the user's own machine.
#[derive(Clone)]
pub struct SearchSettings {
    pub kind: SearchKind,
    /// The address of the service; the default of the kind if absent.
    pub base_url: Option<String>,
    /// Returns the key, or an error text. Called for each search, so that a new key applies immediately.
    pub key: Option<Arc<dyn Fn() -> Result<String, String> + Send + Sync>>,
    pub timeout: Duration,
}

impl SearchSettings {
    pub fn new(kind: SearchKind) -> SearchSettings {
        SearchSettings { kind, base_url: None, key: None, timeout: Duration::from_secs(15) }
    }
}

/// Creates the enabled web tools.
pub fn web_tools(settings: &WebSettings) -> Vec<Arc<dyn Tool>> {
    web_tools_in(settings, &Dialer::with_system_resolver())
}

/// Creates the tools with a simulated network, for tests.
#[doc(hidden)]
pub fn web_tools_in(settings: &WebSettings, dialer: &Dialer) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if let Some(settings) = settings.fetch {
        tools.push(Arc::new(fetch::WebFetchTool::new(settings, dialer.clone())));
    }
    if let Some(settings) = &settings.search {
        tools.push(Arc::new(search::WebSearchTool::new(settings.clone(), dialer.clone())));
    }
    tools
}
