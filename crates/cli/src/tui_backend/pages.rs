//! Pages of the terminal UI with the output of commands: rules, skills, doctor, export, tour.

use std::path::{Path, PathBuf};

use minke_launch::ReferenceScope;
use minke_pod::State;
use minke_policy::Posture;
use minke_record::{Kind, SessionId};
use minke_tui::{BackendResponse, SkillLine};

use super::CliTuiBackend;
use crate::context::CliContext;
use crate::error::CliError;
use crate::output::sanitize_text;

/// Maximum number of lines of a page.
const MAX_PAGE_LINES: usize = 2_000;

fn text_page(title: &str, lines: Vec<String>) -> BackendResponse {
    let lines =
        lines.into_iter().take(MAX_PAGE_LINES).map(|line| sanitize_text(&line).into_owned()).collect();
    BackendResponse::Text { title: title.to_owned(), lines }
}

impl CliTuiBackend {
    /// Returns the context with the working directory of a session.
    fn context_for(&self, session: Option<SessionId>) -> Result<CliContext, CliError> {
        let mut context = self.context.clone();
        let Some(session) = session else { return Ok(context) };
        let first = self.home.store.open_reader(session)?.read_page(0, 1, usize::MAX)?;
        if let Some(Kind::SessionStart(start)) = first.entries.first().map(|sealed| &sealed.entry.kind) {
            context.env.cwd = PathBuf::from(&start.cwd);
        }
        Ok(context)
    }

    pub(super) async fn policy_page(
        &self,
        session: Option<SessionId>,
        line: Option<String>,
    ) -> Result<BackendResponse, CliError> {
        let (around, home) = (self.context_for(session)?, self.home.clone());
        let lines = self.run_blocking("the rules", move || {
            let posture: Option<Posture> = match session {
                Some(session) => {
                    let replay = home.store.open_reader(session)?.read_replay()?;
                    let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
                    state.manifest.permissions.posture
                }
                None => None,
            };
            crate::commands::approvals::policy::describe_policy(&around, posture, line.as_deref())
        });
        Ok(text_page("Policy", lines.await?))
    }

    pub(super) async fn skills_page(&self, session: Option<SessionId>) -> Result<BackendResponse, CliError> {
        let (context, home) = (self.context.clone(), self.home.clone());
        let found = self.run_blocking("the list of skills", move || {
            let references = match session {
                Some(session) => ReferenceScope::for_session(session, &home, &context.env)?,
                None => crate::commands::setup::skills::local_references(&context)?,
            };
            Ok(crate::commands::setup::skills::named_skills(references.definitions()))
        });
        let line = |[name, description, source]: [String; 3]| SkillLine { name, description, source };
        Ok(BackendResponse::Skills(found.await?.into_iter().map(line).collect()))
    }

    pub(super) async fn doctor_page(&self) -> Result<BackendResponse, CliError> {
        let context = self.context.clone();
        let lines = self.run_blocking("the machine report", move || {
            crate::commands::diagnostics::doctor::report_lines(&context)
        });
        Ok(text_page("Doctor", lines.await?))
    }

    /// Exports as `minke log export` does, into a new file.
    pub(super) async fn export_session(
        &self,
        session: SessionId,
        file: Option<String>,
    ) -> Result<BackendResponse, CliError> {
        let (home, cwd) = (self.home.clone(), self.context.env.cwd.clone());
        let path = match file {
            Some(file) => cwd.join(file),
            None => free_export_path(&cwd, session),
        };
        let written = path.clone();
        let lines = self
            .run_blocking("the export", move || {
                crate::commands::sessions::log::export_to_file(&home, session, &written)
            })
            .await?;
        let told = lines.map(|told| format!("; {told}")).unwrap_or_default();
        Ok(BackendResponse::Done(format!("exported to {}{told}", path.display())))
    }

    pub(super) async fn tour_page(&self) -> Result<BackendResponse, CliError> {
        let lines = crate::commands::diagnostics::tour::run_in_tui(&self.context, &self.output).await?;
        Ok(text_page("Tour", lines.lines().map(str::to_owned).collect()))
    }
}

/// Returns a new file name for an export.
fn free_export_path(dir: &Path, session: SessionId) -> PathBuf {
    let id = session.to_string();
    // The end of an id identifies a session; its start is the time.
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
