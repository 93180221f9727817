//! What a person says on the command line, looked through for secrets before it is written to a session on which no pod
//! lives. A pod looks itself.
//!
//! Invariant: nothing that holds a known value is written (`input_that_holds_a_secret_is_refused_and_not_logged`).

use minke_llm::{Around, Cover};

use crate::around::Surroundings;
use crate::failure::Failure;

/// Refuses texts in which a known value stands. `variables` hold secrets beside those of providers.
pub(crate) fn without_secrets(
    texts: &[&str],
    variables: Vec<String>,
    around: &Surroundings,
) -> Result<(), Failure> {
    let there = Around::here(&around.cwd, Some(around.paths()?.config)).with_secrets(variables);
    let cover = Cover::new(there);
    for text in texts {
        let names = cover.names_in(text.as_bytes()).map_err(|e| {
            Failure::usage("nothing was written, since keys could not be looked for in it").why(e)
        })?;
        if !names.is_empty() {
            return Err(Failure::usage(format!("what you said holds the secret {}", names.join(" and ")))
                .code("invalid_request")
                .why(
                    "it would stand in the session's log and go to the model's provider; nothing was written",
                )
                .hint("leave the value out; a command gets it by its variable (`sandbox.env.pass`)"));
        }
    }
    Ok(())
}
