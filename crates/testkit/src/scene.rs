//! What is there before a story begins: the session's first step, what its process knows, and the words for inputs.

use minke_manifest::Manifest;
use minke_pod::{Boot, Cost, Forking, Moment, NewSession, Referred, Task, Visitor, Written, new_session};
use minke_policy::{RuleSet, Tier};
use minke_record::{
    Actor, ChildOutcome, ForkedFrom, InputSegment, Millis, Parent, PodEvent, Route, Scope, SessionId,
    SystemItem, SystemKind,
};
use uuid::Uuid;

use crate::hands;
use crate::story::Scene as Setting;

/// The session that a story is about.
pub(crate) const SESSION: SessionId = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001));
/// Its parent, where it has one.
pub(crate) const PARENT: SessionId = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0002));
/// Its child, where one reports.
pub(crate) const CHILD: SessionId = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0003));
/// The fork of a `fork` line.
pub(crate) const FORK: SessionId = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0004));
/// What the model of a story is told first.
pub const SYSTEM_PROMPT: &str = "You are in a story.";
const VERSION: &str = "0.0.0";

/// What somebody says: a text, and behind it the files that its words with an `@` refer to.
pub(crate) fn said(text: &str) -> Vec<InputSegment> {
    let (files, words): (Vec<&str>, Vec<&str>) =
        text.split(' ').partition(|word| word.len() > 1 && word.starts_with('@'));
    let mut segments = vec![InputSegment::text(words.join(" "))];
    let path = |word: &str| word.trim_start_matches('@').to_owned();
    segments.extend(files.iter().map(|word| InputSegment::FileRef { path: path(word) }));
    segments
}

/// What an input refers to, as a driver would read it; in a story there is every file but `missing`.
pub(crate) fn read(input: &[InputSegment]) -> Result<Vec<SystemItem>, String> {
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

/// What inputs refer to that wait and were not read.
pub(crate) fn referred(state: &minke_pod::State) -> Vec<(minke_record::QueueId, Result<Referred, String>)> {
    let waiting =
        state.facts.queue.iter().filter(|queued| minke_record::unread(&queued.segments, &queued.attached));
    let read = |queued: &minke_record::Queued| {
        let input = queued.segments.clone();
        read(&input).map(|attached| Referred { input, attached })
    };
    waiting.map(|queued| (queued.id, read(queued))).collect()
}

fn manifest(scene: &Setting) -> Manifest {
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

/// The creator's step.
pub(crate) fn first_step(scene: &Setting, now: Millis) -> Written {
    let by = if scene.parent { Actor::pod(PARENT) } else { Actor::person("story") };
    let mandate: Option<serde_json::Value> = scene
        .mandate
        .as_ref()
        .map(|mandate| serde_json::from_str(mandate).expect("a story's mandate is JSON"));
    let objective = mandate.as_ref().and_then(|mandate| mandate.get("objective")?.as_str());
    let task = match (&scene.task, objective) {
        (Some(task), _) => Some(Task { segments: said(task), op_id: None, from: by.clone() }),
        (None, Some(objective)) => {
            Some(Task { segments: said(objective), op_id: None, from: Actor::job(SESSION) })
        }
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
        manifest: manifest(scene).to_value(),
        scope: Scope::write("/project"),
        mandate,
        metadata: None,
        parent: scene.parent.then(|| Parent { session: PARENT, call_id: "call_0_0".into() }),
        history: Vec::new(),
        task,
    };
    new_session(Moment { now, seed: 1 }, new)
}

/// Who visits while no pod lives.
pub(crate) fn visitor() -> Visitor {
    Visitor {
        pid: 8,
        boot_id: "boot".to_owned(),
        host: "here".to_owned(),
        version: VERSION.to_owned(),
        by: Actor::person("story"),
    }
}

/// A fork of the story's session.
pub(crate) fn forking(from: ForkedFrom) -> Forking {
    let name = "fork".parse().expect("`fork` is a pod name");
    Forking {
        session: FORK,
        name,
        created_by: Actor::person("story"),
        version: VERSION.to_owned(),
        from,
        cwd: None,
        mandate: None,
        rests: None,
    }
}

/// What the process knows when it begins.
pub(crate) fn boot(scene: &Setting, rules: RuleSet) -> Boot {
    let route = Route { provider: "scripted".into(), model: "story".into(), scheme: "scripted".into() };
    Boot {
        pid: 7,
        boot_id: "boot".to_owned(),
        host: "here".to_owned(),
        version: VERSION.to_owned(),
        tools: hands::specs(),
        system_prompt: SYSTEM_PROMPT.to_owned(),
        route: (!scene.no_model).then(|| route.clone()),
        no_route: if scene.no_model { "no model is configured".to_owned() } else { String::new() },
        own: minke_record::Scope::default(),
        costs: vec![Cost { route, max_output: Some(4_096), price: None }],
        socket: "/run/story.sock".to_owned(),
        rules,
        steers: minke_pod::Steers {
            user_prompt: scene.hooks,
            before_tool: scene.hooks,
            before_stop: scene.hooks,
        },
        referred: Vec::new(),
        fence: scene
            .fence
            .as_deref()
            .map_or(Tier::B, |tier| tier.parse().expect("a story names a tier that there is")),
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

/// `turn_ended`, `errored WHY`, `slept`: what a child reports.
pub(crate) fn report(what: &str) -> Result<PodEvent, String> {
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
