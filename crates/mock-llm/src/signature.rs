//! Signatures of reasoning, as the mock creates and checks them.
//!
//! Real providers sign the thoughts of a model and reject changed or foreign ones. A signature of the mock is
//! a hash of the format, the model and the thought, so nothing needs to be stored. Invariant: a signature is
//! valid only for its own format, model and thought (`a_signature_is_good_for_its_own_thought_only`).

use minke_record::to_hex;
use sha2::{Digest, Sha256};

use minke_llm::WireScheme;

/// Hex characters of a signature after its prefix.
const SIGNATURE_HEX_CHARS: usize = 16;
/// Prefix of every signature of the mock, which distinguishes foreign ones.
const SIGNATURE_PREFIX: &str = "sig:";

pub(crate) fn sign_thought(scheme: WireScheme, model: &str, thought: &str) -> String {
    let mut hash = Sha256::new();
    for part in [format!("{scheme:?}").as_bytes(), model.as_bytes(), thought.as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest: Vec<u8> = hash.finalize().iter().copied().take(SIGNATURE_HEX_CHARS).collect();
    format!("{SIGNATURE_PREFIX}{}", to_hex(&digest))
}

/// Returns why a signature is invalid.
pub(crate) fn check_signature(
    scheme: WireScheme,
    model: &str,
    thought: &str,
    given: &str,
) -> Result<(), String> {
    if given == sign_thought(scheme, model, thought) {
        return Ok(());
    }
    Err(match given.strip_prefix(SIGNATURE_PREFIX) {
        Some(_) => {
            format!("the signature is not from `{model}` for this reasoning: it was changed or moved")
        }
        None => {
            "the signature is from another provider: reasoning can only be sent back to the model that wrote it".to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_good_for_its_own_thought_only() {
        let good = sign_thought(WireScheme::Anthropic, "m", "thought");
        assert_eq!(check_signature(WireScheme::Anthropic, "m", "thought", &good), Ok(()));
        for (scheme, model, thought) in [
            (WireScheme::Gemini, "m", "thought"),
            (WireScheme::Anthropic, "n", "thought"),
            (WireScheme::Anthropic, "m", "thoughts"),
            (WireScheme::Anthropic, "mt", "hought"),
        ] {
            let problem = check_signature(scheme, model, thought, &good).unwrap_err();
            assert!(problem.contains("changed or moved"), "{problem}");
        }
        let foreign = check_signature(WireScheme::Anthropic, "m", "thought", "EtABCkYI").unwrap_err();
        assert!(foreign.contains("another provider"), "{foreign}");
    }
}
