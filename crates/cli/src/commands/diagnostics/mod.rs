//! Find out what works here and how.

pub(crate) mod doctor;
pub(crate) mod mock_llm;
pub(crate) mod paths;
pub(crate) mod pod;
pub(crate) mod schema;
pub(crate) mod tour;
