//! Read, Write, Edit and MultiEdit, called as a model calls them. One module per subject, and a common
//! fixture.

mod bad_input;
mod edit;
mod fixture;
mod write;
