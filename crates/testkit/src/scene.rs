//! The setting of a story: the session's first step, the boot information, and the parsing of inputs.

use minke_manifest::Manifest;
use minke_pod::{
    BootInfo, ForkRequest, InitialTask, ModelCost, NewSession, OfflineWriter, ResolvedReferences, StepDraft,
    StepSeed, new_session,
};
use minke_policy::{RuleSet, SandboxBackend};
use minke_record::{
    Actor, ChildOutcome, ForkOrigin, InputSegment, Millis, ParentCall, PodEvent, Route, Scope, SessionId,
    SystemItem, SystemKind,
};
use uuid::Uuid;

use crate::scripted::tools;
use crate::story::StoryScene as Setting;

/// The session of a story.
pub(crate) const SESSION: SessionId = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001));
/// Its parent, if it has one.
pub(crate) const PARENT: SessionId = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0002));
/// Its child that reports.
pub(crate) const CHILD: SessionId = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0003));
/// The fork of a `fork` line.
pub(crate) const FORK: SessionId = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0004));
/// The system prompt of a story.
pub const SYSTEM_PROMPT: &str = "You are in a story.";
const VERSION: &str = "0.0.0";

/// Parses an input: a text, followed by its words with `@` as file references.
pub(crate) fn parse_input(text: &str) -> Vec<InputSegment> {
    let (files, words): (Vec<&str>, Vec<&str>) =
        text.split(' ').partition(|word| word.len() > 1 && word.starts_with('@'));
    let mut segments = vec![InputSegment::from_text(words.join(" "))];
    let path = |word: &str| word.trim_start_matches('@').to_owned();
    segments.extend(files.iter().map(|word| InputSegment::FileRef { path: path(word) }));
    segments
}

/// Reads the references of an input like a driver; every file but `missing` exists.
pub(crate) fn read_references(input: &[InputSegment]) -> Result<Vec<SystemItem>, String> {
    let files = input.iter().filter_map(|segment| match segment {
        InputSegment::FileRef { path } => Some(path),
        _ => None,
    });
    files
        .map(|path| match path.as_str() {
            "missing" => Err("there is no file `missing`".to_owned()),
            path => Ok(SystemItem {
                kind: SystemKind::FileAttachment,
                cause: Some(serde_json::json!({ "path": path })),
                body: format!("content of {path}").into(),
            }),
        })
        .collect()
}

/// Returns the references of queued inputs that were not read.
pub(crate) fn queued_references(
    state: &minke_pod::State,
) -> Vec<(minke_record::QueueId, Result<ResolvedReferences, String>)> {
    let waiting = state
        .facts
        .queue
        .iter()
        .filter(|queued| minke_record::has_unread_references(&queued.segments, &queued.attached));
    let read = |queued: &minke_record::Queued| {
        let input = queued.segments.clone();
        read_references(&input).map(|attached| ResolvedReferences { input, attached })
    };
    waiting.map(|queued| (queued.id, read(queued))).collect()
}

fn scene_manifest(scene: &Setting) -> Manifest {
    let mut manifest = Manifest::default();
    if let Some(posture) = &scene.posture {
        manifest.permissions.posture = Some(posture.parse().expect("a story names a posture that there is"));
    }
    if let Some(turns) = scene.max_turns {
        manifest.worker.max_turns = turns;
    }
    if let Some(queue) = scene.queue {
        manifest.pod.limits.queue = queue;
    }
    if let Some(budget) = &scene.budget {
        manifest.budget = serde_json::from_str(budget).expect("a story's budget is JSON");
    }
    if let Some(children) = scene.children {
        manifest.pod.limits.children = children;
    }
    if let Some(depth) = scene.depth {
        manifest.pod.limits.depth = depth;
    }
    manifest.permissions.may_answer = scene.may_answer;
    manifest.permissions.ask_expires_s = scene.expires;
    manifest.pod.idle_exit = scene.idle_exit.unwrap_or(0);
    manifest
}

/// Returns the first step of the session.
pub(crate) fn first_step(scene: &Setting, now: Millis) -> StepDraft {
    let by = if scene.parent { Actor::from_pod(PARENT) } else { Actor::from_person("story") };
    let mandate: Option<serde_json::Value> = scene
        .mandate
        .as_ref()
        .map(|mandate| serde_json::from_str(mandate).expect("a story's mandate is JSON"));
    let objective = mandate.as_ref().and_then(|mandate| mandate.get("objective")?.as_str());
    let task = match (&scene.task, objective) {
        (Some(task), _) => Some(InitialTask { segments: parse_input(task), op_id: None, from: by.clone() }),
        (None, Some(objective)) => Some(InitialTask {
            segments: parse_input(objective),
            op_id: None,
            from: Actor::from_job(SESSION),
        }),
        (None, None) => None,
    };
    let new = NewSession {
        session: SESSION,
        version: VERSION.to_owned(),
        name: "story".parse().expect("`story` is a pod name"),
        created_by: by,
        cwd: "/project".to_owned(),
        workspace: "/project".to_owned(),
        git: None,
        manifest: scene_manifest(scene).to_value(),
        scope: Scope::writable("/project"),
        mandate,
        metadata: None,
        parent: scene.parent.then(|| ParentCall { session: PARENT, call_id: "call_0_0".into() }),
        history: Vec::new(),
        task,
    };
    new_session(StepSeed { now, seed: 1 }, new)
}

/// Returns the writer of offline edits.
pub(crate) fn offline_writer() -> OfflineWriter {
    OfflineWriter {
        pid: 8,
        boot_id: "boot".to_owned(),
        host: "here".to_owned(),
        version: VERSION.to_owned(),
        by: Actor::from_person("story"),
    }
}

/// Returns the request for a fork of the story's session.
pub(crate) fn fork_request(from: ForkOrigin) -> ForkRequest {
    let name = "fork".parse().expect("`fork` is a pod name");
    ForkRequest {
        session: FORK,
        name,
        created_by: Actor::from_person("story"),
        version: VERSION.to_owned(),
        from,
        cwd: None,
        mandate: None,
        pause_reason: None,
    }
}

/// Returns the boot information.
pub(crate) fn boot_info(scene: &Setting, rules: RuleSet) -> BootInfo {
    let route = Route { provider: "scripted".into(), model: "story".into(), scheme: "scripted".into() };
    BootInfo {
        pid: 7,
        boot_id: "boot".to_owned(),
        host: "here".to_owned(),
        version: VERSION.to_owned(),
        tools: tools::tool_specs(),
        system_prompt: SYSTEM_PROMPT.to_owned(),
        route: (!scene.no_model).then(|| route.clone()),
        no_route: if scene.no_model { "no model is configured".to_owned() } else { String::new() },
        own_dirs: minke_record::Scope::default(),
        costs: vec![ModelCost { route, max_output: Some(4_096), price: None }],
        socket: "/run/story.sock".to_owned(),
        rules,
        hook_points: minke_pod::HookPoints {
            user_prompt: scene.hooks,
            before_tool: scene.hooks,
            before_stop: scene.hooks,
        },
        references: Vec::new(),
        sandbox: scene
            .sandbox
            .as_deref()
            .map_or(SandboxBackend::Landlock, |name| name.parse().expect("a story names a sandbox backend")),
        fallbacks: (1..=scene.fallbacks)
            .map(|n| Route {
                provider: "scripted".into(),
                model: format!("spare-{n}"),
                scheme: "scripted".into(),
            })
            .collect(),
        catalog: Default::default(),
    }
}

/// Parses a child's report: `turn_ended`, `errored WHY`, `slept`.
pub(crate) fn parse_report(what: &str) -> Result<PodEvent, String> {
    let pod_name = "child".to_owned();
    let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
    Ok(match word {
        "turn_ended" => PodEvent::TurnEnded { pod_name, result: Some("finished".to_owned()), wake: None },
        "errored" => PodEvent::Errored { pod_name, message: rest.to_owned(), wake: None },
        "slept" => {
            PodEvent::ShutDown { pod_name, outcome: Some(ChildOutcome::Slept), result: None, wake: None }
        }
        _ => return Err(format!("a child does not report `{what}`")),
    })
}
