//! Children: the hand that reaches other pods.
//!
//! Elsewhere: what is wanted of them (`pod::tree`), who holds which scope (`registry`), starting a process (`client`).

use minke_pod::{CallEnd, TreeNews, TreeOrder};
use minke_record::CallId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::mail::Mail;

pub(crate) struct Children {
    tasks: JoinSet<()>,
    mail: mpsc::Sender<Mail>,
}

impl Children {
    pub(crate) fn new(mail: mpsc::Sender<Mail>) -> Children {
        Children { tasks: JoinSet::new(), mail }
    }

    pub(crate) fn order(&mut self, order: TreeOrder) {
        let call_id: Option<CallId> = match &order {
            TreeOrder::Send { call_id, .. } | TreeOrder::Read { call_id, .. } => Some(call_id.clone()),
            _ => None,
        };
        let Some(call_id) = call_id else { return };
        let mail = self.mail.clone();
        self.tasks.spawn(async move {
            let ended = CallEnd::Failed { message: format!("not possible yet: {order:?}") };
            // The loop is gone only when the process ends.
            drop(mail.send(Mail::Tree(Box::new(TreeNews::Told { call_id, ended }))).await);
        });
    }
}
