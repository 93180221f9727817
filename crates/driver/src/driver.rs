//! The loop: mail in, one step each, and out again through the log.
//!
//! Here: what the loop waits for, and which hand each letter goes to. It has no opinions: what a method does in which
//! state is decided in `pod`. Elsewhere: how a step is carried out (`carrying`), the end (`stop`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use minke_llm::Around;
use minke_model::ModelEvent;
use minke_pod::{Order, Pod, ReplyTo, Request, What};
use minke_protocol::{Event, Hello, Nothing, Place, Refusal, ReplyData, Set, encode};
use minke_record::{Actor, AlertLevel, AlertSource, ErrorCode, Item};
use minke_registry::ScopeLease;
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::Ending;
use crate::answers::{self, Introduction};
use crate::calls::Calls;
use crate::captures::Captures;
use crate::children::Children;
use crate::clients::{Asked, Asker, Client, Clients, Join, Rejoin};
use crate::clock::Clock;
use crate::errands::Errands;
use crate::heartbeat::Heartbeat;
use crate::hooks::Hooked;
use crate::kit::Kit;
use crate::library::Library;
use crate::log::Log;
use crate::mail::Mail;
use crate::methods::{self, Door};
use crate::models::Models;
use crate::news::OpenCommands;
use crate::outlet::{self, Outlet};
use crate::routes;
use crate::rules::Rules;
use crate::signals::Signals;
use crate::stderr::report;
use crate::stream::Stream;
use crate::timers::Timers;
use crate::wire;

/// How often the scope lease is touched. Nothing else wakes an idle pod.
///
/// A thousand idle pods together are woken fifty times a second by it. One that has not beaten for a minute shows as stuck
/// (`registry`): three beats are missed by then.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(20);
/// Letters that are handled before the clients' writers get their turn. A letter holds at most `models::BATCH` pieces of
/// a reply, so this is well below what is kept for a client (`CLIENT_EVENTS`).
const BATCH: usize = 4;
/// How long the door stays shut when the system has no descriptor left for another client.
const DOOR_SHUT: Duration = Duration::from_millis(500);

/// Somebody whose order the pod has not answered yet.
pub(crate) struct Pending {
    pub(crate) asker: Asker,
    pub(crate) method: &'static str,
}

/// What the log can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Storage {
    Good,
    /// A write failed; the pod knows and refuses runs until there is space.
    Failed,
    /// Not even the end of the run could be written: nothing is taken until it can.
    Broken(String),
}

/// What does not work at the moment and was told once; it is told again when it has worked in between.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    pub(crate) status: bool,
    beat: bool,
    door: bool,
}

pub(crate) struct Driver {
    pub(crate) pod: Pod,
    pub(crate) log: Log,
    pub(crate) outlet: Outlet,
    pub(crate) stream: Arc<Stream>,
    pub(crate) clients: Clients,
    pub(crate) calls: Calls,
    pub(crate) commands: OpenCommands,
    pub(crate) captures: Captures,
    pub(crate) hooked: Hooked,
    pub(crate) rules: Rules,
    /// Ends every command when it goes.
    pub(crate) kit: Kit,
    pub(crate) models: Models,
    pub(crate) errands: Errands,
    pub(crate) children: Children,
    pub(crate) timers: Timers,
    pub(crate) library: Library,
    pub(crate) clock: Clock,
    pub(crate) scope: ScopeLease,
    pub(crate) introduction: Introduction,
    /// Where models are looked for.
    pub(crate) around: Around,
    pub(crate) mailbox: mpsc::Receiver<Mail>,
    pub(crate) pending: HashMap<ReplyTo, Pending>,
    pub(crate) asked: u64,
    pub(crate) storage: Storage,
    pub(crate) signals: Signals,
    pub(crate) heartbeat: Heartbeat,
    /// A signal has come.
    pub(crate) signalled: bool,
    pub(crate) troubles: Troubles,
    /// The entry at which `status.json` last said what the log comes to.
    pub(crate) tallied: Option<u64>,
    pub(crate) ending: Option<Ending>,
}

impl Driver {
    /// Works until the pod is at its end.
    pub(crate) async fn run(mut self, listener: UnixListener) -> Ending {
        let mut letters = Vec::with_capacity(BATCH);
        let mut shut: Option<Instant> = None;
        while self.ending.is_none() {
            let (due, timer) = (self.log.due(), self.timers.next());
            tokio::select! {
                biased;
                done = self.log.next() => self.synced(done),
                code = self.signals.next() => self.signal(code),
                () = until(due) => self.log.sync_lazy(),
                () = until(timer) => self.timers_due(),
                accepted = listener.accept(), if shut.is_none() => {
                    if !self.let_in(accepted) {
                        shut = Some(Instant::now() + DOOR_SHUT);
                    }
                }
                () = until(shut) => shut = None,
                beaten = self.heartbeat.next() => {
                    // A beat says nothing to anybody, so nobody needs a turn after it: an idle pod sleeps on at once.
                    if self.beat(beaten) {
                        continue;
                    }
                }
                _ = self.mailbox.recv_many(&mut letters, BATCH) => {
                    for letter in letters.drain(..) {
                        self.open(letter);
                    }
                }
            }
            self.release();
            self.tally();
            // The writers of clients are tasks of the same thread: they have their turn after every batch.
            tokio::task::yield_now().await;
        }
        self.stop().await
    }

    /// Opens one letter.
    fn open(&mut self, letter: Mail) {
        match letter {
            Mail::Join { client, hello } => self.join(client, hello),
            Mail::Behind(client) => self.rejoin(client),
            Mail::Left(id) => {
                self.clients.forget(id);
                self.count_clients();
            }
            Mail::Asked(asked) => self.asked(*asked),
            Mail::Rewind { asker, expected_head, rewind } => match rewind {
                Ok(mut rewind) => {
                    rewind.head_fits = expected_head == self.log.head();
                    self.order(asker, "rewind", Order::Rewind(Box::new(rewind)));
                }
                Err(refusal) => self.outlet.answer(asker, Err(refusal)),
            },
            Mail::Restore { asker, stopped } => match stopped {
                Ok(stopped) => self.order(asker, "restore_pod", Order::RestorePod(stopped)),
                Err(refusal) => self.outlet.answer(asker, Err(refusal)),
            },
            Mail::Done { asker, result } => self.outlet.answer(asker, result),
            Mail::Model { task, call, events, end } => {
                for event in events {
                    // A step may have stopped the request.
                    if !self.models.is_running(task, call) {
                        return;
                    }
                    if matches!(event, ModelEvent::Done { .. }) {
                        self.models.ended(call);
                    }
                    self.take(What::Model { call, event });
                }
                if let Some(failure) = end
                    && self.models.is_running(task, call)
                {
                    self.models.ended(call);
                    self.take(What::ModelFailed { call, failure });
                }
            }
            Mail::Alert(message) => {
                self.take(What::Alert { level: AlertLevel::Warn, source: AlertSource::Storage, message });
            }
            Mail::OwnerGone => self.take(What::OwnerGone),
            Mail::Suspect => self.errands.check_log(),
            Mail::Checked(checked) => self.log_checked(checked),
            Mail::Noticed(message) => {
                self.take(What::Alert { level: AlertLevel::Warn, source: AlertSource::Policy, message });
            }
            Mail::Prepared { task, call_id, prepared } => {
                if self.calls.is_over(task, &call_id) {
                    // It is judged by the rules as they are now.
                    self.refresh_rules();
                    self.take(What::Prepared { call_id, prepared });
                }
            }
            Mail::CallEnded { task, call_id, ended } => {
                if self.calls.is_over(task, &call_id) {
                    self.take(What::CallEnded { call_id, ended });
                }
            }
            Mail::Command { call_id, command_id, news } => {
                let before = self.commands.count();
                let event = Event::Command(self.commands.hear(call_id, command_id, news));
                let count = self.commands.count();
                if count != before {
                    self.take(What::Commands(count));
                }
                let run = self.pod.state().facts.run.as_ref().map(|run| run.id);
                let after_seq = self.log.head().seq;
                self.outlet.push(None, outlet::Item::Live { event, after_seq, run });
            }
            Mail::HooksSaid { point, said } => self.take(What::HooksSaid { point, said }),
            Mail::Tree(news) => self.take(What::Tree(news)),
            Mail::Report { from, seq, event } => {
                let order = Order::PodEvent { event: *event, from: Some(from), from_seq: Some(seq) };
                self.take(What::Order(Box::new(Request { from: Actor::pod(from), reply: None, order })));
            }
            Mail::Hook(message) => self.complain(message),
            Mail::Instructions(message) => {
                self.take(What::Alert { level: AlertLevel::Warn, source: AlertSource::AgentsMd, message });
            }
            Mail::RuleAdded(Ok(())) => self.refresh_rules(),
            Mail::RuleAdded(Err(message)) => {
                self.take(What::Alert { level: AlertLevel::Error, source: AlertSource::Policy, message });
            }
            Mail::Reached(what) => self.take(What::Reached(what)),
            Mail::Captured { run, when, captured } => self.take(What::Captured { run, when, captured }),
            Mail::FileChecked { task, call_id, found } => {
                if self.calls.is_over(task, &call_id) {
                    self.take(What::FileChecked { call_id, found });
                }
            }
        }
    }

    /// Tells the pod what the rule files say, if they were changed.
    fn refresh_rules(&mut self) {
        let Some(loaded) = self.rules.changed(&self.pod.state().manifest.permissions) else { return };
        let (rules, problems) = match loaded {
            Ok(loaded) => (Some(loaded.rules), loaded.problems),
            Err(e) => (None, vec![format!("{e}; the rules that held before still hold")]),
        };
        if let Some(rules) = rules {
            self.kit.denials.set(&rules);
            self.take(What::Policy(Box::new(rules)));
        }
        for message in problems {
            self.take(What::Alert { level: AlertLevel::Warn, source: AlertSource::Policy, message });
        }
    }

    /// A client's first line has decided what it gets.
    fn join(&mut self, client: Arc<Client>, hello: Hello) {
        let around =
            Box::new(answers::around(&self.pod, &self.introduction, self.log.head(), &self.commands));
        let segment_start = self.pod.state().segment.as_ref().map_or(0, |segment| segment.start);
        let join = Box::new(Join { hello, alerts: Vec::new(), around, segment_start, place: None });
        self.outlet.push(None, outlet::Item::Join { client, join });
    }

    /// A client that fell behind gets a new place, and what is open there.
    fn rejoin(&mut self, client: Arc<Client>) {
        let (head, facts) = (self.log.head(), &self.pod.state().facts);
        let run = facts.run.as_ref().map(|run| run.id);
        let event = Event::Status(wire::status_event(&self.pod.status(), run.is_some()));
        let status = encode(&event, &Place::Live { after_seq: head.seq }, run);
        let in_flight = wire::in_flight(self.pod.open_blocks(), &self.commands);
        let rejoin = Box::new(Rejoin { head, in_flight, status });
        self.outlet.push(None, outlet::Item::Rejoin { client, rejoin });
    }

    fn asked(&mut self, asked: Asked) {
        let Asked { asker, method, attached } = asked;
        let name = method.name();
        match methods::door(method, asker.id.is_some()) {
            Door::Order(Order::Run { input, mode, op_id, .. }) => {
                self.order(asker, name, Order::Run { input, attached, mode, op_id });
            }
            Door::Order(order) => self.order(asker, name, order),
            Door::Set(set) => self.set(asker, &set),
            Door::Rewind(rewind) => self.errands.rewind(asker, &rewind),
            Door::Fork { at_seq, name } => self.fork(asker, at_seq, name),
            Door::Status => {
                let status = answers::status(&self.pod, self.log.head());
                self.outlet.answer(asker, Ok(ReplyData::ok(&status)));
            }
            Door::Read(read) => self.answer_later(asker, move |library| library.page(&read)),
            Door::ReadBlob(read) => self.answer_later(asker, move |library| library.blob(&read)),
            Door::RewindTargets => asker.answer_later(self.stream.here(), answers::rewind_targets),
            Door::ListCompletions(list) => {
                asker.answer_later(self.stream.here(), move |library, id| {
                    answers::completions(library, &list, id)
                });
            }
            Door::ListPods => self.errands.list_pods(asker, &self.pod.state().facts.children),
            Door::RestorePod(restore) => {
                self.errands.restore_pod(asker, restore, &self.pod.state().facts.children);
            }
            Door::GetHistory => self.get_history(asker),
            Door::Refused(refusal) => self.outlet.answer(asker, Err(refusal)),
        }
    }

    /// Lets the client's own writer make the reply, when it is ready to send it.
    fn answer_later(
        &self,
        asker: Asker,
        make: impl FnOnce(&Library) -> Result<ReplyData, Refusal> + Send + 'static,
    ) {
        asker.answer_later(self.stream.here(), move |library, id| match (make(library), id) {
            (Ok(data), Some(id)) => Some(minke_protocol::reply(id, data)),
            (Ok(_), None) => None,
            (Err(refusal), id) => Some(crate::clients::refusal_line(id, refusal)),
        });
    }

    /// The older form: an event, and the reply that an id is owed.
    fn get_history(&self, asker: Asker) {
        let items: Vec<Arc<Item>> = self.pod.state().context.items().to_vec();
        let greeting = answers::greeting(&self.pod, &self.introduction);
        asker.answer_later(self.stream.here(), move |_, id| {
            let items: Vec<Item> = items.iter().map(|item| item.as_ref().clone()).collect();
            let history = minke_protocol::history(&items, &greeting);
            Some(match id {
                Some(id) => {
                    format!("{history}{}", minke_protocol::reply(id, ReplyData::ok(&Nothing {}))).into()
                }
                None => history,
            })
        });
    }

    /// Finds the model that a `set` names before the pod hears of it.
    fn set(&mut self, asker: Asker, set: &Set) {
        let mut changes = match methods::changes(set) {
            Ok(changes) => changes,
            Err(refusal) => return self.outlet.answer(asker, Err(refusal)),
        };
        if let Some(reference) = &set.model {
            match routes::named(reference, &self.around) {
                Ok((canonical, resolved)) => {
                    changes.cost = Some(routes::cost(&resolved));
                    self.models.know(resolved.route.clone(), resolved.model);
                    self.introduction.route = Some(resolved.route.clone());
                    self.introduction.window = resolved.context_window;
                    changes.config.extend(self.pod.state().model_changes(&canonical));
                    changes.route = Some(resolved.route);
                    for message in resolved.alerts {
                        self.take(What::Alert {
                            level: AlertLevel::Warn,
                            source: AlertSource::Worker,
                            message,
                        });
                    }
                }
                Err(why) => {
                    let refusal = Refusal::new(ErrorCode::InvalidRequest, format!("params.model: {why}"));
                    return self.outlet.answer(asker, Err(refusal));
                }
            }
        }
        self.order(asker, "set", Order::Set(Box::new(changes)));
    }

    fn fork(&mut self, asker: Asker, at_seq: Option<u64>, name: Option<minke_record::PodName>) {
        let name = name.unwrap_or_else(|| {
            minke_record::PodName::from_any(&format!("{}-fork", self.introduction.pod_name))
        });
        let moment = minke_pod::Moment { now: self.clock.now(), seed: self.clock.seed() };
        self.errands.fork(asker, at_seq, name, moment);
    }

    /// Gives an order to the pod.
    pub(crate) fn order(&mut self, asker: Asker, method: &'static str, order: Order) {
        if let Err(refusal) = self.make_room_for(&order) {
            return self.outlet.answer(asker, Err(refusal));
        }
        if self.introduction.route.is_none() && matches!(order, Order::Run { .. } | Order::Resume { .. }) {
            self.look_for_models();
        }
        self.asked += 1;
        let to = ReplyTo(self.asked);
        let from = asker.client.actor();
        self.pending.insert(to, Pending { asker, method });
        self.take(What::Order(Box::new(Request { from, reply: Some(to), order })));
    }

    /// Looks for the models once more: somebody wants a run, and there was none to ask.
    fn look_for_models(&mut self) {
        let section = &self.pod.state().manifest.model;
        let found = routes::look_up(section, &self.around, &mut self.models);
        self.introduction.route.clone_from(&found.route);
        self.introduction.window = found.window;
        let routes::Found { route, no_route, fallbacks, costs, alerts, .. } = found;
        self.take(What::Routes { route, no_route, fallbacks, costs });
        for message in alerts {
            self.take(What::Alert { level: AlertLevel::Warn, source: AlertSource::Worker, message });
        }
    }

    /// Lets a client in; `false` if the system cannot at the moment.
    fn let_in(&mut self, accepted: std::io::Result<(UnixStream, SocketAddr)>) -> bool {
        match accepted.and_then(|(socket, _)| self.clients.admit(socket)) {
            Ok(()) => {
                self.troubles.door = false;
                self.count_clients();
                true
            }
            Err(e) => {
                if !std::mem::replace(&mut self.troubles.door, true) {
                    self.complain(format!("a client could not be let in: {e}"));
                }
                false
            }
        }
    }

    fn count_clients(&mut self) {
        self.take(What::Clients(self.clients.count()));
    }

    fn timers_due(&mut self) {
        while let Some(timer) = self.timers.take_due() {
            self.take(What::Timer(timer));
        }
    }

    /// The first signal asks the pod to stop, a second one ends the process at once.
    fn signal(&mut self, code: u8) {
        if self.signalled {
            self.ending = Some(Ending::Signal(code));
            return;
        }
        self.signalled = true;
        self.take(What::Signal);
    }

    /// Gives whether all is well; else the person has been told.
    fn beat(&mut self, beaten: std::io::Result<()>) -> bool {
        let beaten = beaten.map_err(|e| e.to_string());
        match beaten.and_then(|()| self.scope.beat().map_err(|e| e.to_string())) {
            Ok(()) => self.troubles.beat = false,
            Err(e) if !self.troubles.beat => {
                self.troubles.beat = true;
                self.complain(format!("this pod may show as stuck: {e}"));
            }
            Err(_) => {}
        }
        !self.troubles.beat
    }

    /// Tells the person about something that does not stop the pod.
    pub(crate) fn complain(&mut self, message: String) {
        self.take(What::Alert { level: AlertLevel::Warn, source: AlertSource::Pod, message });
    }

    fn synced(&mut self, done: crate::log::Synced) {
        match self.log.heard(done) {
            Ok(()) => self.hooked.committed(self.log.synced()),
            Err(error) => {
                report!("error: {error}\n  try: {}", error.hint());
                self.ending = Some(Ending::StorageLost);
            }
        }
    }
}

/// Sleeps until then; forever if there is no then.
pub(crate) async fn until(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}
