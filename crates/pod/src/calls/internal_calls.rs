//! Internal calls: the task list of an agent and its questions to a person. They only change the log.
//!
//! Elsewhere: their arguments (`tools`), the fold of tasks (`apply`), answers (`commands`).
//! Invariant: a task number is never reused (`task_numbers_are_not_used_again`).

use minke_manifest::Posture;
use minke_prompts::Snippet;
use minke_record::{
    AskSubject, CallStage, InternalCall, Judgement, LoggedBackend, OpenCall, Outcome, PolicyVerdict,
    Progress, SystemKind, Task, TaskFact, TaskStatus,
};

use crate::calls::{CallResult, ReadyCall};
use crate::engine::PodEngine;
use crate::environment::Environment;
use crate::input::{CallOutput, PreparedCall};
use crate::state::State;
use crate::step_builder::StepBuilder;

/// Maximum number of tasks that are not deleted.
const MAX_TASKS: usize = 200;
/// Requests without a task change after which the model is reminded of open tasks.
const REMIND_AFTER_REQUESTS: u64 = 24;
/// Maximum number of open tasks in a reminder.
const MAX_REMINDED_TASKS: usize = 10;

impl State {
    /// Returns the subject of a question of the model.
    pub(crate) fn question_subject(
        &self,
        call: &OpenCall,
        ready: &ReadyCall,
        digest: String,
        text: &str,
    ) -> AskSubject {
        AskSubject {
            call_id: Some(call.call_id.clone()),
            digest,
            text: Some(text.to_owned()),
            tool: Some(call.tool.clone()),
            action: Some(ready.prepared.action.clone()),
            ..AskSubject::default()
        }
    }

    fn task_by_id(&self, id: u64) -> Option<&TaskFact> {
        self.facts.tasks.iter().find(|task| task.id == id)
    }

    fn unknown_task(&self, id: u64) -> CallResult {
        let message = format!("there is no task {id}; {}", self.task_list());
        CallResult::error(Outcome::Failed, message)
    }

    fn task_counts(&self) -> String {
        let count = |status: &TaskStatus| self.facts.tasks.iter().filter(|t| t.status == *status).count();
        let [done, doing, open] =
            [TaskStatus::Completed, TaskStatus::InProgress, TaskStatus::Pending].map(|status| count(&status));
        format!("{done} of {} tasks completed, {doing} in progress, {open} pending", done + doing + open)
    }

    fn task_list(&self) -> String {
        if self.facts.tasks.is_empty() {
            return "there are no tasks".to_owned();
        }
        let lines: Vec<String> = self.facts.tasks.iter().map(task_line).collect();
        lines.join("\n")
    }
}

impl StepBuilder<'_> {
    fn create_task(&mut self, subject: String, description: Option<String>) -> CallResult {
        if self.state.facts.tasks.len() >= MAX_TASKS {
            let message =
                format!("there are {MAX_TASKS} tasks already; delete those that do not matter any more");
            return CallResult::error(Outcome::Failed, message);
        }
        let id = self.state.facts.task_ids.saturating_add(1);
        self.update_task(Task { id, subject, description, status: TaskStatus::Pending })
    }

    fn update_task(&mut self, task: Task) -> CallResult {
        let summary = format!("task {}: {} ({})", task.id, task.subject, task.status);
        self.append_entry(task);
        let tasks = &self.state.facts.tasks;
        let finished = tasks.iter().filter(|task| task.status == TaskStatus::Completed).count();
        let percent = (!tasks.is_empty()).then(|| 100.0 * finished as f64 / tasks.len() as f64);
        let note = self.state.task_counts();
        self.append_entry(Progress { percent, note });
        completed_call(summary, Some(self.state.task_list()))
    }

    /// Before a request: reminds the model of open tasks that have not changed for long.
    pub(crate) fn remind_of_tasks(&mut self) {
        let open = |task: &&TaskFact| task.status != TaskStatus::Completed;
        if self.state.facts.since_task < REMIND_AFTER_REQUESTS
            || !self.state.facts.tasks.iter().any(|t| open(&t))
        {
            return;
        }
        let mut lines: Vec<String> = self.state.facts.tasks.iter().filter(open).map(task_line).collect();
        let more = lines.len().saturating_sub(MAX_REMINDED_TASKS);
        lines.truncate(MAX_REMINDED_TASKS);
        if more > 0 {
            lines.push(format!("and {more} more (TaskList)"));
        }
        let (tasks, requests) = (lines.join("\n"), REMIND_AFTER_REQUESTS.to_string());
        let values = [("tasks", tasks.as_str()), ("requests", &requests)];
        self.append_model_message(SystemKind::TaskReminder, Snippet::Tasks, &values);
    }
}

impl Environment {
    /// Judges a prepared call. A question to a person is always asked unless the posture denies it.
    pub(crate) fn judge_prepared(&self, state: &State, prepared: &PreparedCall) -> PolicyVerdict {
        match &prepared.internal_call {
            Some(InternalCall::AskUser { .. }) => {
                let (outcome, reason) = match self.posture(state) {
                    Posture::Deny => (Judgement::Deny, "the posture refuses questions: decide yourself"),
                    Posture::Plan | Posture::Ask | Posture::Auto | Posture::Full => {
                        (Judgement::Ask, "a question to a person")
                    }
                };
                let layer = Some("posture".to_owned());
                PolicyVerdict {
                    outcome,
                    rule: None,
                    layer,
                    reason: reason.to_owned(),
                    sandbox: LoggedBackend::NONE,
                }
            }
            _ => self.judge_action(state, &prepared.action),
        }
    }
}

impl PodEngine {
    /// Executes and settles an internal call.
    pub(crate) fn run_internal_call(
        &mut self,
        step: &mut StepBuilder<'_>,
        call: &OpenCall,
        internal_call: InternalCall,
    ) {
        let result = match internal_call {
            InternalCall::TaskCreate { subject, description } => step.create_task(subject, description),
            InternalCall::TaskUpdate { id, subject, description, status } => {
                match step.state.task_by_id(id).cloned() {
                    Some(task) => step.update_task(Task {
                        id,
                        subject: subject.unwrap_or(task.subject),
                        description: description.or(task.description),
                        status: status.unwrap_or(task.status),
                    }),
                    None => step.state.unknown_task(id),
                }
            }
            InternalCall::TaskList => completed_call(step.state.task_counts(), Some(step.state.task_list())),
            InternalCall::TaskGet { id } => match step.state.task_by_id(id) {
                Some(task) => completed_call(
                    format!("task {id}: {} ({})", task.subject, task.status),
                    Some(task_details(task)),
                ),
                None => step.state.unknown_task(id),
            },
            InternalCall::AskUser { .. } => answer_result(call),
            InternalCall::Pods(pods) => return self.start_pods_call(step, call, *pods),
        };
        self.work.calls.settle_call_by(step, &call.call_id, result, call.by.clone());
    }
}

fn completed_call(summary: String, content: Option<String>) -> CallResult {
    CallResult::with_output(Outcome::Done, CallOutput { summary, content, ..CallOutput::default() })
}

fn task_line(task: &TaskFact) -> String {
    format!("{}. [{}] {}", task.id, task.status, task.subject)
}

fn task_details(task: &TaskFact) -> String {
    match &task.description {
        Some(description) => format!("{}\n{description}", task_line(task)),
        None => task_line(task),
    }
}

/// Returns the person's answer as a result.
fn answer_result(call: &OpenCall) -> CallResult {
    let answer = match &call.stage {
        CallStage::Answered { note: Some(note), .. } => note.clone(),
        CallStage::Answered { decision, note: None, .. } => format!("{decision}"),
        CallStage::Wished | CallStage::Asked(_) | CallStage::Dispatched(_) => {
            return CallResult::error(Outcome::Invalid, "only the model asks a person with AskUser");
        }
    };
    completed_call("the person has answered".to_owned(), Some(answer))
}
