//! The composer with its popup and prompts, and the part of the screen that receives keys.

use minke_record::Millis;

use super::super::AppFocus;
use super::pending::NotePrompt;
use super::popup::CompletionPopup;
use super::text_prompt::TextPrompt;
use crate::composer::{Composer, ComposerDraft};

/// The typed input, and the part of the screen that receives keys.
pub(in crate::app) struct InputState {
    pub(in crate::app) composer: Composer,
    pub(in crate::app) focus: AppFocus,
    pub(in crate::app) popup: Option<CompletionPopup>,
    /// An unknown command that was similar to an existing one.
    pub(in crate::app) unknown_command: Option<String>,
    pub(in crate::app) note_prompt: Option<NotePrompt>,
    /// An open single-line prompt.
    pub(in crate::app) text_prompt: Option<TextPrompt>,
    pub(in crate::app) saved_draft: ComposerDraft,
    /// Time at which the newest ask appeared.
    pub(in crate::app) ask_shown_at: Millis,
}

impl InputState {
    pub(in crate::app) fn new(mut composer: Composer, draft: Option<ComposerDraft>) -> InputState {
        let saved_draft = draft.clone().unwrap_or_default();
        if let Some(draft) = draft {
            composer.set_draft(draft);
        }
        InputState {
            composer,
            focus: AppFocus::Composer,
            popup: None,
            unknown_command: None,
            note_prompt: None,
            text_prompt: None,
            saved_draft,
            ask_shown_at: 0,
        }
    }
}
