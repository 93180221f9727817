//! What must hold in a story, line by line.

use minke_pod::OpenBlock;
use minke_record::{Kind, flatten};

use crate::show;
use crate::story::Must;
use crate::tell::Telling;
use crate::world::Stop;

impl Telling<'_> {
    pub(crate) fn must(&mut self, must: &Must) -> Result<(), Stop> {
        self.holds(must).map_err(Stop::Wrong)
    }

    fn holds(&mut self, must: &Must) -> Result<(), String> {
        match must {
            Must::Reply(wanted) => {
                let reply = self.reply_to_last().unwrap_or_else(|| "nothing".to_owned());
                same("the reply", wanted, &reply)
            }
            Must::Log { exact, kinds } => self.log_says(*exact, kinds),
            Must::Phase(wanted) => {
                let phase = self.world.pod.as_ref().map_or("gone", |pod| pod.phase().name());
                same("the pod", wanted, phase)
            }
            Must::Activity(wanted) => {
                let activity = self.world.pod.as_ref().and_then(|pod| pod.status().activity);
                same("the activity", wanted, activity.map_or("none", |activity| activity.name()))
            }
            Must::WaitsOn(wanted) => {
                let waiting = self.world.pod.as_ref().and_then(|pod| pod.status().waiting);
                same("what it waits on", wanted, waiting.as_ref().map_or("nothing", |w| w.on.as_str()))
            }
            Must::Context(wanted) => self.context_is(wanted),
            Must::Queue(wanted) => {
                let queue = &self.world.state().facts.queue;
                let said: Vec<String> = queue
                    .iter()
                    .map(|queued| show::item(&flatten(&queued.segments)).replacen("user ", "", 1))
                    .collect();
                same("the queue", &wanted.join(", "), &said.join(", "))
            }
            Must::Held(wanted) => {
                let word = |held: bool| if held { "held" } else { "free" };
                same("the queue", word(*wanted), word(self.world.state().facts.held))
            }
            Must::Notes(wanted) => {
                same("notes", &wanted.to_string(), &self.world.state().facts.notes.len().to_string())
            }
            Must::Asks(wanted) => {
                same("asks", &wanted.to_string(), &self.world.state().facts.asks.len().to_string())
            }
            Must::Grants(wanted) => {
                same("grants", &wanted.to_string(), &self.world.state().facts.grants.len().to_string())
            }
            Must::Children(wanted) => {
                let children = self.world.state().facts.children.iter().map(|child| match &child.ended {
                    None => format!("{} lives", child.name),
                    Some(ended) => format!("{} {}", child.name, ended.outcome),
                });
                same("the children", &wanted.join(", "), &children.collect::<Vec<_>>().join(", "))
            }
            Must::Told(wanted) => {
                let told: Vec<&str> = self.world.kin.told.iter().map(|(_, kind)| kind.as_str()).collect();
                same("what the parent heard", &wanted.join(", "), &told.join(", "))
            }
            Must::Job(wanted, retries) => {
                let job = self.world.state().facts.job.as_ref();
                same("the job", wanted, job.map_or("none", |job| job.state.name()))?;
                let found = job.map_or(0, |job| job.retries);
                same("its retries", &retries.unwrap_or(found).to_string(), &found.to_string())
            }
            Must::Left(wanted) => {
                let left = self.world.state().left().tokens;
                same(
                    "tokens left",
                    &wanted.to_string(),
                    &left.map_or("all".to_owned(), |left| left.to_string()),
                )
            }
            Must::Offered(wanted) => {
                let offered = self.world.state().facts.asks.first().map(|ask| ask.options.join(", "));
                same("what is offered", &wanted.join(", "), offered.as_deref().unwrap_or("nothing"))
            }
            Must::Verdict(wanted) => {
                let verdict = self.world.log.entries().iter().rev().find_map(|entry| match &entry.kind {
                    Kind::ToolDispatch(e) => Some(e.verdict.clone()),
                    Kind::ToolResult(e) => e.verdict.clone(),
                    _ => None,
                });
                let layer = verdict.and_then(|verdict| verdict.layer);
                same("the layer of the verdict", wanted, layer.as_deref().unwrap_or("none"))
            }
            Must::Added(wanted) => {
                same("rules added", &wanted.to_string(), &self.world.added.len().to_string())
            }
            Must::Name(wanted) => {
                let name = self.world.state().facts.name.as_ref().map(ToString::to_string);
                same("the name", wanted, name.as_deref().unwrap_or("none"))
            }
            Must::Ran { tool, times } => {
                let ran = self.world.hands.ran.get(tool).copied().unwrap_or(0);
                same(&format!("how often {tool} ran"), &times.to_string(), &ran.to_string())
            }
            Must::Noted(wanted) => {
                same("what was noted", &wanted.join(", "), &self.world.hands.noted.join(", "))
            }
            Must::Alert(wanted) => self.alerted(wanted),
            Must::InFlight(wanted) => self.in_flight(wanted),
            Must::Seen(wanted) => {
                let seen = std::mem::take(&mut self.world.seen_text);
                same("the text that was seen", wanted, &seen)
            }
        }
    }

    fn log_says(&mut self, exact: bool, wanted: &[String]) -> Result<(), String> {
        let entries = self.world.log.entries();
        let said: Vec<String> = entries.iter().filter(|e| e.seq >= self.looked).map(show::entry).collect();
        self.looked = entries.last().map_or(0, |entry| entry.seq + 1);
        let fits = |wanted: &str, said: &str| {
            wanted == said || said.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('('))
        };
        let ok = if exact {
            said.len() == wanted.len() && said.iter().zip(wanted).all(|(said, wanted)| fits(wanted, said))
        } else {
            let mut rest = said.iter();
            wanted.iter().all(|wanted| rest.any(|said| fits(wanted, said)))
        };
        if ok { Ok(()) } else { Err(format!("the log has `{}`", said.join(" "))) }
    }

    fn context_is(&self, wanted: &[String]) -> Result<(), String> {
        let items: Vec<String> =
            self.world.state().context.items().iter().map(|item| show::item(item)).collect();
        let ok = items.len() == wanted.len()
            && items.iter().zip(wanted).all(|(item, wanted)| show::fits(wanted, item));
        if ok { Ok(()) } else { Err(format!("the context is `{}`", items.join(" / "))) }
    }

    fn alerted(&mut self, wanted: &str) -> Result<(), String> {
        let looked = self.looked;
        let logged = self.world.log.entries().iter().filter_map(|entry| match &entry.kind {
            Kind::Alert(alert) if entry.seq >= looked => Some(alert.message.clone()),
            _ => None,
        });
        let alerts: Vec<String> = self.world.alerts.iter().cloned().chain(logged).collect();
        self.world.alerts.clear();
        if alerts.iter().any(|alert| alert.contains(wanted)) {
            return Ok(());
        }
        Err(format!("the alerts are `{}`", alerts.join("`, `")))
    }

    fn in_flight(&self, wanted: &str) -> Result<(), String> {
        let blocks = self.world.pod.as_ref().map(minke_pod::Pod::open_blocks).unwrap_or_default();
        let said: Vec<String> = blocks
            .iter()
            .map(|block| match block {
                OpenBlock::Text { text } => format!("text {text}"),
                OpenBlock::Thinking { text } => format!("thinking {text}"),
                OpenBlock::ToolCall { name, arguments, .. } => format!("call {name} {arguments}"),
            })
            .collect();
        let said = if said.is_empty() { "nothing".to_owned() } else { said.join(", ") };
        same("in flight", wanted, &said)
    }
}

fn same(what: &str, wanted: &str, is: &str) -> Result<(), String> {
    if show::fits(wanted, is) { Ok(()) } else { Err(format!("{what}: `{is}`, and not `{wanted}`")) }
}
