//! Messages between processes: commands to another pod's socket, and the replies.
//!
//! A message may arrive late, out of order, twice or never; without a reply it is sent again. Messages are
//! lost with either process, like connections.

use minke_pod::{CommandRefusal, CommandRequest, InputKind, PodCommand, ReplyBody, ReplyId};
use minke_record::{Actor, Millis};

use super::{Key, TreeFlaw, TreeSimulation};

/// A message without a reply is sent again after this time.
pub(super) const RESEND_AFTER_MS: Millis = 5_000;

#[derive(Debug, Clone)]
pub(super) struct PodMessage {
    pub(super) id: u64,
    pub(super) from: Key,
    pub(super) to: Key,
    body: MessageBody,
}

#[derive(Debug, Clone)]
enum MessageBody {
    Command {
        order: Box<PodCommand>,
        by: Actor,
    },
    /// The reply to the message with the same id.
    Reply(Result<ReplyBody, CommandRefusal>),
}

/// A message of a task and its reply.
#[derive(Debug, Clone, Default)]
pub(super) struct MessageExchange {
    message: Option<(u64, Key, Millis)>,
    reply: Option<Result<ReplyBody, CommandRefusal>>,
}

impl PodMessage {
    pub(super) fn new_reply(
        from: Key,
        to: Key,
        id: u64,
        result: Result<ReplyBody, CommandRefusal>,
    ) -> PodMessage {
        PodMessage { id, from, to, body: MessageBody::Reply(result) }
    }
}

impl TreeSimulation {
    /// Sends a command until there is a reply; returns the reply when it has arrived.
    pub(super) fn exchange_command(
        &mut self,
        from: Key,
        to: Key,
        exchange: &mut MessageExchange,
        command: &PodCommand,
        by: &Actor,
    ) -> Option<Result<ReplyBody, CommandRefusal>> {
        if let Some(heard) = exchange.reply.take() {
            exchange.message = None;
            return Some(heard);
        }
        let now = self.machine.now;
        let waits = exchange.message.is_some_and(|(_, whom, since)| {
            whom == to && now.saturating_sub(since) < RESEND_AFTER_MS && now >= since
        });
        if !waits {
            if exchange.message.is_some() {
                self.count_branch("a message was sent again");
            }
            self.last_message_id += 1;
            let id = self.last_message_id;
            exchange.message = Some((id, to, now));
            let body = MessageBody::Command { order: Box::new(command.clone()), by: by.clone() };
            self.messages.push(PodMessage { id, from, to, body });
        }
        None
    }

    /// Delivers or loses a random message.
    pub(super) fn deliver_message(&mut self) -> Result<(), String> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.messages.len());
        if at > 0 {
            self.count_branch("a message overtook another");
        }
        self.steps += 1;
        if !self.is_settling && self.random.one_in(12) {
            self.messages.swap_remove(at);
            self.count_branch("a message was lost");
            return Ok(());
        }
        let message = if !self.is_settling && self.random.one_in(12) {
            self.count_branch("a message arrived twice");
            self.messages[at].clone()
        } else {
            self.messages.swap_remove(at)
        };
        let PodMessage { id, from, to, body } = message;
        match body {
            MessageBody::Command { order: command, by } => self.receive_command(to, from, id, *command, by),
            MessageBody::Reply(result) => {
                if let Some(process) = self.processes.get_mut(&to) {
                    let waits = |exchange: &&mut MessageExchange| {
                        exchange.message.is_some_and(|(mine, ..)| mine == id)
                    };
                    let mut exchanges =
                        process.tasks.iter_mut().filter_map(super::pod_tasks::PodTask::exchange);
                    if let Some(exchange) = exchanges.find(waits) {
                        exchange.reply = Some(result);
                    }
                }
                Ok(())
            }
        }
    }

    fn receive_command(
        &mut self,
        key: Key,
        sender: Key,
        message: u64,
        command: PodCommand,
        by: Actor,
    ) -> Result<(), String> {
        let early =
            self.flaw == Some(TreeFlaw::AcksUnwritten) && matches!(command, PodCommand::PodEvent { .. });
        self.last_reply_id += 1;
        let reply = ReplyId(self.last_reply_id);
        let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
        let Some(life) = process.live_pod.as_mut().filter(|_| process.exits_at.is_none()) else {
            return Ok(());
        };
        if early {
            self.messages.push(PodMessage::new_reply(key, sender, message, Ok(ReplyBody::Ok)));
            let request = CommandRequest { from: by, reply: None, command };
            life.inbox.push_back(InputKind::Command(Box::new(request)));
            return Ok(());
        }
        life.reply_targets.insert(reply, (sender, message));
        self.feed_input(
            key,
            InputKind::Command(Box::new(CommandRequest { from: by, reply: Some(reply), command })),
        )
    }
}
