//! `web`: tools that reach the web. Without the section there are none.
//!
//! Here: the keys. Elsewhere: the tools (`tools::web`), who makes them from this (`driver::web`).

use serde::{Deserialize, Serialize};

use crate::form::{Flag, Text, Whole, one_of};
use crate::key::{Key, keys, section};

/// The longest that one exchange may take, in seconds.
const TIMEOUT_MOST: u64 = 600;
const REDIRECTS_MOST: u64 = 20;
/// It is held in memory, and unpacked once more.
const RESPONSE_MOST: u64 = 64 << 20;
/// No result of a tool holds more.
const OUTPUT_MOST: u64 = 64 << 10;

section! {
    /// Tools that reach the web. Without the section there are none.
    WebSection at "web" {
        /// WebFetch and, with a provider, WebSearch. Any key of `web` turns them on, `false` off again.
        enabled: bool = true, Flag, Override, Off, true;
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
        /// Seconds.
        timeout_s: u64 = 20, Whole<1, TIMEOUT_MOST>, Override, Nothing, true;
        /// How many redirects are followed; each one is checked anew.
        redirects: u64 = 5, Whole<0, REDIRECTS_MOST>, Override, Nothing, true;
        /// The most that is taken of an answer, and of what is in it if it is compressed.
        max_response_bytes: u64 = 2 << 20, Whole<1, RESPONSE_MOST>, Override, Nothing, true;
        /// The most that is given to the model.
        max_output_bytes: u64 = 64 << 10, Whole<1, OUTPUT_MOST>, Override, Nothing, true;
        /// Whether this machine and its networks are reached: private and link-local addresses, on any port.
        allow_private: bool = false, Flag, Override, Nothing, true;
    }
    besides {}
}

/// Who searches; without it WebSearch is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WebSearchWritten")]
pub struct WebSearchSection {
    pub provider: String,
    /// Where the provider is asked, if it is not its usual place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The variable that holds the key, if it is not the provider's usual one; never a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    pub timeout_s: u64,
}

impl WebSearchSection {
    pub(crate) const TIMEOUT: u64 = 15;

    pub(crate) const KEYS: &'static [Key] = keys!("web.search" {
        /// Who searches: `brave`, or `searxng` with its `base_url`. Without it there is no WebSearch.
        provider: SearchWord, Override, Nothing, true;
        /// Where it is asked, if not at its usual place.
        base_url: Text, Override, Nothing, true;
        /// The variable that holds its key, if it is not the provider's usual one.
        api_key_env: Text, Override, Nothing, true;
        /// Seconds.
        timeout_s: Whole<1, TIMEOUT_MOST>, Override, Nothing, true;
    });

    pub(crate) fn check(&self) -> Result<(), String> {
        match (self.provider.as_str(), &self.base_url) {
            ("searxng", None) => {
                Err("web.search.provider is `searxng`, which is somewhere else for everybody: web.search.base_url \
                     says where"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }
}

one_of!(SearchWord reads String: "brave", "searxng");

/// As it stands in a file.
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
            provider.ok_or("nobody is named to search: web.search.provider is `brave` or `searxng`")?;
        let timeout_s = timeout_s.unwrap_or(WebSearchSection::TIMEOUT);
        Ok(WebSearchSection { provider, base_url, api_key_env, timeout_s })
    }
}
