//! Servers on this machine: those of the catalog that want no key, asked whether they are there and which models they have.
//!
//! Nothing but loopback addresses is asked, without a proxy and without a key, each for a moment, all at once
//! (`only_servers_on_this_machine_are_asked`).

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{Client, Url};
use serde_json::Value;

use crate::around::Around;
use crate::catalog::{Auth, Catalog, Entry};
use crate::pick::Picker;
use crate::resolve::{ResolveError, with_scheme};

/// How long a server has for its answer: one that is there answers at once.
const PATIENCE: Duration = Duration::from_millis(400);
/// The longest answer that is read, and the models of one server that are named.
const ANSWER_BYTES: usize = 1024 * 1024;
const MODELS: usize = 50;
/// The longest name of a model.
const NAME_CHARS: usize = 200;

/// A model that a server on this machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalModel {
    /// `provider/model`.
    pub reference: String,
    /// Where the server is.
    pub at: String,
}

/// Providers of the catalog that are servers on this machine.
pub fn local_providers(around: &Around) -> Result<Vec<String>, ResolveError> {
    Ok(places(around)?.into_iter().map(|(provider, _)| provider).collect())
}

/// What those that answer have.
pub async fn local_models(around: &Around) -> Result<Vec<LocalModel>, ResolveError> {
    let places = places(around)?;
    let client = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(PATIENCE)
        .tls_certs_only([])
        .build();
    // Without connections nobody answers.
    let Ok(client) = client else { return Ok(Vec::new()) };
    let asked = places.iter().map(|(provider, url)| models_of(&client, provider, url));
    Ok(join_all(asked).await.into_iter().flatten().collect())
}

fn places(around: &Around) -> Result<Vec<(String, Url)>, ResolveError> {
    let catalog = Catalog::load(around.config_dir.as_deref())?;
    let manifest = Entry::default();
    let place = |provider: &str| {
        let picker = Picker::new(&manifest, &catalog, provider, "");
        if !matches!(picker.auth().0, Auth::None) {
            return None;
        }
        let (text, _) = picker.base_url(&*around.env)?;
        let text = if text.contains("://") { text } else { with_scheme(&text, picker.own_port()) };
        let url = Url::parse(&text).ok()?;
        is_here(&url).then(|| (provider.to_owned(), url))
    };
    Ok(catalog.providers().into_iter().filter_map(place).collect())
}

/// Plain HTTP to this machine, by a name or an address that cannot lead elsewhere.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    url.scheme() == "http" && (host == "localhost" || address.is_ok_and(|address| address.is_loopback()))
}

/// What one server has; nothing, if it does not answer as such servers do.
async fn models_of(client: &Client, provider: &str, base: &Url) -> Vec<LocalModel> {
    let names = async {
        let path = base.path().trim_end_matches('/');
        let path = if path.ends_with("/v1") { format!("{path}/models") } else { format!("{path}/v1/models") };
        let mut url = base.clone();
        url.set_path(&path);
        let mut response = client.get(url).send().await.ok()?.error_for_status().ok()?;
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.ok()? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > ANSWER_BYTES {
                return None;
            }
        }
        let answer: Value = serde_json::from_slice(&bytes).ok()?;
        let name = |model: &Value| model["id"].as_str().filter(|name| is_name(name)).map(str::to_owned);
        Some(answer["data"].as_array()?.iter().filter_map(name).take(MODELS).collect::<Vec<String>>())
    };
    let port = base.port().map(|port| format!(":{port}")).unwrap_or_default();
    let at = format!("{}{port}", base.host_str().unwrap_or_default());
    let names = names.await.unwrap_or_default();
    names
        .into_iter()
        .map(|name| LocalModel { reference: format!("{provider}/{name}"), at: at.clone() })
        .collect()
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && !c.is_whitespace();
    !name.is_empty() && name.chars().count() <= NAME_CHARS && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_on_this_machine_are_asked() {
        let here = |url: &str| is_here(&Url::parse(url).unwrap());
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
