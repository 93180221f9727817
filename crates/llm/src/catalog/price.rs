//! Prices: the cost of a request.
//!
//! Invariant: used tokens with an unknown price make the cost unknown, never smaller
//! (`an_unknown_price_is_not_free`).

use minke_model::TokenUsage;

use super::entry::{LongContextPrices, TokenPrices};

const TOKENS_PER_PRICE: f64 = 1_000_000.0;

impl TokenPrices {
    /// Declared as free, which differs from unknown.
    pub(crate) const FREE: TokenPrices = TokenPrices {
        input: Some(0.0),
        output: Some(0.0),
        cache_read: Some(0.0),
        cache_write: Some(0.0),
        long: None,
    };

    /// Returns the cost in dollars, or `None` if the price of a used token class is unknown.
    pub(crate) fn cost_usd(&self, usage: &TokenUsage) -> Option<f64> {
        let whole_input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let at = match self.long {
            Some(long) if whole_input > long.over => TokenPrices::from(long),
            _ => *self,
        };
        let parts = [
            (usage.input, at.input),
            (usage.output, at.output),
            (usage.cache_read, at.cache_read),
            (usage.cache_write, at.cache_write),
        ];
        let used = parts.into_iter().filter(|(tokens, _)| *tokens > 0);
        let mut dollars = None;
        for (tokens, price) in used {
            *dollars.get_or_insert(0.0) += price? * tokens as f64 / TOKENS_PER_PRICE;
        }
        // A request without tokens is free if any price is known.
        dollars.or_else(|| self.input.map(|_| 0.0))
    }
}

impl From<LongContextPrices> for TokenPrices {
    fn from(long: LongContextPrices) -> TokenPrices {
        let LongContextPrices { input, output, cache_read, cache_write, over: _ } = long;
        TokenPrices { input, output, cache_read, cache_write, long: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_usage(input: u64, output: u64, cache_read: u64, cache_write: u64) -> TokenUsage {
        TokenUsage { input, output, cache_read, cache_write, cost_usd: None }
    }

    #[test]
    fn each_class_has_its_price() {
        let prices = TokenPrices {
            input: Some(3.0),
            output: Some(15.0),
            cache_read: Some(0.3),
            cache_write: Some(3.75),
            long: Some(LongContextPrices {
                over: 200_000,
                input: Some(6.0),
                output: Some(22.5),
                cache_read: None,
                cache_write: None,
            }),
        };
        let cost = prices.cost_usd(&token_usage(1_000, 2_000, 100_000, 10_000)).unwrap();
        assert!((cost - (0.003 + 0.03 + 0.03 + 0.0375)).abs() < 1e-12, "{cost}");
        assert_eq!(prices.cost_usd(&token_usage(0, 0, 0, 0)), Some(0.0));
        let long = prices.cost_usd(&token_usage(1_000_000, 1_000_000, 0, 0)).unwrap();
        assert!((long - 28.5).abs() < 1e-9, "{long}");
        assert_eq!(prices.cost_usd(&token_usage(200_000, 0, 1, 0)), None);
    }

    #[test]
    fn an_unknown_price_is_not_free() {
        let prices = TokenPrices { input: Some(1.0), output: Some(2.0), ..TokenPrices::default() };
        assert!(prices.cost_usd(&token_usage(5, 5, 0, 0)).is_some());
        assert_eq!(prices.cost_usd(&token_usage(5, 5, 1, 0)), None);
        assert_eq!(prices.cost_usd(&token_usage(5, 5, 0, 1)), None);
        assert_eq!(TokenPrices::default().cost_usd(&token_usage(0, 0, 0, 0)), None);
    }
}
