//! Models for somebody who chooses: those whose key is there, servers on this machine that answer, and how to set up the
//! others.

use minke_llm::{Around, key_holders, local_models, local_providers};
use minke_tui::{Answer, FirstRun, ModelLine};

use super::Face;
use crate::create::model_here;
use crate::failure::Failure;

/// What shows how it goes without a key and without a network.
const DEMO: &str = "scripted:demo";
const SCRIPTED: &str = "scripted";
const KEY_IS_THERE: &str = "its key is there";

impl Face {
    fn there(&self) -> Result<Around, Failure> {
        Ok(Around::here(self.around.cwd.clone(), Some(self.around.paths()?.config)))
    }

    pub(super) fn models(&self) -> Result<Answer, Failure> {
        let mut lines = self.model_lines()?;
        lines.push(demo());
        Ok(Answer::Models(lines))
    }

    /// Models of the catalog. Those of servers on this machine are asked for there: what the catalog knows of them does not
    /// mean that they are there.
    fn model_lines(&self) -> Result<Vec<ModelLine>, Failure> {
        let there = self.there()?;
        let listing = minke_llm::models(&there).map_err(unread)?;
        let local = local_providers(&there).map_err(unread)?;
        let ways = self.ways()?;
        let line = |model: minke_llm::Listed| {
            let provider = model.reference.split('/').next().unwrap_or_default().to_owned();
            let way = ways.iter().find(|way| way.reference == provider);
            let note = match (model.key, way) {
                (Some(true), _) => KEY_IS_THERE.to_owned(),
                (Some(false), Some(way)) => way.note.clone(),
                (Some(false), None) => "its key is missing".to_owned(),
                (None, _) => "needs no key".to_owned(),
            };
            let ready = model.key != Some(false);
            (provider, ModelLine { reference: model.reference, ready, note })
        };
        let lines = listing.models.into_iter().map(line);
        // The script has a row of its own.
        let shown = |(provider, _): &(String, ModelLine)| !local.contains(provider) && provider != SCRIPTED;
        Ok(lines.filter(shown).map(|(_, line)| line).collect())
    }

    /// How the key of each provider that wants one would be had.
    fn ways(&self) -> Result<Vec<ModelLine>, Failure> {
        let holders = key_holders(&self.there()?).map_err(unread)?;
        let way = |holder: minke_llm::KeyHolder| {
            let lookup = holder.lookup?;
            let provider = holder.provider;
            let note = match lookup.env.first() {
                Some(variable) => format!("set {variable}, or `minke login {provider}`"),
                None => format!("`minke login {provider}` stores its key"),
            };
            Some(ModelLine { reference: provider, ready: false, note })
        };
        Ok(holders.into_iter().filter_map(way).collect())
    }

    pub(super) fn first_run(&self) -> Result<Answer, Failure> {
        let model = model_here(&self.around)?;
        let lines = self.model_lines()?;
        let (mut ready, missing): (Vec<ModelLine>, Vec<ModelLine>) =
            lines.into_iter().partition(|model| model.ready);
        ready.sort_by_key(|model| model.note != KEY_IS_THERE);
        ready.push(demo());
        // One row for each provider is enough to say how it is set up.
        let is_missing = |way: &ModelLine| {
            let of = |line: &ModelLine| line.reference.split('/').next() == Some(way.reference.as_str());
            missing.iter().any(of)
        };
        let missing = self.ways()?.into_iter().filter(is_missing).collect();
        Ok(Answer::FirstRun(FirstRun { model, ready, missing }))
    }

    pub(super) async fn local(&self) -> Result<Answer, Failure> {
        let found = local_models(&self.there()?).await.map_err(unread)?;
        let line = |model: minke_llm::LocalModel| ModelLine {
            reference: model.reference,
            ready: true,
            note: format!("on this machine, at {}", model.at),
        };
        Ok(Answer::Local(found.into_iter().map(line).collect()))
    }
}

fn demo() -> ModelLine {
    let note = "a script that comes with Minke: no key, no network".to_owned();
    ModelLine { reference: DEMO.to_owned(), ready: true, note }
}

fn unread(error: minke_llm::ResolveError) -> Failure {
    Failure::usage("the catalog cannot be read").why(error).code("unknown_model")
}
