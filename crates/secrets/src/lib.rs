//! Secrets: where keys come from; values that do not print themselves; the redactor.
//!
//! Here: `Secret`, where one is looked for (`find`), the store behind `minke login` (`KeyStore`), taking known values
//! out of text and bytes (`Redactor`) and knowing the shape of unknown ones (`shape`). Elsewhere: to whom a key may be
//! sent and where text is redacted (`llm`), the command (`cli`).
//! Invariant: no secret is written anywhere but its store. Nothing here prints one (`a_secret_never_prints_itself`,
//! `no_error_holds_the_value`), and the redactor shows no part of one however the text is cut
//! (`any_split_gives_the_same_and_shows_nothing`).

mod encode;
mod error;
mod escape;
mod find;
mod keyring;
mod layer;
mod private;
mod reading;
mod redact;
mod secret;
mod shape;
mod store;
mod unseen;

pub use error::SecretError;
pub use find::{Found, Lookup, Source, find, known};
pub use redact::{REDACTED_MIN, Redactor, Stream, TextStream};
pub use secret::{SECRET_BYTES, Secret};
pub use shape::{Shaped, kinds, kinds_in, mask_shapes, shape, shapes_in};
pub use store::KeyStore;
