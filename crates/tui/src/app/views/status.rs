//! The status line of the session. Elsewhere: the line with the current keys (`footer`).

use minke_protocol::{Activity, Status};
use minke_record::Millis;
use minke_text::{format_count, format_dollars};
use ratatui::text::{Line, Span};

use super::super::format::to_one_line;
use super::super::session::{AttachedSession, ConnectionState};
use crate::app::{ScreenStyle, ScreenView, SessionLink};
use crate::keys::Action;
use crate::paint::{Clean, StyleRole, StyledText, truncate_line};

/// The frames of the activity indicator.
const SPINNER: [&str; 4] = ["◐", "◓", "◑", "◒"];

impl ScreenView<'_> {
    /// Name, state, model, posture, scope, sandbox, tokens, cost, context. Words that do not fit are dropped
    /// from the right.
    pub(in crate::app) fn status_line(&self, width: u16) -> Line<'static> {
        let dim = self.style.theme.role_style(StyleRole::Dim);
        let Some(attached) = &self.link.session else {
            let model = self.lists.first_run.as_ref().and_then(|found| found.model.clone());
            let model = model.map_or_else(
                || "no model selected".to_owned(),
                |model| format!("model {}", self.style.abbreviate_paths(&model)),
            );
            let doing = self
                .link
                .joining
                .clone()
                .map(|doing| format!("{} {doing}", self.style.spinner_frame(self.now)));
            let words =
                [Some(self.style.abbreviate_paths(&self.cwd.display().to_string())), Some(model), doing];
            let words = words.into_iter().flatten().map(|word| Span::styled(sanitize_line(&word), dim));
            return fit_words(self.other_asks_span().into_iter().chain(words).collect(), width);
        };
        let (state, role) = self.link.session_state(self.style, self.now, attached);
        let status = attached.session_status();
        let name = if status.name.is_empty() { &attached.name } else { &status.name };
        let mut words = vec![
            Span::styled(
                sanitize_line(format!("{} {name}", self.style.state_mark(self.now, attached)).trim_start()),
                self.style.theme.role_style(role),
            ),
            Span::styled(sanitize_line(&state), self.style.theme.role_style(role)),
        ];
        words.extend(self.other_asks_span());
        let greeting = status.greeting.as_ref();
        let scope = greeting.map(|greeting| writable_scope(&greeting.scope_summary)).unwrap_or_default();
        let sandbox = greeting.map(|greeting| greeting.sandbox.clone()).filter(|name| !name.is_empty());
        let tokens = status.tokens;
        let (input, output) = (format_count(tokens.input), format_count(tokens.output));
        let used = match self.style.theme.plain {
            true => format!("in {input} out {output}"),
            false => format!("↑{input} ↓{output}"),
        };
        let cost = status.cost_micros.map(format_dollars).unwrap_or_else(|| "$?".to_owned());
        let context = (tokens.context_window > 0)
            .then(|| format!("ctx {}%", tokens.context_tokens.saturating_mul(100) / tokens.context_window));
        let rest = [
            Some(self.style.abbreviate_paths(&status.model)),
            Some(status.posture.clone()),
            context,
            Some(used),
            Some(cost),
            sandbox.map(|name| format!("sandbox {name}")),
            Some(self.style.abbreviate_paths(&scope)),
            status.goal.as_ref().map(|goal| format!("goal: {goal}")),
        ];
        let rest = rest.into_iter().flatten().filter(|word| !word.is_empty());
        words.extend(rest.map(|word| Span::styled(sanitize_line(&word), dim)));
        fit_words(words, width)
    }

    /// Returns the asks of other pods, and the key that shows them.
    pub(in crate::app) fn other_asks_span(&self) -> Option<Span<'static>> {
        let asks = self.lists.other_ask_count(self.link.session.as_ref());
        let key =
            self.style.keys.first_key(Action::Asks).map_or_else(|| "/asks".to_owned(), |key| key.to_string());
        let word = if asks == 1 { "asks" } else { "ask" };
        (asks > 0).then(|| {
            Span::styled(format!("{asks} {word}: {key}"), self.style.theme.role_style(StyleRole::Warn))
        })
    }
}

impl ScreenStyle {
    /// Abbreviates the home directory to `~`.
    pub(in crate::app) fn abbreviate_paths(&self, text: &str) -> String {
        let home =
            self.home.as_deref().and_then(std::path::Path::to_str).map(|home| home.trim_end_matches('/'));
        match home {
            Some(home) if !home.is_empty() => replace_home(text, home),
            Some(_) | None => text.to_owned(),
        }
    }

    pub(in crate::app) fn spinner_frame(&self, now: Millis) -> &'static str {
        if self.theme.plain {
            return "";
        }
        let turn = usize::try_from(now / super::super::time::ANIMATION_MS).unwrap_or(0) % SPINNER.len();
        SPINNER.get(turn).copied().unwrap_or("•")
    }

    pub(in crate::app) fn state_mark(&self, now: Millis, attached: &AttachedSession) -> &'static str {
        match attached.is_running() {
            true => self.spinner_frame(now),
            false if self.theme.plain => "",
            false => "●",
        }
    }
}

impl SessionLink {
    pub(in crate::app) fn session_state(
        &self,
        style: &ScreenStyle,
        now: Millis,
        talk: &AttachedSession,
    ) -> (String, StyleRole) {
        if let Some(doing) = &self.joining {
            return (doing.clone(), StyleRole::Warn);
        }
        match talk.connection {
            ConnectionState::Stopped => {
                return (format!("stopped: {} restarts it", style.key_label(Action::Send)), StyleRole::Dim);
            }
            ConnectionState::Failed => {
                return (format!("crashed: {} restarts it", style.key_label(Action::Send)), StyleRole::Error);
            }
            ConnectionState::Restarting => return ("restarting".to_owned(), StyleRole::Warn),
            ConnectionState::Joined => {}
        }
        let status = talk.session_status();
        if let Some(retry) = &status.retry {
            let until = retry.received_at.saturating_add(retry.wait_ms);
            let left = until.saturating_sub(now).div_ceil(1_000);
            let tries = format!("{}/{}", retry.failed_attempt, retry.max_attempts);
            return (format!("retry in {left} s ({tries}): {}", to_one_line(&retry.error)), StyleRole::Warn);
        }
        let asks = talk.open_ask_count();
        if asks > 0 {
            let word =
                if asks == 1 { "1 open question".to_owned() } else { format!("{asks} open questions") };
            return (word, StyleRole::Warn);
        }
        match &status.status {
            Some(Status::Running) => {
                let doing = match (&status.detail, &status.activity) {
                    (Some(detail), _) if !detail.is_empty() => to_one_line(detail),
                    (_, Some(Activity::Model)) => "thinking".to_owned(),
                    (_, Some(Activity::Tool)) => "running a tool".to_owned(),
                    (_, Some(activity)) => activity.as_str().to_owned(),
                    (_, None) => "running".to_owned(),
                };
                (doing.chars().take(40).collect(), StyleRole::Accent)
            }
            Some(Status::Paused) => ("paused".to_owned(), StyleRole::Warn),
            Some(Status::Idle) => ("idle".to_owned(), StyleRole::Good),
            Some(other) => (other.as_str().to_owned(), StyleRole::Dim),
            None => ("joining".to_owned(), StyleRole::Dim),
        }
    }
}

/// Returns the writable paths from the scope summary for the model.
fn writable_scope(summary: &str) -> String {
    let mut lines = summary.lines().map(str::trim);
    if lines.next().is_none_or(|first| !first.starts_with("Writable")) {
        return to_one_line(summary);
    }
    let paths = lines.take_while(|line| line.starts_with("- ")).map(|line| line.trim_start_matches("- "));
    let paths: Vec<&str> = paths.filter(|path| *path != "(none)").collect();
    if paths.is_empty() { "read-only".to_owned() } else { format!("writes {}", paths.join(", ")) }
}

/// Replaces a directory by `~` where it is a complete path prefix.
fn replace_home(text: &str, home: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(home) {
        let inside = |letter: char| letter.is_alphanumeric() || "-_.~".contains(letter);
        let begins = !before.chars().next_back().or_else(|| out.chars().next_back()).is_some_and(inside);
        let ends = after.chars().next().is_none_or(|next| next == '/' || !inside(next));
        out.push_str(before);
        out.push_str(if begins && ends { "~" } else { home });
        rest = after;
    }
    out + rest
}

/// Words that are always shown, truncated if necessary: the name and the state.
const REQUIRED_WORDS: usize = 2;
/// Minimum columns of a truncated word.
const MIN_CUT_COLUMNS: usize = 4;

/// Joins words with gaps and drops those that do not fit.
pub(in crate::app) fn fit_words(words: Vec<Span<'static>>, width: u16) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut left = usize::from(width);
    for (at, word) in words.into_iter().enumerate() {
        let gap = if at == 0 { 0 } else { 2 };
        let wide = word.width();
        let fits = wide + gap <= left;
        if !fits && (at >= REQUIRED_WORDS || left < gap + MIN_CUT_COLUMNS) {
            continue;
        }
        if at > 0 {
            spans.push(Span::raw("  "));
        }
        if fits {
            left -= wide + gap;
            spans.push(word);
        } else {
            let available = u16::try_from(left - gap).unwrap_or(width);
            spans.extend(
                truncate_line(
                    &[StyledText::new(Clean::from_prose_line(&word.content), word.style)],
                    available,
                )
                .spans,
            );
            left = 0;
        }
    }
    Line::from(spans)
}

/// Sanitizes external text to one line.
pub(in crate::app) fn sanitize_line(text: &str) -> String {
    Clean::from_prose_line(text).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::replace_home;

    #[test]
    fn a_persons_directory_is_a_tilde_where_it_is_a_whole_name() {
        for (text, told) in [
            ("/home/mia", "~"),
            ("writes /home/mia/w, /home/mia/v", "writes ~/w, ~/v"),
            ("/home/miama/w", "/home/miama/w"),
            ("/mnt/home/mia/w", "/mnt/home/mia/w"),
            ("/home/mia/home/mia", "~/home/mia"),
            ("write:/home/mia", "write:~"),
            ("scripted//home/mia/s.toml", "scripted/~/s.toml"),
        ] {
            assert_eq!(replace_home(text, "/home/mia"), told);
        }
    }
}
