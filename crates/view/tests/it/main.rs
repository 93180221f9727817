//! Stories of the view: what came, and what a person sees of it.

mod anything;
mod chance;
mod folds;
mod frames;
mod log;
mod pages;
mod real;
mod same;
mod stories;
