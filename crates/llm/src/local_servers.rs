//! Model servers on this machine: probes the keyless servers of the catalog and lists their models.
//!
//! Requests go only to loopback addresses, without a proxy and without a key, in parallel and with a short
//! timeout (`only_servers_on_this_machine_are_asked`).

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Client, Url};
use serde_json::Value;

use crate::catalog::{AuthConfig, Catalog, CatalogEntry};
use crate::context::ResolveContext;
use crate::layers::LayerPicker;
use crate::resolve::{ResolveError, with_http_scheme};

/// How long to wait for a server. A running server answers immediately.
const PROBE_TIMEOUT: Duration = Duration::from_millis(400);
/// The largest accepted response, and the most listed models of one server.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;
const MAX_MODELS: usize = 50;
/// The longest accepted model name.
const MAX_NAME_CHARS: usize = 200;

/// A model on a local server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalModel {
    /// `provider/model`.
    pub reference: String,
    /// The base URL of the server.
    pub base_url: String,
}

/// Returns the providers of the catalog that are servers on this machine.
pub fn local_providers(context: &ResolveContext) -> Result<Vec<String>, ResolveError> {
    Ok(server_urls(context)?.into_iter().map(|(provider, _)| provider).collect())
}

/// Returns the models of all servers that answer.
pub async fn local_models(around: &ResolveContext) -> Result<Vec<LocalModel>, ResolveError> {
    let servers = server_urls(around)?;
    let client = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(PROBE_TIMEOUT)
        .tls_certs_only([])
        .build();
    // Without a client no server can be reached.
    let Ok(client) = client else { return Ok(Vec::new()) };
    let asked = servers.iter().map(|(provider, url)| fetch_models(&client, provider, url));
    Ok(join_all(asked).await.into_iter().flatten().collect())
}

fn server_urls(context: &ResolveContext) -> Result<Vec<(String, Url)>, ResolveError> {
    let catalog = Catalog::load(context.config_dir.as_deref())?;
    let manifest = CatalogEntry::default();
    let place = |provider: &str| {
        let picker = LayerPicker::new(&manifest, &catalog, provider, "");
        if !matches!(picker.pick_auth().0, AuthConfig::None) {
            return None;
        }
        let (text, _) = picker.pick_base_url(&*context.env)?;
        let text = if text.contains("://") { text } else { with_http_scheme(&text, picker.catalog_port()) };
        let url = Url::parse(&text).ok()?;
        is_local_url(&url).then(|| (provider.to_owned(), url))
    };
    Ok(catalog.providers().into_iter().filter_map(place).collect())
}

/// Returns whether this is plain HTTP to a loopback name or address.
fn is_local_url(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    url.scheme() == "http" && (host == "localhost" || address.is_ok_and(|address| address.is_loopback()))
}

/// Returns the models of one server, or none if it does not answer as expected.
async fn fetch_models(client: &Client, provider: &str, base: &Url) -> Vec<LocalModel> {
    let names = async {
        let path = base.path().trim_end_matches('/');
        let path = if path.ends_with("/v1") { format!("{path}/models") } else { format!("{path}/v1/models") };
        let mut url = base.clone();
        url.set_path(&path);
        let mut response = client.get(url).send().await.ok()?.error_for_status().ok()?;
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.ok()? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_RESPONSE_BYTES {
                return None;
            }
        }
        let answer: Value = serde_json::from_slice(&bytes).ok()?;
        let name = |model: &Value| model["id"].as_str().filter(|name| is_model_name(name)).map(str::to_owned);
        Some(answer["data"].as_array()?.iter().filter_map(name).take(MAX_MODELS).collect::<Vec<String>>())
    };
    let port = base.port().map(|port| format!(":{port}")).unwrap_or_default();
    let at = format!("{}{port}", base.host_str().unwrap_or_default());
    let names = names.await.unwrap_or_default();
    names
        .into_iter()
        .map(|name| LocalModel { reference: format!("{provider}/{name}"), base_url: at.clone() })
        .collect()
}

fn is_model_name(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && !c.is_whitespace();
    !name.is_empty() && name.chars().count() <= MAX_NAME_CHARS && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_on_this_machine_are_asked() {
        let here = |url: &str| is_local_url(&Url::parse(url).unwrap());
        for url in
            ["http://127.0.0.1:11434", "http://localhost:8080/v1", "http://[::1]:1234", "http://127.9.9.9"]
        {
            assert!(here(url), "{url}");
        }
        for url in
            ["https://127.0.0.1", "http://10.0.0.1", "http://example.org", "http://127.0.0.1.example.org"]
        {
            assert!(!here(url), "{url}");
        }
    }
}
