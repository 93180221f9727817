//! Priced: a model whose replies cost what the user's catalog says.

use std::sync::Arc;

use futures_util::StreamExt;
use minke_model::{Model, ModelEvent, ModelStream, Prompt};

use crate::catalog::Prices;

/// A model, and prices in the place of its own.
#[derive(Debug)]
pub(crate) struct Priced<M> {
    pub(crate) model: M,
    pub(crate) prices: Prices,
}

impl<M: Model> Model for Priced<M> {
    fn ask(&self, prompt: Arc<Prompt>) -> ModelStream {
        let prices = self.prices;
        let priced = move |event| match event {
            Ok(ModelEvent::Usage(mut usage)) => {
                usage.cost_usd = prices.cost(&usage);
                Ok(ModelEvent::Usage(usage))
            }
            other => other,
        };
        self.model.ask(prompt).map(priced).boxed()
    }
}
