//! The web: WebFetch and WebSearch, off unless a person configured them.
//!
//! Here: their settings. Beneath: the tools (`fetch`, `search`), one exchange with a server (`exchange`), from bytes to
//! text (`content`), from a page to what is read of it (`html`). Elsewhere: which addresses may be dialled
//! (`exec::address`), where keys come from (the caller gives them by a function).
//! Invariant: what is dialled was checked after its only resolution, at every redirect
//! (`a_rebinding_name_is_asked_for_once`, `a_redirect_to_a_private_address_is_refused`), and whatever comes back is
//! bounded and marked as untrusted (`a_page_is_marked_as_untrusted`).

mod content;
mod exchange;
mod fetch;
mod html;
mod search;

use std::sync::Arc;
use std::time::Duration;

use minke_exec::address::Outside;
use minke_tool::Tool;

pub use search::SearchKind;

/// The parts of the web that are on.
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
    /// Also this machine and its networks, on any port; a cloud's metadata service never.
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

/// `web.search`. The address is a person's own words, so it may be that of their own machine.
#[derive(Clone)]
pub struct SearchSettings {
    pub kind: SearchKind,
    /// Where the service is; the kind's own if absent.
    pub base_url: Option<String>,
    /// Gives the key, or says in words why there is none. Asked at each search, so that a new key counts at once.
    pub key: Option<Arc<dyn Fn() -> Result<String, String> + Send + Sync>>,
    pub timeout: Duration,
}

impl SearchSettings {
    pub fn new(kind: SearchKind) -> SearchSettings {
        SearchSettings { kind, base_url: None, key: None, timeout: Duration::from_secs(15) }
    }
}

/// The web tools that are on.
pub fn web_tools(settings: &WebSettings) -> Vec<Arc<dyn Tool>> {
    web_tools_in(settings, &Outside::real())
}

/// The same in a network that is played: for tests, which have none.
#[doc(hidden)]
pub fn web_tools_in(settings: &WebSettings, outside: &Outside) -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if let Some(settings) = settings.fetch {
        tools.push(Arc::new(fetch::WebFetch::new(settings, outside.clone())));
    }
    if let Some(settings) = &settings.search {
        tools.push(Arc::new(search::WebSearch::new(settings.clone(), outside.clone())));
    }
    tools
}
