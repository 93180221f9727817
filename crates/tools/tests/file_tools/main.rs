//! Read, Write, Edit and MultiEdit, as a model calls them. Here: one room for each subject, and the desk they share.

mod bad_input;
mod desk;
mod edit;
mod write;
