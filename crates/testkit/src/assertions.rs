//! The assertions of a story, line by line.

use minke_pod::OpenBlock;
use minke_record::{Kind, flatten_input};

use crate::describe;
use crate::story::StoryAssertion;
use crate::story::run::StoryRun;
use crate::world::StoryStop;

impl StoryRun<'_> {
    pub(crate) fn check_assertion(&mut self, must: &StoryAssertion) -> Result<(), StoryStop> {
        self.evaluate(must).map_err(StoryStop::Failed)
    }

    fn evaluate(&mut self, must: &StoryAssertion) -> Result<(), String> {
        match must {
            StoryAssertion::Reply(wanted) => {
                let reply = self.last_reply_text().unwrap_or_else(|| "nothing".to_owned());
                expect_match("the reply", wanted, &reply)
            }
            StoryAssertion::Log { exact, kinds } => self.check_log(*exact, kinds),
            StoryAssertion::Phase(wanted) => {
                let phase = self.world.pod.as_ref().map_or("gone", |pod| pod.phase().name());
                expect_match("the pod", wanted, phase)
            }
            StoryAssertion::Activity(wanted) => {
                let activity = self.world.pod.as_ref().and_then(|pod| pod.status().activity);
                expect_match("the activity", wanted, activity.map_or("none", |activity| activity.name()))
            }
            StoryAssertion::WaitsOn(wanted) => {
                let waiting = self.world.pod.as_ref().and_then(|pod| pod.status().waiting);
                expect_match("the wait", wanted, waiting.as_ref().map_or("nothing", |w| w.on.as_str()))
            }
            StoryAssertion::Context(wanted) => self.check_context(wanted),
            StoryAssertion::Queue(wanted) => {
                let queue = &self.world.current_state().facts.queue;
                let said: Vec<String> = queue
                    .iter()
                    .map(|queued| {
                        describe::describe_item(&flatten_input(&queued.segments)).replacen("user ", "", 1)
                    })
                    .collect();
                expect_match("the queue", &wanted.join(", "), &said.join(", "))
            }
            StoryAssertion::QueueHeld(wanted) => {
                let word = |held: bool| if held { "held" } else { "free" };
                expect_match("the queue", word(*wanted), word(self.world.current_state().facts.held))
            }
            StoryAssertion::Notes(wanted) => expect_match(
                "notes",
                &wanted.to_string(),
                &self.world.current_state().facts.notes.len().to_string(),
            ),
            StoryAssertion::Asks(wanted) => expect_match(
                "asks",
                &wanted.to_string(),
                &self.world.current_state().facts.asks.len().to_string(),
            ),
            StoryAssertion::Grants(wanted) => expect_match(
                "grants",
                &wanted.to_string(),
                &self.world.current_state().facts.grants.len().to_string(),
            ),
            StoryAssertion::Children(wanted) => {
                let children =
                    self.world.current_state().facts.children.iter().map(|child| match &child.ended {
                        None => format!("{} lives", child.name),
                        Some(ended) => format!("{} {}", child.name, ended.outcome),
                    });
                expect_match("the children", &wanted.join(", "), &children.collect::<Vec<_>>().join(", "))
            }
            StoryAssertion::ParentReceived(wanted) => {
                let told: Vec<&str> =
                    self.world.pods.parent_received.iter().map(|(_, kind)| kind.as_str()).collect();
                expect_match("the reports to the parent", &wanted.join(", "), &told.join(", "))
            }
            StoryAssertion::Job(wanted, retries) => {
                let job = self.world.current_state().facts.job.as_ref();
                expect_match("the job", wanted, job.map_or("none", |job| job.state.state_name()))?;
                let found = job.map_or(0, |job| job.retries);
                expect_match("its retries", &retries.unwrap_or(found).to_string(), &found.to_string())
            }
            StoryAssertion::TokensLeft(wanted) => {
                let left = self.world.current_state().remaining_budget().tokens;
                expect_match(
                    "tokens left",
                    &wanted.to_string(),
                    &left.map_or("all".to_owned(), |left| left.to_string()),
                )
            }
            StoryAssertion::AskOptions(wanted) => {
                let offered = self.world.current_state().facts.asks.first().map(|ask| ask.options.join(", "));
                expect_match("the options", &wanted.join(", "), offered.as_deref().unwrap_or("nothing"))
            }
            StoryAssertion::Verdict(wanted) => {
                let verdict = self.world.log.entries().iter().rev().find_map(|entry| match &entry.kind {
                    Kind::ToolDispatch(e) => Some(e.verdict.clone()),
                    Kind::ToolResult(e) => e.verdict.clone(),
                    _ => None,
                });
                let layer = verdict.and_then(|verdict| verdict.layer);
                expect_match("the layer of the verdict", wanted, layer.as_deref().unwrap_or("none"))
            }
            StoryAssertion::RulesAdded(wanted) => {
                expect_match("rules added", &wanted.to_string(), &self.world.added_rules.len().to_string())
            }
            StoryAssertion::Name(wanted) => {
                let name = self.world.current_state().facts.name.as_ref().map(ToString::to_string);
                expect_match("the name", wanted, name.as_deref().unwrap_or("none"))
            }
            StoryAssertion::ToolRuns { tool, times } => {
                let ran = self.world.tools.run_counts.get(tool).copied().unwrap_or(0);
                expect_match(&format!("how often {tool} ran"), &times.to_string(), &ran.to_string())
            }
            StoryAssertion::NoteLines(wanted) => {
                expect_match("the lines of Note", &wanted.join(", "), &self.world.tools.note_lines.join(", "))
            }
            StoryAssertion::Alert(wanted) => self.check_alert(wanted),
            StoryAssertion::InFlight(wanted) => self.check_in_flight(wanted),
            StoryAssertion::SeenText(wanted) => {
                let seen = std::mem::take(&mut self.world.seen_text);
                expect_match("the text that was seen", wanted, &seen)
            }
        }
    }

    fn check_log(&mut self, exact: bool, wanted: &[String]) -> Result<(), String> {
        let entries = self.world.log.entries();
        let said: Vec<String> =
            entries.iter().filter(|e| e.seq >= self.checked_seq).map(describe::describe_entry).collect();
        self.checked_seq = entries.last().map_or(0, |entry| entry.seq + 1);
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

    fn check_context(&self, wanted: &[String]) -> Result<(), String> {
        let items: Vec<String> = self
            .world
            .current_state()
            .context
            .items()
            .iter()
            .map(|item| describe::describe_item(item))
            .collect();
        let ok = items.len() == wanted.len()
            && items.iter().zip(wanted).all(|(item, wanted)| describe::matches_pattern(wanted, item));
        if ok { Ok(()) } else { Err(format!("the context is `{}`", items.join(" / "))) }
    }

    fn check_alert(&mut self, wanted: &str) -> Result<(), String> {
        let looked = self.checked_seq;
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

    fn check_in_flight(&self, wanted: &str) -> Result<(), String> {
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
        expect_match("in flight", wanted, &said)
    }
}

fn expect_match(what: &str, wanted: &str, is: &str) -> Result<(), String> {
    if describe::matches_pattern(wanted, is) {
        Ok(())
    } else {
        Err(format!("{what}: `{is}`, and not `{wanted}`"))
    }
}
