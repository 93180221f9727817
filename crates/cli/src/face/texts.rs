//! What commands would print, for the terminal's pages: rules, skills, what this machine gives, an export, the tour.

use std::path::{Path, PathBuf};

use minke_pod::State;
use minke_policy::Posture;
use minke_record::{Kind, SessionId};
use minke_tui::{Answer, SkillLine};

use super::Face;
use crate::around::Surroundings;
use crate::failure::Failure;
use crate::referred::Here;
use crate::screen::clean;

/// Lines of a page.
const LINES: usize = 2_000;

fn page(title: &str, lines: Vec<String>) -> Answer {
    let lines = lines.into_iter().take(LINES).map(|line| clean(&line).into_owned()).collect();
    Answer::Text { title: title.to_owned(), lines }
}

impl Face {
    /// The surroundings as seen from where a session works.
    fn at(&self, session: Option<SessionId>) -> Result<Surroundings, Failure> {
        let mut around = self.around.clone();
        let Some(session) = session else { return Ok(around) };
        let first = self.home.store.reader(session)?.page(0, 1, usize::MAX)?;
        if let Some(Kind::SessionStart(start)) = first.entries.first().map(|sealed| &sealed.entry.kind) {
            around.cwd = PathBuf::from(&start.cwd);
        }
        Ok(around)
    }

    pub(super) async fn policy(
        &self,
        session: Option<SessionId>,
        line: Option<String>,
    ) -> Result<Answer, Failure> {
        let (around, home) = (self.at(session)?, self.home.clone());
        let told = self.beside("the rules", move || {
            let posture: Option<Posture> = match session {
                Some(session) => {
                    let replay = home.store.reader(session)?.replay()?;
                    let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
                    state.manifest.permissions.posture
                }
                None => None,
            };
            crate::policy::told(&around, posture, line.as_deref())
        });
        Ok(page("Policy", told.await?))
    }

    pub(super) async fn skills(&self, session: Option<SessionId>) -> Result<Answer, Failure> {
        let (around, home) = (self.around.clone(), self.home.clone());
        let found = self.beside("the list of skills", move || {
            let here = match session {
                Some(session) => Here::of(session, &home, &around)?,
                None => crate::skills::here(&around)?,
            };
            Ok(crate::skills::named(here.shelf()))
        });
        let line = |[name, says, from]: [String; 3]| SkillLine { name, says, from };
        Ok(Answer::Skills(found.await?.into_iter().map(line).collect()))
    }

    pub(super) async fn doctor(&self) -> Result<Answer, Failure> {
        let around = self.around.clone();
        let told = self.beside("what this machine gives", move || crate::doctor::lines(&around));
        Ok(page("Doctor", told.await?))
    }

    /// As `minke log export` does it, into a file that is not there yet.
    pub(super) async fn export(&self, session: SessionId, file: Option<String>) -> Result<Answer, Failure> {
        let (home, cwd) = (self.home.clone(), self.around.cwd.clone());
        let path = match file {
            Some(file) => cwd.join(file),
            None => free(&cwd, session),
        };
        let written = path.clone();
        let told = self.beside("the export", move || crate::log::to_file(&home, session, &written)).await?;
        let told = told.map(|told| format!("; {told}")).unwrap_or_default();
        Ok(Answer::Done(format!("it is in {}{told}", path.display())))
    }

    pub(super) async fn tour(&self) -> Result<Answer, Failure> {
        let told = crate::tour::shown(&self.around, &self.screen).await?;
        Ok(page("What the tour has shown", told.lines().map(str::to_owned).collect()))
    }
}

/// A name for an export that no file has.
fn free(dir: &Path, session: SessionId) -> PathBuf {
    let id = session.to_string();
    // The end of an id tells sessions apart; its beginning is the time.
    let short = id.get(id.len().saturating_sub(8)..).unwrap_or(&id).to_owned();
    let numbered = (1..=1_000).map(|number| match number {
        1 => dir.join(format!("minke-{short}.md")),
        number => dir.join(format!("minke-{short}-{number}.md")),
    });
    numbered
        .clone()
        .find(|path| path.symlink_metadata().is_err())
        .unwrap_or_else(|| dir.join(format!("minke-{id}.md")))
}
