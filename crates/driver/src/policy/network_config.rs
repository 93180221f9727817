//! Network configuration: converts the manifest's web section for the tools and the proxy.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minke_launch::search_key_variable;
use minke_manifest::NetworkPolicy;
use minke_manifest::WebSearchSection;
use minke_manifest::WebSection;
use minke_net::address::Dialer;
use minke_net::address::HostRules;
use minke_net::proxy::ConnectionTally;
use minke_net::proxy::Proxy;
use minke_net::proxy::ProxyLimits;
use minke_net::proxy::ProxySettings;
use minke_secrets::KeyRedactor;
use minke_tools::{FetchSettings, SearchKind, SearchSettings, WebSettings};
use serde_json::json;
use tokio::sync::mpsc;

use crate::event_loop::event::LoopEvent;
use crate::stderr::report;

const BRAVE: &str = "brave";

/// Builds the settings of the web tools; reports invalid values.
pub(crate) fn web_settings(web: Option<&WebSection>, notices: &mut Vec<String>) -> WebSettings {
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
            return Err(format!("web.search.provider is `{other}`: expected `brave` or `searxng`"));
        }
    };
    let key =
        search_key_variable(search).map(|name| -> Arc<dyn Fn() -> Result<String, String> + Send + Sync> {
            Arc::new(move || {
                let found = std::env::var(&name).ok().filter(|key| !key.is_empty());
                found.ok_or_else(|| format!("the variable {name}, which holds its key, is not set"))
            })
        });
    let timeout = Duration::from_secs(search.timeout_s);
    Ok(SearchSettings { base_url: search.base_url.clone(), key, timeout, ..SearchSettings::new(kind) })
}

/// Starts the proxy of the pod's commands if they may use the network. Every connection is logged.
pub(crate) fn start_proxy(
    network: &NetworkPolicy,
    socket: &Path,
    events: &mpsc::Sender<LoopEvent>,
    redactor: &Arc<KeyRedactor>,
) -> Result<Option<Proxy>, String> {
    let rules = match network {
        NetworkPolicy::Off => return Ok(None),
        NetworkPolicy::On => HostRules::Public,
        NetworkPolicy::Hosts(hosts) => {
            HostRules::parse_list(hosts).map_err(|e| format!("sandbox.network: {e}"))?
        }
    };
    let (mail, cover) = (events.clone(), Arc::clone(redactor));
    let tell = move |tally: ConnectionTally| {
        let ConnectionTally { mut host, port, up, down, allowed, mut why } = tally;
        // A command can build the host name from any data that it has read.
        let texts = &mut [&mut host, &mut why];
        if !cover.try_redact(texts) && cover.redact(texts).is_err() {
            let unseen = "not shown: could not redact secrets";
            (host, why) = (unseen.to_owned(), unseen.to_owned());
        }
        let reported = json!({
            "host": host, "port": port, "up": up, "down": down, "allowed": allowed, "why": why,
        });
        // When the event queue is full, byte counts do not matter.
        if let Err(e) = mail.try_send(LoopEvent::HostAccess(reported)) {
            report!("warning: could not log a connection of a command: {e}");
        }
    };
    let settings = ProxySettings {
        rules,
        dialer: Dialer::with_system_resolver(),
        limits: ProxyLimits::default(),
        on_closed: Arc::new(tell),
    };
    Proxy::start_proxy(socket, settings).map(Some).map_err(|e| e.to_string())
}
