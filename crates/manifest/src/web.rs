//! `web`: tools that access the web. Without the section there are none.
//!
//! Elsewhere: the tools (`tools::web`), their construction (`driver::web`).

use serde::{Deserialize, Serialize};

use crate::form::{FlagForm, TextForm, WholeForm, one_of};
use crate::key::{Key, keys, section};

/// Maximum time of one exchange in seconds.
const MAX_TIMEOUT_S: u64 = 600;
const MAX_REDIRECTS: u64 = 20;
/// The response is held in memory and decompressed once more.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;
/// Maximum size of a tool result.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;

section! {
    /// Tools that access the web. Without the section there are none.
    WebSection at "web" {
        /// WebFetch and, with a provider, WebSearch. Any key of `web` enables them, `false` disables them.
        enabled: bool = true, FlagForm, Override, Off, true;
    }
    besides {
        #[serde(skip_serializing_if = "Option::is_none")]
        search: Option<WebSearchSection>;
        fetch: WebFetchSection;
    }
}

section! {
    /// WebFetch.
    WebFetchSection at "web.fetch" {
        /// Timeout in seconds.
        timeout_s: u64 = 20, WholeForm<1, MAX_TIMEOUT_S>, Override, Nothing, true;
        /// Maximum number of redirects; each one is checked again.
        redirects: u64 = 5, WholeForm<0, MAX_REDIRECTS>, Override, Nothing, true;
        /// Maximum size of a response, before and after decompression.
        max_response_bytes: u64 = 2 << 20, WholeForm<1, MAX_RESPONSE_BYTES>, Override, Nothing, true;
        /// Maximum size of the result for the model.
        max_output_bytes: u64 = 64 << 10, WholeForm<1, MAX_OUTPUT_BYTES>, Override, Nothing, true;
        /// Whether private and link-local addresses can be reached, on any port.
        allow_private: bool = false, FlagForm, Override, Nothing, true;
    }
    besides {}
}

/// The search provider; without it WebSearch is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WebSearchWritten")]
pub struct WebSearchSection {
    pub provider: String,
    /// The URL of the provider, if it differs from the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The variable with the API key, if it differs from the provider's default; never a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    pub timeout_s: u64,
}

impl WebSearchSection {
    pub(crate) const DEFAULT_TIMEOUT_S: u64 = 15;

    pub(crate) const KEYS: &'static [Key] = keys!("web.search" {
        /// The search provider: `brave`, or `searxng` with its `base_url`. Without it there is no WebSearch.
        provider: SearchWord, Override, Nothing, true;
        /// The URL of the provider, if it differs from the default.
        base_url: TextForm, Override, Nothing, true;
        /// The variable with the API key, if it differs from the provider's default.
        api_key_env: TextForm, Override, Nothing, true;
        /// Timeout in seconds.
        timeout_s: WholeForm<1, MAX_TIMEOUT_S>, Override, Nothing, true;
    });

    pub(crate) fn validate(&self) -> Result<(), String> {
        match (self.provider.as_str(), &self.base_url) {
            ("searxng", None) => {
                Err("web.search.provider is `searxng`, which needs the URL of an instance: \
                     set web.search.base_url"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }
}

one_of!(SearchWord reads String: "brave", "searxng");

/// The value in a file.
#[derive(Deserialize)]
struct WebSearchWritten {
    provider: Option<String>,
    base_url: Option<String>,
    api_key_env: Option<String>,
    timeout_s: Option<u64>,
}

impl TryFrom<WebSearchWritten> for WebSearchSection {
    type Error = &'static str;
    fn try_from(written: WebSearchWritten) -> Result<WebSearchSection, &'static str> {
        let WebSearchWritten { provider, base_url, api_key_env, timeout_s } = written;
        let provider =
            provider.ok_or("no search provider is set: web.search.provider is `brave` or `searxng`")?;
        let timeout_s = timeout_s.unwrap_or(WebSearchSection::DEFAULT_TIMEOUT_S);
        Ok(WebSearchSection { provider, base_url, api_key_env, timeout_s })
    }
}
