//! Completions in this directory before a pod lives: as the pod that would be begun here gives them.

use minke_driver::Beforehand;

use crate::around::Surroundings;
use crate::create::{NewPod, scope_here, working_directory};
use crate::failure::{Exit, Failure};
use crate::referred::Here;

/// What could be referred to here.
pub(crate) fn beforehand(around: &Surroundings) -> Result<Beforehand, Failure> {
    let cwd = working_directory(None, around)?;
    let manifest = crate::settings::declare(&NewPod::default(), &cwd, around)?.manifest;
    let scope = scope_here(&cwd, &manifest.scope)?;
    let places = Here::new(&cwd, &Surroundings::workspace(&cwd), &manifest, around)?.places();
    Beforehand::new(&scope, &manifest, places, &around.paths()?)
        .map_err(|e| Failure::new(Exit::Failed, "nothing can be completed here").why(e))
}
