//! Completions in this directory before a pod exists: the same as those of a pod started here.

use minke_driver::CompletionPreview;
use minke_launch::{NewPod, ReferenceScope, find_workspace, scope_for_cwd, working_directory};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};

/// Returns the files, skills and knowledge that input here can refer to.
pub(crate) fn completion_preview(context: &CliContext) -> Result<CompletionPreview, CliError> {
    let cwd = working_directory(None, &context.env)?;
    let manifest = minke_launch::declare_pod(&NewPod::default(), &cwd, &context.env)?.manifest;
    let scope = scope_for_cwd(&cwd, &manifest.scope)?;
    let places = ReferenceScope::new(&cwd, &find_workspace(&cwd), &manifest, &context.env)?.into_places();
    CompletionPreview::new(&scope, &manifest, places, &context.find_paths()?)
        .map_err(|e| CliError::new(ExitKind::Failed, "could not complete input here").with_reason(e))
}
