//! Budgets in the form that users type: `usd=1,tokens=200k`.
//!
//! Elsewhere: the limits themselves (`record::Budget`), the spending of each pod (`pod`).
//! Invariant: a parsed budget equals the text, and rounding never grants more than the text
//! (`a_budget_is_read_as_it_was_meant`).

use minke_record::Budget;

use crate::error::SetupRefusal;

const BUDGET_EXAMPLE: &str = "for example --budget usd=1,tokens=200k,turns=20,wall_s=600,children=3";

/// Parses `usd=1,tokens=200k`.
pub fn parse_budget(text: &str) -> Result<Budget, SetupRefusal> {
    let mut budget = Budget::default();
    for pair in text.split(',') {
        let wrong = |why: String| {
            SetupRefusal::invalid(format!("could not read `--budget {text}`"))
                .with_reason(why)
                .with_hint(BUDGET_EXAMPLE)
        };
        let Some((key, value)) = pair.split_once('=') else {
            return Err(wrong(format!("`{pair}` has no `=`")));
        };
        let (key, value) = (key.trim(), value.trim());
        let whole = || {
            parse_count(value)
                .ok_or_else(|| wrong(format!("`{value}` is not a whole number (200000, 200k and 1.5M are)")))
        };
        let duplicate = match key {
            "usd" => budget
                .usd
                .replace(parse_dollars(value).ok_or_else(|| {
                    wrong(format!("`{value}` is not a number of dollars that is 0 or more"))
                })?)
                .is_some(),
            "tokens" => budget.tokens.replace(whole()?).is_some(),
            "turns" => budget.turns.replace(whole()?).is_some(),
            "wall_s" => budget.wall_s.replace(whole()?).is_some(),
            "children" => budget.children.replace(whole()?).is_some(),
            other => {
                return Err(wrong(format!(
                    "unknown limit `{other}`; known limits are usd, tokens, turns, wall_s and children"
                )));
            }
        };
        if duplicate {
            return Err(wrong(format!("`{key}` is given twice")));
        }
    }
    Ok(budget)
}

fn parse_dollars(text: &str) -> Option<f64> {
    let usd: f64 = text.strip_prefix('$').unwrap_or(text).parse().ok()?;
    (usd.is_finite() && usd >= 0.0).then_some(usd)
}

/// Parses `200000`, `200k` or `1.5M`. Rejects values that would have to be rounded.
fn parse_count(text: &str) -> Option<u64> {
    let (digits, scale) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (text.get(..at)?, 1_000),
        (at, 'M') => (text.get(..at)?, 1_000_000),
        _ => (text, 1_u64),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |digits: &str| digits.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(part) || (digits.contains('.') && part.is_empty()) {
        return None;
    }
    let unit = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let fraction = if part.is_empty() { 0 } else { part.parse::<u64>().ok()?.checked_mul(scale)? };
    if !fraction.is_multiple_of(unit) {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(fraction / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_read_as_it_was_meant() {
        let all = parse_budget("usd=1.5,tokens=200k,turns=20, wall_s=600 ,children=3").unwrap();
        assert_eq!(
            all,
            Budget {
                usd: Some(1.5),
                tokens: Some(200_000),
                turns: Some(20),
                wall_s: Some(600),
                children: Some(3)
            }
        );
        for (text, tokens) in [("7", 7), ("1.5M", 1_500_000), ("0.001k", 1), ("3K", 3_000), ("0", 0)] {
            assert_eq!(parse_budget(&format!("tokens={text}")).unwrap().tokens, Some(tokens), "{text}");
        }
        for wrong in [
            "",
            "tokens",
            "tokens=",
            "tokens=-1",
            "tokens=1.5",
            "tokens=0.0001k",
            "tokens=1m",
            "tokens=k",
            "tokens=.5k",
            "tokens=1.k",
            "tokens=99999999999999999999",
            "tokens=99999999999999999M",
            "usd=NaN",
            "usd=inf",
            "usd=-1",
            "money=1",
            "tokens=1,tokens=2",
            "usd=1,,turns=2",
            "tokens=١k",
        ] {
            let refused = parse_budget(wrong).unwrap_err();
            assert_eq!(refused.kind, crate::error::SetupRefusalKind::Invalid, "{wrong}");
            assert!(refused.to_string().contains("--budget usd=1"), "{wrong}: {refused}");
        }
    }
}
