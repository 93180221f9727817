//! `minke tail --tree`: a pod and everybody below it, each line after the name of its pod.
//!
//! The logs are read as they grow, so that nobody is woken and a pod that sleeps in between is not lost; whole entries
//! only, since the words of several models would run into each other.
//! Invariant: an entry is shown once, whoever is followed (`a_tree_is_followed_and_every_line_has_a_name`).

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use minke_client::Home;
use minke_record::{Entry, Kind, SessionId};
use minke_registry::Runtime;
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::family::{Family, Folds, Reach};
use crate::screen::Screen;
use crate::transcript::Lines;

/// How often the logs are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many looks pass between two looks at who lives.
const LOOKS_PER_COUNT: u32 = 5;
/// How many sessions are followed at once.
const FOLLOWED: usize = 1_024;
/// A page of a log that is read at once.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// One voice.
struct Voice {
    session: SessionId,
    name: String,
    next: u64,
    lines: Lines,
}

struct Chorus<'a> {
    home: &'a Home,
    screen: &'a Screen,
    voices: Vec<Voice>,
    known: BTreeSet<SessionId>,
    /// Children that entries spoke of.
    born: VecDeque<(SessionId, String)>,
}

pub(crate) async fn run(
    home: &Home,
    root: SessionId,
    last: u64,
    follow: bool,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let mut chorus =
        Chorus { home, screen, voices: Vec::new(), known: BTreeSet::new(), born: VecDeque::new() };
    chorus.begin(root, last)?;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    let mut looks = 0_u32;
    loop {
        // Whoever lives now may write until it is gone: what it wrote last is read after that.
        let over = looks.is_multiple_of(LOOKS_PER_COUNT) && !chorus.anybody_lives()?;
        chorus.listen()?;
        if over || !follow {
            return Ok(Exit::Done);
        }
        looks = looks.wrapping_add(1);
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            signal = &mut interrupted => {
                signal.map_err(|e| Failure::new(Exit::Failed, "cannot listen for signals").why(e))?;
                return Ok(Exit::Signal);
            }
        }
    }
}

impl Chorus<'_> {
    /// Everybody who is there, each from its last entries on.
    fn begin(&mut self, root: SessionId, last: u64) -> Result<(), Failure> {
        let family = Family::look(self.home, Reach::Remembered, &mut Folds::default())?;
        let mut there: Vec<(SessionId, String)> =
            family.below(root).iter().map(|member| (member.session, member.name.clone())).collect();
        if there.is_empty() {
            // Nobody lives there, so nobody speaks of it: the log itself does.
            let known = Folds::default().known(self.home, root);
            there.push((root, known.as_ref().and_then(|known| known.name.clone()).unwrap_or_default()));
            let children = known.map(|known| known.children).unwrap_or_default();
            there.extend(children.into_iter().map(|child| (child.session, child.name.to_string())));
        }
        for (session, name) in there {
            let head = self.home.store.reader(session)?.head()?;
            let next = head.map_or(0, |head| (head.seq + 1).saturating_sub(last));
            self.join(session, name, next);
        }
        Ok(())
    }

    fn join(&mut self, session: SessionId, name: String, next: u64) {
        if self.voices.len() < FOLLOWED && self.known.insert(session) {
            self.voices.push(Voice { session, name, next, lines: Lines::default() });
        }
    }

    fn anybody_lives(&self) -> Result<bool, Failure> {
        let look = Runtime::new(&self.home.paths).look()?;
        Ok(look.live.iter().any(|live| self.known.contains(&live.row.session)))
    }

    /// Shows what is new of everybody, children that were just born included.
    fn listen(&mut self) -> Result<(), Failure> {
        let mut at = 0;
        while at < self.voices.len() {
            self.hear(at)?;
            // A child's log begins with its task.
            while let Some((session, name)) = self.born.pop_front() {
                self.join(session, name, 0);
            }
            at += 1;
        }
        Ok(())
    }

    fn hear(&mut self, at: usize) -> Result<(), Failure> {
        let width = self.voices.iter().map(|voice| voice.name.len()).max().unwrap_or(0);
        let Some(voice) = self.voices.get_mut(at) else { return Ok(()) };
        // A child is spoken of before its session is made.
        let Ok(reader) = self.home.store.reader(voice.session) else { return Ok(()) };
        let Some(head) = reader.head()? else { return Ok(()) };
        while voice.next <= head.seq {
            let page = reader.page(voice.next, PAGE_ENTRIES, PAGE_BYTES)?;
            if page.entries.is_empty() {
                return Ok(());
            }
            for sealed in &page.entries {
                voice.next = sealed.entry.seq + 1;
                if let Kind::Child(child) = &sealed.entry.kind {
                    self.born.push_back((child.session, child.name.to_string()));
                }
                show(self.screen, voice, &sealed.entry, width)?;
            }
        }
        Ok(())
    }
}

fn show(screen: &Screen, voice: &mut Voice, entry: &Entry, width: usize) -> Result<(), Failure> {
    if screen.json {
        let session = format!("s_{}", voice.session);
        return screen.object(&json!({ "pod": voice.name, "session": session, "entry": entry }));
    }
    voice
        .lines
        .entry(entry)
        .iter()
        .try_for_each(|line| screen.line(&format!("{:<width$} │ {line}", voice.name)))
}
