//! Own calls: those that a pod's mind carries out itself, because they change nothing but its own log.

use crate::entry::TaskStatus;

/// What a call asks of the pod itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    TaskCreate {
        subject: String,
        description: Option<String>,
    },
    /// What is absent stays as it is.
    TaskUpdate {
        id: u64,
        subject: Option<String>,
        description: Option<String>,
        status: Option<TaskStatus>,
    },
    TaskList,
    TaskGet {
        id: u64,
    },
    /// A durable question to a person; without options any words are an answer.
    AskUser {
        question: String,
        options: Vec<String>,
    },
}
