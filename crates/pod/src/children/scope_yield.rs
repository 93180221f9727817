//! Yielding: an idle root pod releases its write scope for another pod and acquires it again before its next
//! run.
//!
//! Elsewhere: the scope table (`registry`), the clients that ask (`cli`).

use minke_record::ErrorCode;

use crate::ReplyId;
use crate::children::messages::ChildCommand;
use crate::engine::InputHandler;
use crate::input::{CommandRequest, PodCommand};
use crate::step::{CommandRefusal, Effect, ReplyBody};
use crate::step_builder::StepBuilder;

/// Maximum number of commands that wait for the scope.
const MAX_WAITING_COMMANDS: usize = 64;

/// The state of the write scope in this process.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ScopeYield {
    /// The scope is released or being released.
    is_released: bool,
    /// Clients that wait for the release.
    yield_waiters: Vec<ReplyId>,
    /// Commands that wait for the scope.
    waiting_commands: Vec<CommandRequest>,
}

impl InputHandler<'_, '_> {
    /// Releases the scope on `yield`, unless it is in use.
    pub(crate) fn yield_scope(&mut self, reply: Option<ReplyId>) -> Result<(), CommandRefusal> {
        let free = self.step.state.live_children().next().is_none()
            && self.engine.work.calls.call_progress.is_empty()
            && self.engine.work.calls.client_calls.is_empty()
            && self.engine.process.clients.command_count == 0;
        if !free {
            let message = "children, calls or commands of this pod still use its scope";
            return Err(CommandRefusal::new(ErrorCode::Conflict, message));
        }
        if self.step.state.parent_session().is_some() {
            let message = "this pod's scope is a loan: its parent gets it back when the pod stops";
            return Err(CommandRefusal::new(ErrorCode::Conflict, message));
        }
        self.engine.process.scope_yield.yield_waiters.extend(reply);
        if !self.engine.process.scope_yield.is_released {
            self.engine.process.scope_yield.is_released = true;
        }
        self.step.add_effect(Effect::Child(ChildCommand::ReleaseScope));
        Ok(())
    }

    /// Handles a released or acquired scope, or the failure.
    pub(crate) fn apply_scope_change(&mut self, released: bool, problem: Option<String>) {
        let waiters = std::mem::take(&mut self.engine.process.scope_yield.yield_waiters);
        self.engine.process.scope_yield.is_released = released;
        if let Some(problem) = problem {
            // The scope is unchanged; report the error to all waiting clients.
            let waiting = std::mem::take(&mut self.engine.process.scope_yield.waiting_commands).into_iter();
            for reply in waiters.into_iter().map(Some).chain(waiting.map(|request| request.reply)) {
                self.step.refuse_request(reply, CommandRefusal::new(ErrorCode::Conflict, problem.clone()));
            }
            return;
        }
        if released {
            for reply in waiters {
                self.step.accept_request(Some(reply), ReplyBody::Ok);
            }
            return;
        }
        let waiting = std::mem::take(&mut self.engine.process.scope_yield.waiting_commands);
        for request in waiting {
            self.handle_command(request);
        }
    }
}

impl ScopeYield {
    /// Returns whether the write scope is released.
    pub(crate) fn has_yielded_scope(&self) -> bool {
        self.is_released
    }

    /// Holds a command that needs the scope until it is acquired. Returns the command if it need not wait.
    pub(crate) fn hold_for_scope(
        &mut self,
        step: &mut StepBuilder<'_>,
        request: CommandRequest,
    ) -> Option<CommandRequest> {
        let needs = matches!(
            request.command,
            PodCommand::Run { .. }
                | PodCommand::Resume { .. }
                | PodCommand::Answer { .. }
                | PodCommand::Undo { .. }
                | PodCommand::CallTool { .. }
                | PodCommand::Notify { auto_run: true, .. }
                | PodCommand::PodEvent { .. }
        );
        if !self.is_released || !needs {
            return Some(request);
        }
        if self.waiting_commands.len() >= MAX_WAITING_COMMANDS {
            let message = format!("{MAX_WAITING_COMMANDS} commands already wait for this pod's scope");
            step.refuse_request(request.reply, CommandRefusal::new(ErrorCode::TooMany, message));
            return None;
        }
        self.waiting_commands.push(request);
        step.add_effect(Effect::Child(ChildCommand::AcquireScope));
        None
    }
}
