//! The event loop: receives events, computes one step each, and commits it.
//!
//! Here: the sources of events, and the module that handles each. It makes no decisions: `pod` decides the
//! effect of a method in each state. Elsewhere: committing a step (`commit`), stopping (`stop`).

pub(crate) mod commit;
pub(crate) mod dispatch;
pub(crate) mod event;
pub(crate) mod release_queue;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use minke_llm::ResolveContext;
use minke_model::{ModelError, ModelEvent};
use minke_pod::{CommandRequest, InputKind, Pod, PodCommand, ReplyId};
use minke_protocol::{Event, EventPosition, Hello, Nothing, Refusal, ReplyData, Set, encode_event};
use minke_record::{Actor, AlertLevel, AlertSource, ErrorCode, Item};
use minke_registry::ScopeLease;
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::PodExit;
use crate::background::BackgroundTasks;
use crate::calls::CallRunner;
use crate::calls::command_output::OpenCommands;
use crate::calls::snapshots::SnapshotTasks;
use crate::calls::toolset::Toolset;
use crate::children::ChildManager;
use crate::clients::log_reader::SessionReader;
use crate::clients::queries::{self, GreetingInfo};
use crate::clients::stream::PodEventStream;
use crate::clients::{
    ClientConnection, ClientJoin, ClientRegistry, ClientRejoin, MethodRequest, ReplyHandle, convert,
};
use crate::clock::Clock;
use crate::event_loop::dispatch::Dispatch;
use crate::event_loop::event::{LoopEvent, TaskId};
use crate::event_loop::release_queue::ReleaseQueue;
use crate::heartbeat::Heartbeat;
use crate::log::SyncedLog;
use crate::models::{ModelTasks, routes};
use crate::policy::hooks::HookTasks;
use crate::policy::rules::WatchedRules;
use crate::signals::PodSignals;
use crate::stderr::report;
use crate::timers::Timers;

/// How often the scope lease is touched. Nothing else wakes an idle pod.
///
/// A thousand idle pods are woken fifty times a second in total. A pod without a heartbeat for a minute,
/// which is three intervals, is shown as stuck (`registry`).
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// Events that are handled before the client writers run. An event contains at most `models::EVENT_BATCH`
/// pieces of a reply, so this is well below the buffer of a client (`CLIENT_EVENTS`).
const EVENT_BATCH: usize = 4;
/// The pause before the next accept when the system has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// A request that the pod has not answered yet.
pub(crate) struct UnansweredRequest {
    pub(crate) reply_handle: ReplyHandle,
    pub(crate) method: &'static str,
}

/// The state of the log storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorageState {
    Writable,
    /// A write failed; the pod refuses runs until there is space.
    Failed,
    /// Not even the end of the run could be written: all input is refused until a write succeeds.
    Broken(String),
}

/// Ongoing problems that were reported once; each is reported again after a recovery.
#[derive(Debug, Default)]
pub(crate) struct WarnedOnce {
    pub(crate) status: bool,
    heartbeat: bool,
    socket: bool,
}

/// The requests of clients that have no reply yet.
#[derive(Default)]
pub(crate) struct OpenReplies {
    pub(crate) pending: HashMap<ReplyId, UnansweredRequest>,
    pub(crate) next_reply: u64,
}

/// The signs of life of the process, and the signals that stop it.
pub(crate) struct HealthState {
    pub(crate) signals: PodSignals,
    pub(crate) heartbeat: Heartbeat,
    /// A signal has arrived.
    pub(crate) signalled: bool,
    pub(crate) warned: WarnedOnce,
    /// The entry at which `status.json` last got the totals of the log.
    pub(crate) totals_at: Option<u64>,
}

impl HealthState {
    pub(crate) fn new(signals: PodSignals, heartbeat: Heartbeat) -> HealthState {
        HealthState { signals, heartbeat, signalled: false, warned: WarnedOnce::default(), totals_at: None }
    }
}

pub(crate) struct Driver {
    pub(crate) pod: Pod,
    pub(crate) log: SyncedLog,
    pub(crate) release_queue: ReleaseQueue,
    pub(crate) stream: Arc<PodEventStream>,
    pub(crate) clients: ClientRegistry,
    pub(crate) calls: CallRunner,
    pub(crate) commands: OpenCommands,
    pub(crate) snapshots: SnapshotTasks,
    pub(crate) hook_tasks: HookTasks,
    pub(crate) rules: WatchedRules,
    /// Ends every command when it is dropped.
    pub(crate) toolset: Toolset,
    pub(crate) models: ModelTasks,
    pub(crate) background: BackgroundTasks,
    pub(crate) children: ChildManager,
    pub(crate) timers: Timers,
    pub(crate) session_reader: SessionReader,
    pub(crate) clock: Clock,
    pub(crate) scope: ScopeLease,
    pub(crate) greeting_info: GreetingInfo,
    /// The environment of the model lookup.
    pub(crate) model_env: ResolveContext,
    pub(crate) events: mpsc::Receiver<LoopEvent>,
    pub(crate) replies: OpenReplies,
    pub(crate) storage: StorageState,
    pub(crate) health: HealthState,
    pub(crate) pod_exit: Option<PodExit>,
}

impl Driver {
    /// Runs until the pod stops.
    pub(crate) async fn run(mut self, listener: UnixListener) -> PodExit {
        let mut letters = Vec::with_capacity(EVENT_BATCH);
        let mut shut: Option<Instant> = None;
        while self.pod_exit.is_none() {
            let (due, timer) = (self.log.lazy_sync_due(), self.timers.next_due());
            tokio::select! {
                biased;
                done = self.log.next_sync() => self.handle_synced(done),
                code = self.health.signals.next() => self.handle_signal(code),
                () = wait_until_deadline(due) => self.log.sync_lazy(),
                () = wait_until_deadline(timer) => self.fire_timers(),
                accepted = listener.accept(), if shut.is_none() => {
                    if !self.accept_client(accepted) {
                        shut = Some(Instant::now() + ACCEPT_PAUSE);
                    }
                }
                () = wait_until_deadline(shut) => shut = None,
                tick = self.health.heartbeat.next() => {
                    // A heartbeat creates no client events, so no writer needs to run: an idle pod sleeps
                    // again at once.
                    if self.handle_heartbeat(tick) {
                        continue;
                    }
                }
                _ = self.events.recv_many(&mut letters, EVENT_BATCH) => {
                    for letter in letters.drain(..) {
                        self.handle_event(letter);
                    }
                }
            }
            self.release_ready();
            self.write_totals();
            // Client writers are tasks of the same thread: they run after every batch.
            tokio::task::yield_now().await;
        }
        self.stop_pod().await
    }

    /// Handles one event.
    fn handle_event(&mut self, letter: LoopEvent) {
        match letter {
            LoopEvent::ClientJoined { client, hello } => self.join_client(client, hello),
            LoopEvent::ClientBehind(client) => self.rejoin_client(client),
            LoopEvent::ClientLeft(id) => {
                self.clients.remove_client(id);
                self.update_client_count();
            }
            LoopEvent::Request(request) => self.handle_request(*request),
            LoopEvent::RewindRead { reply_handle, expected_head, rewind } => match rewind {
                Ok(mut rewind) => {
                    rewind.head_matches = expected_head == self.log.head();
                    self.submit_order(reply_handle, "rewind", PodCommand::Rewind(Box::new(rewind)));
                }
                Err(refusal) => self.release_queue.reply_now(reply_handle, Err(refusal)),
            },
            LoopEvent::RestoreRead { reply_handle: asker, stopped } => match stopped {
                Ok(stopped) => self.submit_order(asker, "restore_pod", PodCommand::RestorePod(stopped)),
                Err(refusal) => self.release_queue.reply_now(asker, Err(refusal)),
            },
            LoopEvent::BackgroundDone { reply_handle, result } => {
                self.release_queue.reply_now(reply_handle, result)
            }
            LoopEvent::ModelReply { task, call, events, end } => {
                self.handle_model_reply(task, call, events, end)
            }
            LoopEvent::DiskAlert(message) => {
                self.report_alert(AlertLevel::Warn, AlertSource::Storage, message)
            }
            LoopEvent::OwnerGone => self.handle_input(InputKind::OwnerDisconnected),
            LoopEvent::DamageSuspected => self.background.check_log(),
            LoopEvent::LogChecked(checked) => self.handle_log_check(checked),
            LoopEvent::SecretSeen(message) => {
                self.report_alert(AlertLevel::Warn, AlertSource::Policy, message)
            }
            LoopEvent::Prepared { task, call_id, prepared } => {
                if self.calls.finish_task(task, &call_id) {
                    // The action is judged by the current rules.
                    self.refresh_rules();
                    self.handle_input(InputKind::Prepared { call_id, prepared });
                }
            }
            LoopEvent::CallEnded { task, call_id, result } => {
                if self.calls.finish_task(task, &call_id) {
                    self.handle_input(InputKind::CallEnded { call_id, ended: result });
                }
            }
            LoopEvent::CommandOutput { call_id, command_id, event: news } => {
                let before = self.commands.count();
                let event = Event::Command(self.commands.apply_event(call_id, command_id, news));
                let count = self.commands.count();
                if count != before {
                    self.handle_input(InputKind::CommandCount(count));
                }
                let run = self.pod.state().facts.run.as_ref().map(|run| run.id);
                let after_seq = self.log.head().seq;
                self.release_queue.push(None, release_queue::ReleaseItem::Live { event, after_seq, run });
            }
            LoopEvent::HookVerdict { point, verdict } => {
                self.handle_input(InputKind::HookReply { point, verdict })
            }
            LoopEvent::ChildEvent(news) => self.handle_input(InputKind::Child(news)),
            LoopEvent::ChildReport { from, seq, event } => {
                let command = PodCommand::PodEvent { event: *event, from: Some(from), from_seq: Some(seq) };
                self.handle_input(InputKind::Command(Box::new(CommandRequest {
                    from: Actor::from_pod(from),
                    reply: None,
                    command,
                })));
            }
            LoopEvent::HookAlert(message) => self.warn_user(message),
            LoopEvent::InstructionAlert(message) => {
                self.report_alert(AlertLevel::Warn, AlertSource::AgentsMd, message)
            }
            LoopEvent::RuleAdded(Ok(())) => self.refresh_rules(),
            LoopEvent::RuleAdded(Err(message)) => {
                self.report_alert(AlertLevel::Error, AlertSource::Policy, message)
            }
            LoopEvent::HostAccess(what) => self.handle_input(InputKind::NetworkAccess(what)),
            LoopEvent::SnapshotCaptured { run, when, captured } => {
                self.handle_input(InputKind::Captured { run, when, captured })
            }
            LoopEvent::FileChecked { task, call_id, file_state } => {
                if self.calls.finish_task(task, &call_id) {
                    self.handle_input(InputKind::FileChecked { call_id, result: file_state });
                }
            }
        }
    }

    fn handle_model_reply(
        &mut self,
        task: TaskId,
        call: u64,
        events: Vec<ModelEvent>,
        end: Option<ModelError>,
    ) {
        for event in events {
            // A step may have stopped the request.
            if !self.models.is_running(task, call) {
                return;
            }
            if matches!(event, ModelEvent::Done { .. }) {
                self.models.finish_request(call);
            }
            self.handle_input(InputKind::Model { call, event });
        }
        if let Some(failure) = end
            && self.models.is_running(task, call)
        {
            self.models.finish_request(call);
            self.handle_input(InputKind::ModelFailed { call, failure });
        }
    }

    /// Passes changed rule files to the pod.
    fn refresh_rules(&mut self) {
        let Some(loaded) = self.rules.reload_changed(&self.pod.state().manifest.permissions) else { return };
        let (rules, problems) = match loaded {
            Ok(loaded) => (Some(loaded.rules), loaded.problems),
            Err(e) => (None, vec![format!("{e}; the previous rules stay in effect")]),
        };
        if let Some(rules) = rules {
            self.toolset.denials.set_rules(&rules);
            self.handle_input(InputKind::RulesChanged(Box::new(rules)));
        }
        for message in problems {
            self.handle_input(InputKind::Alert {
                level: AlertLevel::Warn,
                source: AlertSource::Policy,
                message,
            });
        }
    }

    /// Subscribes a client according to its first line.
    fn join_client(&mut self, client: Arc<ClientConnection>, hello: Hello) {
        let env = Box::new(queries::snapshot_header(
            &self.pod,
            &self.greeting_info,
            self.log.head(),
            &self.commands,
        ));
        let segment_start = self.pod.state().segment.as_ref().map_or(0, |segment| segment.start);
        let join = Box::new(ClientJoin {
            hello,
            alerts: Vec::new(),
            snapshot: env,
            segment_start,
            stream_position: None,
        });
        self.release_queue.push(None, release_queue::ReleaseItem::Join { client, join });
    }

    /// Subscribes a client that fell behind again, with the current open state.
    fn rejoin_client(&mut self, client: Arc<ClientConnection>) {
        let (head, facts) = (self.log.head(), &self.pod.state().facts);
        let run = facts.run.as_ref().map(|run| run.id);
        let event = Event::Status(convert::status_event(&self.pod.status(), run.is_some()));
        let status = encode_event(&event, &EventPosition::Live { after_seq: head.seq }, run);
        let in_flight = convert::convert_in_flight(self.pod.open_blocks(), &self.commands);
        let rejoin = Box::new(ClientRejoin { head, in_flight, status });
        self.release_queue.push(None, release_queue::ReleaseItem::Rejoin { client, rejoin });
    }

    fn handle_request(&mut self, request: MethodRequest) {
        let MethodRequest { reply_handle, method, attachments } = request;
        let name = method.name();
        match dispatch::dispatch_method(method, reply_handle.id.is_some()) {
            Dispatch::Order(PodCommand::Run { input, mode, op_id, .. }) => {
                self.submit_order(
                    reply_handle,
                    name,
                    PodCommand::Run { input, attached: attachments, mode, op_id },
                );
            }
            Dispatch::Order(order) => self.submit_order(reply_handle, name, order),
            Dispatch::Set(set) => self.apply_set(reply_handle, &set),
            Dispatch::Rewind(rewind) => self.background.prepare_rewind(reply_handle, &rewind),
            Dispatch::Fork { at_seq, name } => self.fork_session(reply_handle, at_seq, name),
            Dispatch::Status => {
                let status = queries::status_reply(&self.pod, self.log.head());
                self.release_queue.reply_now(reply_handle, Ok(ReplyData::from_result(&status)));
            }
            Dispatch::Read(read) => {
                self.reply_later(reply_handle, move |session_reader| session_reader.read_page(&read))
            }
            Dispatch::ReadBlob(read) => {
                self.reply_later(reply_handle, move |library| library.read_blob(&read))
            }
            Dispatch::RewindTargets => {
                reply_handle.reply_later(self.stream.position(), queries::rewind_targets_reply)
            }
            Dispatch::ListCompletions(list) => {
                reply_handle.reply_later(self.stream.position(), move |session_reader, id| {
                    queries::completions_reply(session_reader, &list, id)
                });
            }
            Dispatch::ListPods => self.background.list_pods(reply_handle, &self.pod.state().facts.children),
            Dispatch::RestorePod(restore) => {
                self.background.restore_pod(reply_handle, restore, &self.pod.state().facts.children);
            }
            Dispatch::GetHistory => self.get_history(reply_handle),
            Dispatch::Refused(refusal) => self.release_queue.reply_now(reply_handle, Err(refusal)),
        }
    }

    /// Lets the client's own writer build the reply when it is ready to send it.
    fn reply_later(
        &self,
        asker: ReplyHandle,
        make: impl FnOnce(&SessionReader) -> Result<ReplyData, Refusal> + Send + 'static,
    ) {
        asker.reply_later(self.stream.position(), move |session_reader, id| {
            match (make(session_reader), id) {
                (Ok(data), Some(id)) => Some(minke_protocol::encode_reply(id, data)),
                (Ok(_), None) => None,
                (Err(refusal), id) => Some(crate::clients::refusal_line(id, refusal)),
            }
        });
    }

    /// The older form: an event, and a reply if the request has an id.
    fn get_history(&self, reply_handle: ReplyHandle) {
        let items: Vec<Arc<Item>> = self.pod.state().context.items().to_vec();
        let greeting = queries::build_greeting(&self.pod, &self.greeting_info);
        reply_handle.reply_later(self.stream.position(), move |_, id| {
            let items: Vec<Item> = items.iter().map(|item| item.as_ref().clone()).collect();
            let history = minke_protocol::encode_history(&items, &greeting);
            Some(match id {
                Some(id) => format!(
                    "{history}{}",
                    minke_protocol::encode_reply(id, ReplyData::from_result(&Nothing {}))
                )
                .into(),
                None => history,
            })
        });
    }

    /// Resolves the model of a `set` before the pod handles it.
    fn apply_set(&mut self, reply_handle: ReplyHandle, set: &Set) {
        let mut changes = match dispatch::requested_changes(set) {
            Ok(changes) => changes,
            Err(refusal) => return self.release_queue.reply_now(reply_handle, Err(refusal)),
        };
        if let Some(reference) = &set.model {
            match routes::resolve_named(reference, &self.model_env) {
                Ok((canonical, resolved)) => {
                    changes.cost = Some(routes::highest_cost(&resolved));
                    self.models.add_model(resolved.route.clone(), resolved.model);
                    self.greeting_info.route = Some(resolved.route.clone());
                    self.greeting_info.context_window = resolved.context_window;
                    changes.config.extend(self.pod.state().model_changes(&canonical));
                    changes.route = Some(resolved.route);
                    for message in resolved.alerts {
                        self.handle_input(InputKind::Alert {
                            level: AlertLevel::Warn,
                            source: AlertSource::Worker,
                            message,
                        });
                    }
                }
                Err(why) => {
                    let refusal = Refusal::new(ErrorCode::InvalidRequest, format!("params.model: {why}"));
                    return self.release_queue.reply_now(reply_handle, Err(refusal));
                }
            }
        }
        self.submit_order(reply_handle, "set", PodCommand::Set(Box::new(changes)));
    }

    fn fork_session(&mut self, asker: ReplyHandle, at_seq: Option<u64>, name: Option<minke_record::PodName>) {
        let name = name.unwrap_or_else(|| {
            minke_record::PodName::from_text(&format!("{}-fork", self.greeting_info.pod_name))
        });
        let moment = minke_pod::StepSeed { now: self.clock.now_millis(), seed: self.clock.next_seed() };
        self.background.fork_session(asker, at_seq, name, moment);
    }

    /// Sends an order to the pod.
    pub(crate) fn submit_order(
        &mut self,
        reply_handle: ReplyHandle,
        method: &'static str,
        command: PodCommand,
    ) {
        if let Err(refusal) = self.restore_storage(&command) {
            return self.release_queue.reply_now(reply_handle, Err(refusal));
        }
        if self.greeting_info.route.is_none()
            && matches!(command, PodCommand::Run { .. } | PodCommand::Resume { .. })
        {
            self.resolve_models();
        }
        self.replies.next_reply += 1;
        let to = ReplyId(self.replies.next_reply);
        let from = reply_handle.client.actor();
        self.replies.pending.insert(to, UnansweredRequest { reply_handle, method });
        self.handle_input(InputKind::Command(Box::new(CommandRequest { from, reply: Some(to), command })));
    }

    /// Resolves the models again: a run is requested, and no model was available before.
    fn resolve_models(&mut self) {
        let section = &self.pod.state().manifest.model;
        let found = routes::resolve_routes(section, &self.model_env, &mut self.models);
        self.greeting_info.route.clone_from(&found.route);
        self.greeting_info.context_window = found.context_window;
        let routes::ResolvedRoutes { route, no_route, fallbacks, costs, alerts, .. } = found;
        self.handle_input(InputKind::Routes { route, no_route, fallbacks, costs });
        for message in alerts {
            self.handle_input(InputKind::Alert {
                level: AlertLevel::Warn,
                source: AlertSource::Worker,
                message,
            });
        }
    }

    /// Accepts a client; returns `false` if the system cannot accept one at the moment.
    fn accept_client(&mut self, accepted: std::io::Result<(UnixStream, SocketAddr)>) -> bool {
        match accepted.and_then(|(socket, _)| self.clients.admit_client(socket)) {
            Ok(()) => {
                self.health.warned.socket = false;
                self.update_client_count();
                true
            }
            Err(e) => {
                if !std::mem::replace(&mut self.health.warned.socket, true) {
                    self.warn_user(format!("could not accept a client: {e}"));
                }
                false
            }
        }
    }

    fn update_client_count(&mut self) {
        self.handle_input(InputKind::ClientCount(self.clients.client_count()));
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.timers.take_due() {
            self.handle_input(InputKind::Timer(timer));
        }
    }

    /// The first signal stops the pod in order, the second one ends the process immediately.
    fn handle_signal(&mut self, code: u8) {
        if self.health.signalled {
            self.pod_exit = Some(PodExit::Signal(code));
            return;
        }
        self.health.signalled = true;
        self.handle_input(InputKind::Signal);
    }

    /// Returns whether the heartbeat succeeded; otherwise the user is warned.
    fn handle_heartbeat(&mut self, tick: std::io::Result<()>) -> bool {
        let beaten = tick.map_err(|e| e.to_string());
        match beaten.and_then(|()| self.scope.touch_heartbeat().map_err(|e| e.to_string())) {
            Ok(()) => self.health.warned.heartbeat = false,
            Err(e) if !self.health.warned.heartbeat => {
                self.health.warned.heartbeat = true;
                self.warn_user(format!(
                    "could not write the heartbeat, so this pod may be shown as stuck: {e}"
                ));
            }
            Err(_) => {}
        }
        !self.health.warned.heartbeat
    }

    /// Warns the user about a problem that does not stop the pod.
    pub(crate) fn warn_user(&mut self, message: String) {
        self.report_alert(AlertLevel::Warn, AlertSource::Pod, message);
    }

    fn report_alert(&mut self, level: AlertLevel, source: AlertSource, message: String) {
        self.handle_input(InputKind::Alert { level, source, message });
    }

    fn handle_synced(&mut self, done: crate::log::SyncOutcome) {
        match self.log.finish_sync(done) {
            Ok(()) => self.hook_tasks.notify_committed(self.log.synced()),
            Err(error) => {
                report!("error: {error}\n  try: {}", error.hint());
                self.pod_exit = Some(PodExit::StorageLost);
            }
        }
    }
}

/// Sleeps until the deadline; forever without one.
pub(crate) async fn wait_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
