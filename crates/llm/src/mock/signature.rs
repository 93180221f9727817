//! Signatures on reasoning, as the mock makes and checks them.
//!
//! Real providers sign what a model thought and refuse it when it comes back changed, or from somebody else. A
//! signature of the mock is a hash of the format, the model and the thought, so that nothing has to be remembered.
//! Invariant: a signature is good for its own format, model and thought only
//! (`a_signature_is_good_for_its_own_thought_only`).

use minke_record::hex;
use sha2::{Digest, Sha256};

use crate::settings::Scheme;

/// Hex characters of a signature after its prefix.
const DIGEST_BYTES: usize = 16;
/// What every signature of the mock begins with, so that a foreign one can be named as such.
const PREFIX: &str = "sig:";

pub(super) fn sign(scheme: Scheme, model: &str, thought: &str) -> String {
    let mut hash = Sha256::new();
    for part in [format!("{scheme:?}").as_bytes(), model.as_bytes(), thought.as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest: Vec<u8> = hash.finalize().iter().copied().take(DIGEST_BYTES).collect();
    format!("{PREFIX}{}", hex(&digest))
}

/// Says why a signature that came back is not good.
pub(super) fn check(scheme: Scheme, model: &str, thought: &str, given: &str) -> Result<(), String> {
    if given == sign(scheme, model, thought) {
        return Ok(());
    }
    Err(match given.strip_prefix(PREFIX) {
        Some(_) => {
            format!("the signature is not that of `{model}` on this reasoning: it was changed or moved")
        }
        None => {
            "the signature is of another provider: reasoning is only for the model that wrote it".to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_good_for_its_own_thought_only() {
        let good = sign(Scheme::Anthropic, "m", "thought");
        assert_eq!(check(Scheme::Anthropic, "m", "thought", &good), Ok(()));
        for (scheme, model, thought) in [
            (Scheme::Gemini, "m", "thought"),
            (Scheme::Anthropic, "n", "thought"),
            (Scheme::Anthropic, "m", "thoughts"),
            (Scheme::Anthropic, "mt", "hought"),
        ] {
            let problem = check(scheme, model, thought, &good).unwrap_err();
            assert!(problem.contains("changed or moved"), "{problem}");
        }
        let foreign = check(Scheme::Anthropic, "m", "thought", "EtABCkYI").unwrap_err();
        assert!(foreign.contains("another provider"), "{foreign}");
    }
}
