//! The places in which the catalog and the configuration allow a key to be, all of whose values are redacted.
//!
//! Elsewhere: the redaction of their values (`secrets`), which key is sent where (`provider_keys`).

use minke_secrets::{KeyRedactor, KeySources, KeyStore};

use crate::catalog::{Catalog, CatalogError};
use crate::context::ResolveContext;
use crate::provider_keys::resolve_key_path;

/// Lists the variables and files of all providers, the additional variables, and the key store.
pub(crate) fn list_key_sources(catalog: &Catalog, context: &ResolveContext) -> KeySources {
    let variables = catalog.key_variables().into_iter().chain(context.secret_variables.iter().cloned());
    KeySources {
        variables: variables.collect(),
        files: catalog.key_files().into_iter().map(|file| resolve_key_path(file, context)).collect(),
        store: context.config_dir.as_deref().map(KeyStore::in_config_dir),
        env: context.env.clone(),
    }
}

/// Builds a redactor for all known keys. It reads the catalog on first use.
pub fn build_key_redactor(context: ResolveContext) -> KeyRedactor {
    KeyRedactor::new(move || {
        let catalog = Catalog::load(context.config_dir.as_deref())?;
        Ok::<_, CatalogError>(list_key_sources(&catalog, &context))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_variables_are_hidden_and_named() {
        let context = ResolveContext::for_process("/nowhere", None)
            .with_env(|name| (name == "MY_TOKEN").then(|| "planted-token-123".to_owned()))
            .with_secrets(vec!["MY_TOKEN".to_owned()]);
        let redactor = build_key_redactor(context);
        assert_eq!(redactor.try_names_in(b"planted-token-123"), None, "the sources have not been read yet");
        let mut text = "it is planted-token-123".to_owned();
        redactor.redact(&mut [&mut text]).unwrap();
        assert!(!text.contains("planted"), "{text}");
        let names = redactor.names_in(b"x planted-token-123").unwrap();
        assert!(names.len() == 1 && names[0].contains("MY_TOKEN"), "{names:?}");
        assert_eq!(redactor.try_names_in(b"planted-token-123"), Some(names.clone()));
        assert_eq!(redactor.names_in(text.as_bytes()).unwrap(), Vec::<String>::new());
        assert_eq!(redactor.referenced_names_in(&text).unwrap(), names);
    }
}
