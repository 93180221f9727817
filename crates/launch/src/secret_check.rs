//! Checks input for secrets before it is written to a session without a live pod. A live pod checks input
//! itself.
//!
//! Invariant: input that contains a known secret is not written
//! (`input_that_holds_a_secret_is_refused_and_not_logged`).

use minke_llm::build_key_redactor;

use crate::environment::LaunchEnv;
use crate::error::{SetupError, SetupRefusal};

/// Refuses texts that contain a known secret. `variables` contain secrets in addition to those of providers.
pub fn reject_secrets(texts: &[&str], variables: Vec<String>, env: &LaunchEnv) -> Result<(), SetupError> {
    let cover = build_key_redactor(env.resolve_context(&env.cwd)?.with_secrets(variables));
    for text in texts {
        let names = cover.names_in(text.as_bytes()).map_err(|e| {
            SetupRefusal::invalid("nothing was written, because the input could not be checked for keys")
                .with_reason(e)
        })?;
        if !names.is_empty() {
            return Err(SetupRefusal::invalid(format!("the input contains the secret {}", names.join(" and ")))
                .with_code("invalid_request")
                .with_reason(
                    "it would be stored in the session's log and sent to the model's provider; nothing was written",
                )
                .with_hint("leave the value out; pass it to commands as a variable (`sandbox.env.pass`)")
                .into());
        }
    }
    Ok(())
}
