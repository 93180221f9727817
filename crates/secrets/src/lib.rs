//! Secrets: sources of keys, values that never print themselves, and the redactor.
//!
//! Here: `Secret`, the lookup of keys (`lookup`), the store of `minke login` (`KeyStore`), the redaction of
//! known values (`Redactor`), of the keys in all sources (`KeyRedactor`) and of a model's reply
//! (`EventRedactor`), and the detection of unknown keys by their pattern (`key_patterns`). Elsewhere: which
//! sources the catalog names and which address receives a key (`llm`), and the command line (`cli`). Invariant:
//! a secret is written only to its store. Nothing here prints one (`a_secret_never_prints_itself`,
//! `no_error_holds_the_value`), and the redactor reveals no part of one however the text is cut
//! (`any_split_gives_the_same_and_shows_nothing`).

mod decoded_views;
mod encodings;
mod error;
mod escape;
mod invisible;
mod key_patterns;
mod key_redactor;
mod key_sources;
mod keyring;
mod layer;
mod lookup;
mod private_file;
mod redact;
mod redact_events;
mod secret;
mod store;

pub use error::SecretError;
pub use key_patterns::{KeyMatch, find_keys, first_kind_in, kinds_in, known_kinds, mask_keys};
pub use key_redactor::{KeyRedactor, KeySourceError};
pub use key_sources::{EnvLookup, KeySources};
pub use lookup::{FoundSecret, KeyLookup, SecretSource, find_all_secrets, find_secret};
pub use redact::{MIN_SECRET_BYTES, RedactionStream, Redactor, TextRedactionStream};
pub use redact_events::EventRedactor;
pub use secret::{MAX_SECRET_BYTES, Secret};
pub use store::KeyStore;
