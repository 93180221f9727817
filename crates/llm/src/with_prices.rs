//! A model with the prices of the user's catalog.

use std::sync::Arc;

use futures_util::StreamExt;
use minke_model::{Model, ModelEvent, ModelStream, Prompt};

use crate::catalog::TokenPrices;

/// A model with different prices.
#[derive(Debug)]
pub(crate) struct ModelWithPrices<M> {
    pub(crate) model: M,
    pub(crate) prices: TokenPrices,
}

impl<M: Model> Model for ModelWithPrices<M> {
    fn stream_reply(&self, prompt: Arc<Prompt>) -> ModelStream {
        let prices = self.prices;
        let priced = move |event| match event {
            Ok(ModelEvent::Usage(mut usage)) => {
                usage.cost_usd = prices.cost_usd(&usage);
                Ok(ModelEvent::Usage(usage))
            }
            other => other,
        };
        self.model.stream_reply(prompt).map(priced).boxed()
    }
}
