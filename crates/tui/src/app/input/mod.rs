//! What the user types: answers, slash commands, prompts, popups.

pub(super) mod answer;
pub(super) mod pending;
pub(super) mod popup;
pub(super) mod slash;
pub(super) mod state;
pub(super) mod text_prompt;
