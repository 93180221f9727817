//! `minke send`: says something to a pod, waking its session if it sleeps.

use clap::{Args, ValueEnum};
use minke_client::{Delivered, Delivery, deliver, find};
use minke_protocol::{Method, Run, RunMode};
use minke_record::limits::TEXT_BYTES;
use minke_record::{Actor, InputSegment, Text};
use serde_json::json;

use crate::around::{Surroundings, ids, introduction};
use crate::exec::read_stdin;
use crate::failure::{Exit, Failure};
use crate::held::make_way;
use crate::referred::Here;
use crate::screen::Screen;
use crate::spoken::without_secrets;
use crate::visit::queue_step;

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// What to say; `-` reads it from stdin
    text: String,
    /// What happens to it while a run is going on
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    /// Take the text as it is: no `@path`, `#knowledge` or `/skill` in it refers to anything
    #[arg(long)]
    literal: bool,
    /// The same id twice is acted on once
    #[arg(long, value_name = "ID")]
    op_id: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Wait for the end of the run
    #[default]
    Queue,
    /// Join the run before its next request
    Steer,
    /// End the run, then start
    Interrupt,
    /// Refuse
    Reject,
}

impl Send {
    /// What waits for the end of the run.
    pub(crate) fn queue(name: String, text: String) -> Send {
        Send { name, text, mode: Mode::Queue, literal: false, op_id: None }
    }
}

pub(crate) async fn run(send: Send, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let text = if send.text == "-" { read_stdin()? } else { send.text };
    if text.trim().is_empty() {
        return Err(Failure::usage("there is nothing to say").hint("`minke send NAME \"text\"`"));
    }
    without_secrets(&[&text], Vec::new(), around)?;
    let home = around.home()?;
    let session = find(&home, &send.name)?.session;
    make_way(&home, session).await?;
    let input = if text.len() > TEXT_BYTES {
        // Too long for a frame, perhaps: the blob goes first, and the message names it. Nobody refers in so long a text.
        let content = Text::Blob(home.store.put_blob(session, text.into_bytes())?);
        vec![InputSegment::Text { content }]
    } else if send.literal {
        vec![InputSegment::text(text)]
    } else {
        Here::of(session, &home, around)?.said(&text)
    };
    let mode = match send.mode {
        Mode::Queue => RunMode::Queue,
        Mode::Steer => RunMode::Steer,
        Mode::Interrupt => RunMode::Interrupt,
        Mode::Reject => RunMode::Reject,
    };
    let op_id = send.op_id.unwrap_or_else(|| ids().next_uuid().to_string());
    // Whatever the mode, a session that sleeps has no run to wait for.
    let visit = queue_step(input.clone(), Some(op_id.clone()), Actor::person("cli"));
    let delivery = Delivery {
        session,
        method: Method::Run(Run { input, mode, op_id: Some(op_id.clone()) }),
        client: introduction(),
        visit: Some(&*visit),
    };
    let (pod, result) = match deliver(&home, delivery).await? {
        Delivered::Replied { pod, result } => (pod, result),
        Delivered::Visited { pod, .. } => (pod, json!({})),
    };
    if screen.json {
        let said = json!({ "pod": pod, "session": format!("s_{session}"), "op_id": op_id, "result": result });
        screen.object(&said)?;
    } else {
        let how = if result.get("queued").is_some() { "queued at" } else { "told" };
        screen.note(&format!("{how} {pod} · `minke tail {pod}` shows what it does"));
    }
    Ok(Exit::Done)
}
