//! Completions in this directory before a pod exists: the same as those of a pod started here.

use minke_driver::CompletionPreview;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::session::create::{NewPod, scope_for_cwd, working_directory};
use crate::session::references::ReferenceScope;

/// Returns the files, skills and knowledge that input here can refer to.
pub(crate) fn completion_preview(context: &CliContext) -> Result<CompletionPreview, CliError> {
    let cwd = working_directory(None, context)?;
    let manifest = crate::session::settings::declare_pod(&NewPod::default(), &cwd, context)?.manifest;
    let scope = scope_for_cwd(&cwd, &manifest.scope)?;
    let places =
        ReferenceScope::new(&cwd, &CliContext::find_workspace(&cwd), &manifest, context)?.into_places();
    CompletionPreview::new(&scope, &manifest, places, &context.find_paths()?)
        .map_err(|e| CliError::new(ExitKind::Failed, "could not complete input here").with_reason(e))
}
