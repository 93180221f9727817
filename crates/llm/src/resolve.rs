//! From a model's reference to a model.
//!
//! `scripted:FILE` is the form of the command line; `scripted/<absolute file or built-in name>` the one of a manifest.
//! A model is never silently replaced by another one (`another_provider_is_refused_by_name`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_model::Model;
use minke_record::Route;
use thiserror::Error;

use crate::scripted::{BUILT_IN, ScriptError, Scripted};

const PROVIDER: &str = "scripted";

/// Why a reference gives no model.
#[derive(Debug, Error)]
pub enum ResolveError {
    #[error(
        "the model `{reference}` is not available in this version: use scripted:FILE with a script of your own, or scripted:{}",
        BUILT_IN[0].0
    )]
    NotAvailable { reference: String },
    #[error(
        "`{reference}` names no script: give a file, as in scripted:talk.toml, or one of the built-in ones: {}",
        BUILT_IN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    )]
    NoScript { reference: String },
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// The model that a reference means, and the route that the log names. Paths start at `cwd`, and so does `{{cwd}}`.
pub fn resolve(reference: &str, cwd: &Path) -> Result<(Route, Arc<dyn Model>), ResolveError> {
    let source = Source::find(reference, cwd)?;
    let scripted = match &source {
        Source::BuiltIn(name, text) => Scripted::parse(name, text, cwd)?,
        Source::File(path) => Scripted::load(path, cwd)?,
    };
    let route = Route { provider: PROVIDER.into(), model: source.name(), scheme: PROVIDER.into() };
    Ok((route, Arc::new(scripted)))
}

/// The form of a reference that a manifest keeps: it means the same wherever it is read. Reads no file.
pub fn canonical(reference: &str, cwd: &Path) -> Result<String, ResolveError> {
    Ok(format!("{PROVIDER}/{}", Source::find(reference, cwd)?.name()))
}

enum Source {
    BuiltIn(&'static str, &'static str),
    File(PathBuf),
}

impl Source {
    fn find(reference: &str, cwd: &Path) -> Result<Source, ResolveError> {
        let Some((PROVIDER, name)) = reference.split_once([':', '/']) else {
            return Err(ResolveError::NotAvailable { reference: reference.to_owned() });
        };
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Ok(Source::BuiltIn(name, text));
        }
        if name.is_empty() {
            return Err(ResolveError::NoScript { reference: reference.to_owned() });
        }
        Ok(Source::File(cwd.join(name)))
    }

    fn name(&self) -> String {
        match self {
            Source::BuiltIn(name, _) => (*name).to_owned(),
            Source::File(path) => path.to_string_lossy().into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_provider_is_refused_by_name() {
        for reference in ["anthropic/some-model", "gpt", ""] {
            let Err(e) = resolve(reference, Path::new("/")) else { panic!("{reference} was accepted") };
            let text = e.to_string();
            assert!(text.contains(&format!("`{reference}` is not available")), "{text}");
            assert!(text.contains("scripted:FILE"), "{text}");
        }
    }

    #[test]
    fn a_reference_means_the_same_wherever_it_is_read() {
        let here = Path::new("/somewhere");
        assert_eq!(canonical("scripted:demo", here).unwrap(), "scripted/demo");
        assert_eq!(canonical("scripted:a/b.toml", here).unwrap(), "scripted//somewhere/a/b.toml");
        assert_eq!(canonical("scripted//x/y.toml", here).unwrap(), "scripted//x/y.toml");
        let (route, _) = resolve("scripted/demo", here).unwrap();
        assert_eq!((route.provider.as_str(), route.model.as_str()), ("scripted", "demo"));
        assert!(matches!(canonical("scripted:", here), Err(ResolveError::NoScript { .. })));
    }

    #[test]
    fn a_missing_script_is_named_with_its_whole_path() {
        let Err(e) = resolve("scripted:none.toml", Path::new("/nowhere")) else { panic!("it was found") };
        assert!(e.to_string().contains("/nowhere/none.toml"), "{e}");
    }
}
