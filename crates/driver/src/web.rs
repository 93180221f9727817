//! The web: what a manifest says of it, in the words of the tools and the proxy.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minke_exec::address::{HostRules, Outside};
use minke_exec::proxy::{Proxy, ProxyLimits, ProxySettings, Tally};
use minke_llm::Cover;
use minke_manifest::{Manifest, Network, WebSearchSection, WebSection};
use minke_tools::{FetchSettings, SearchKind, SearchSettings, WebSettings};
use serde_json::json;
use tokio::sync::mpsc;

use crate::mail::Mail;
use crate::stderr::report;

const BRAVE: &str = "brave";

/// What the web tools are made from; a word that cannot be used is told.
pub(crate) fn settings(web: Option<&WebSection>, notices: &mut Vec<String>) -> WebSettings {
    let Some(web) = web.filter(|web| web.enabled) else { return WebSettings::default() };
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let fetch = FetchSettings {
        timeout: Duration::from_secs(web.fetch.timeout_s),
        redirects: bytes(web.fetch.redirects),
        max_response_bytes: bytes(web.fetch.max_response_bytes),
        max_output_bytes: bytes(web.fetch.max_output_bytes),
        allow_private: web.fetch.allow_private,
    };
    let search = web.search.as_ref().and_then(|search| match search_settings(search) {
        Ok(settings) => Some(settings),
        Err(why) => {
            notices.push(format!("WebSearch is not offered: {why}"));
            None
        }
    });
    WebSettings { fetch: Some(fetch), search }
}

fn search_settings(search: &WebSearchSection) -> Result<SearchSettings, String> {
    let kind = match search.provider.as_str() {
        BRAVE => SearchKind::Brave,
        "searxng" => SearchKind::Searxng,
        other => {
            return Err(format!("web.search.provider is `{other}`: there are `brave` and `searxng`"));
        }
    };
    let key = key_variable(search).map(|name| -> Arc<dyn Fn() -> Result<String, String> + Send + Sync> {
        Arc::new(move || {
            let found = std::env::var(&name).ok().filter(|key| !key.is_empty());
            found.ok_or_else(|| format!("the variable {name}, which holds its key, is not set"))
        })
    });
    let timeout = Duration::from_secs(search.timeout_s);
    Ok(SearchSettings { base_url: search.base_url.clone(), key, timeout, ..SearchSettings::new(kind) })
}

/// The variables that a manifest names and that hold secrets: what they hold is hidden like a provider's key.
pub fn secret_variables(manifest: &Manifest) -> Vec<String> {
    let search = manifest.web.as_ref().and_then(|web| web.search.as_ref());
    let search = search.and_then(key_variable);
    let passed = manifest.sandbox.env.pass.iter().filter(|name| minke_exec::names_a_secret(name)).cloned();
    // The address of a store may hold a password.
    search.into_iter().chain(passed).chain([minke_store_postgres::ADDRESS.to_owned()]).collect()
}

/// The variable that holds the key of a search service.
fn key_variable(search: &WebSearchSection) -> Option<String> {
    let usual = (search.provider == BRAVE).then(|| "BRAVE_API_KEY".to_owned());
    search.api_key_env.clone().or(usual)
}

/// The proxy of the pod's commands, if they may reach anything. Every connection is told to the log.
pub(crate) fn proxy(
    network: &Network,
    socket: &Path,
    mail: &mpsc::Sender<Mail>,
    cover: &Arc<Cover>,
) -> Result<Option<Proxy>, String> {
    let rules = match network {
        Network::Off => return Ok(None),
        Network::On => HostRules::Public,
        Network::Hosts(hosts) => HostRules::list(hosts).map_err(|e| format!("sandbox.network: {e}"))?,
    };
    let (mail, cover) = (mail.clone(), Arc::clone(cover));
    let tell = move |tally: Tally| {
        let Tally { mut host, port, up, down, allowed, mut why } = tally;
        // A name can be made of anything that a command has read.
        let texts = &mut [&mut host, &mut why];
        if !cover.hide_at_once(texts) && cover.hide(texts).is_err() {
            let unseen = "not shown, since keys could not be hidden";
            (host, why) = (unseen.to_owned(), unseen.to_owned());
        }
        let told = json!({
            "host": host, "port": port, "up": up, "down": down, "allowed": allowed, "why": why,
        });
        // A mailbox that is full has other troubles than a count of bytes.
        if let Err(e) = mail.try_send(Mail::Reached(told)) {
            report!("warning: a connection of a command is not in the log: {e}");
        }
    };
    let settings = ProxySettings {
        rules,
        outside: Outside::real(),
        limits: ProxyLimits::default(),
        tell: Arc::new(tell),
    };
    Proxy::start(socket, settings).map(Some).map_err(|e| e.to_string())
}
