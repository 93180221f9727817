//! Own calls: the plan that an agent keeps, and its questions to a person. Nothing outside the log is touched.
//!
//! Here: what each call does. Elsewhere: their arguments (`tools`), how tasks fold (`fold`), answers (`orders`).
//! Invariant: a task's number is never used again (`task_numbers_are_not_used_again`).

use minke_manifest::Posture;
use minke_prompts::Snippet;
use minke_record::{
    AskSubject, CallStage, Judgement, OpenCall, Outcome, Own, Progress, SystemKind, Task, TaskFact,
    TaskStatus, Verdict,
};

use crate::calls::{Ready, Settled};
use crate::input::{Prepared, Said};
use crate::pod::{Making, Pod};

/// Tasks that are not deleted; a plan with more is not one.
const TASKS: usize = 200;
/// After this many requests without a change of a task the model is reminded of those that are open.
const REMIND_AFTER: u64 = 24;
/// How many open tasks a reminder names.
const REMINDED: usize = 10;

impl Pod {
    /// A question to a person is always asked, unless nobody may be; everything else is the gate's to judge.
    pub(crate) fn judge_prepared(&self, prepared: &Prepared) -> Verdict {
        match &prepared.own {
            Some(Own::AskUser { .. }) => {
                let (outcome, reason) = match self.posture() {
                    Posture::Deny => (Judgement::Deny, "the posture refuses questions: decide yourself"),
                    Posture::Plan | Posture::Ask | Posture::Auto | Posture::Full => {
                        (Judgement::Ask, "a question to a person")
                    }
                };
                let layer = Some("posture".to_owned());
                Verdict { outcome, rule: None, layer, reason: reason.to_owned(), fence: None }
            }
            _ => self.judge(&prepared.action),
        }
    }

    /// What a question of the model is about.
    pub(crate) fn question(&self, call: &OpenCall, ready: &Ready, digest: String, text: &str) -> AskSubject {
        AskSubject {
            call_id: Some(call.call_id.clone()),
            digest,
            text: Some(text.to_owned()),
            tool: Some(call.tool.clone()),
            action: Some(ready.prepared.action.clone()),
            ..AskSubject::default()
        }
    }

    /// Does what the call asks of the pod itself, and settles it.
    pub(crate) fn carry_out_own(&mut self, m: &mut Making, call: &OpenCall, own: Own) {
        let settled = match own {
            Own::TaskCreate { subject, description } => self.create_task(m, subject, description),
            Own::TaskUpdate { id, subject, description, status } => match self.task(id).cloned() {
                Some(task) => self.change_task(
                    m,
                    Task {
                        id,
                        subject: subject.unwrap_or(task.subject),
                        description: description.or(task.description),
                        status: status.unwrap_or(task.status),
                    },
                ),
                None => self.no_task(id),
            },
            Own::TaskList => done(self.counts(), Some(self.plan())),
            Own::TaskGet { id } => match self.task(id) {
                Some(task) => {
                    done(format!("task {id}: {} ({})", task.subject, task.status), Some(whole(task)))
                }
                None => self.no_task(id),
            },
            Own::AskUser { .. } => answer_of(call),
            Own::Pods(pods) => return self.pods_call(m, call, *pods),
        };
        self.settle_call_by(m, &call.call_id, settled, call.by.clone());
    }

    fn task(&self, id: u64) -> Option<&TaskFact> {
        self.state.facts.tasks.iter().find(|task| task.id == id)
    }

    fn no_task(&self, id: u64) -> Settled {
        let message = format!("there is no task {id}; {}", self.plan());
        Settled::error(Outcome::Failed, message)
    }

    fn create_task(&mut self, m: &mut Making, subject: String, description: Option<String>) -> Settled {
        if self.state.facts.tasks.len() >= TASKS {
            let message =
                format!("there are {TASKS} tasks already; delete those that do not matter any more");
            return Settled::error(Outcome::Failed, message);
        }
        let id = self.state.facts.task_ids.saturating_add(1);
        self.change_task(m, Task { id, subject, description, status: TaskStatus::Pending })
    }

    fn change_task(&mut self, m: &mut Making, task: Task) -> Settled {
        let told = format!("task {}: {} ({})", task.id, task.subject, task.status);
        self.note(m, task);
        let tasks = &self.state.facts.tasks;
        let finished = tasks.iter().filter(|task| task.status == TaskStatus::Completed).count();
        let percent = (!tasks.is_empty()).then(|| 100.0 * finished as f64 / tasks.len() as f64);
        let note = self.counts();
        self.note(m, Progress { percent, note });
        done(told, Some(self.plan()))
    }

    fn counts(&self) -> String {
        let count =
            |status: &TaskStatus| self.state.facts.tasks.iter().filter(|t| t.status == *status).count();
        let [done, doing, open] =
            [TaskStatus::Completed, TaskStatus::InProgress, TaskStatus::Pending].map(|status| count(&status));
        format!("{done} of {} tasks completed, {doing} in progress, {open} pending", done + doing + open)
    }

    fn plan(&self) -> String {
        if self.state.facts.tasks.is_empty() {
            return "there are no tasks".to_owned();
        }
        let lines: Vec<String> = self.state.facts.tasks.iter().map(line).collect();
        lines.join("\n")
    }

    /// Before a request: open tasks that have not changed for long are brought to mind.
    pub(crate) fn remind_of_tasks(&mut self, m: &mut Making) {
        let open = |task: &&TaskFact| task.status != TaskStatus::Completed;
        if self.state.facts.since_task < REMIND_AFTER || !self.state.facts.tasks.iter().any(|t| open(&t)) {
            return;
        }
        let mut lines: Vec<String> = self.state.facts.tasks.iter().filter(open).map(line).collect();
        let more = lines.len().saturating_sub(REMINDED);
        lines.truncate(REMINDED);
        if more > 0 {
            lines.push(format!("and {more} more (TaskList)"));
        }
        let (tasks, requests) = (lines.join("\n"), REMIND_AFTER.to_string());
        let values = [("tasks", tasks.as_str()), ("requests", &requests)];
        self.tell_model(m, SystemKind::TaskReminder, Snippet::Tasks, &values);
    }
}

fn done(summary: String, content: Option<String>) -> Settled {
    Settled::with(Outcome::Done, Said { summary, content, ..Said::default() })
}

fn line(task: &TaskFact) -> String {
    format!("{}. [{}] {}", task.id, task.status, task.subject)
}

fn whole(task: &TaskFact) -> String {
    match &task.description {
        Some(description) => format!("{}\n{description}", line(task)),
        None => line(task),
    }
}

/// What the person said.
fn answer_of(call: &OpenCall) -> Settled {
    let said = match &call.stage {
        CallStage::Answered { note: Some(note), .. } => note.clone(),
        CallStage::Answered { decision, note: None, .. } => format!("{decision}"),
        CallStage::Wished | CallStage::Asked(_) | CallStage::Dispatched(_) => {
            return Settled::error(Outcome::Invalid, "only the model asks a person with AskUser");
        }
    };
    done("the person has answered".to_owned(), Some(said))
}
