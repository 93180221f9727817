//! The line at the bottom that says where the session stands. Elsewhere: the keys that do something now (`useful`).

use minke_protocol::{Activity, Status};
use ratatui::text::{Line, Span};

use super::App;
use super::talk::{Talk, Wire};
use super::words::{dollars, one_line, short};
use crate::keys::Action;
use crate::paint::{Clean, Piece, Role, cut};

/// One turn of what shows that something is under way.
const SPINNER: [&str; 4] = ["◐", "◓", "◑", "◒"];

impl App {
    /// Name, state, model, posture, scope, fence, tokens, cost, context; what does not fit goes from the right.
    pub(super) fn status_line(&self, width: u16) -> Line<'static> {
        let dim = self.theme.style(Role::Dim);
        let Some(talk) = &self.talk else {
            let model = self.first_run.as_ref().and_then(|found| found.model.clone());
            let model = model.map_or_else(
                || "no model is chosen".to_owned(),
                |model| format!("model {}", self.homely(&model)),
            );
            let doing = self.joining.clone().map(|doing| format!("{} {doing}", self.spinner()));
            let words = [Some(self.homely(&self.setup.cwd.display().to_string())), Some(model), doing];
            let words = words.into_iter().flatten().map(|word| Span::styled(clean(&word), dim));
            return fit(self.who_asks().into_iter().chain(words).collect(), width);
        };
        let (state, role) = self.state_of(talk);
        let standing = talk.standing();
        let name = if standing.name.is_empty() { &talk.name } else { &standing.name };
        let mut words = vec![
            Span::styled(clean(format!("{} {name}", self.mark(talk)).trim_start()), self.theme.style(role)),
            Span::styled(clean(&state), self.theme.style(role)),
        ];
        words.extend(self.who_asks());
        let greeting = standing.greeting.as_ref();
        let scope = greeting.map(|greeting| scope_of(&greeting.scope_summary)).unwrap_or_default();
        let fence = greeting.map(|greeting| greeting.fence.clone()).filter(|fence| !fence.is_empty());
        let tokens = standing.tokens;
        let (input, output) = (short(tokens.input), short(tokens.output));
        let used = match self.theme.plain {
            true => format!("in {input} out {output}"),
            false => format!("↑{input} ↓{output}"),
        };
        let cost = standing.cost_micros.map(dollars).unwrap_or_else(|| "$?".to_owned());
        let context = (tokens.window > 0)
            .then(|| format!("ctx {}%", tokens.context.saturating_mul(100) / tokens.window));
        let rest = [
            Some(self.homely(&standing.model)),
            Some(standing.posture.clone()),
            context,
            Some(used),
            Some(cost),
            fence.map(|fence| format!("fence {fence}")),
            Some(self.homely(&scope)),
            standing.goal.as_ref().map(|goal| format!("goal: {goal}")),
        ];
        let rest = rest.into_iter().flatten().filter(|word| !word.is_empty());
        words.extend(rest.map(|word| Span::styled(clean(&word), dim)));
        fit(words, width)
    }

    /// Paths below the person's own directory begin with `~`.
    pub(super) fn homely(&self, text: &str) -> String {
        let home = self
            .setup
            .home
            .as_deref()
            .and_then(std::path::Path::to_str)
            .map(|home| home.trim_end_matches('/'));
        match home {
            Some(home) if !home.is_empty() => shorter(text, home),
            Some(_) | None => text.to_owned(),
        }
    }

    /// Somebody else who asks, and the key that shows it.
    fn who_asks(&self) -> Option<Span<'static>> {
        let asks = self.asked_elsewhere();
        let key =
            self.setup.keys.key_of(Action::Asks).map_or_else(|| "/asks".to_owned(), |key| key.to_string());
        let word = if asks == 1 { "asks" } else { "ask" };
        (asks > 0).then(|| Span::styled(format!("{asks} {word}: {key}"), self.theme.style(Role::Warn)))
    }

    fn spinner(&self) -> &'static str {
        if self.theme.plain {
            return "";
        }
        let turn = usize::try_from(self.now / super::time::MOVES_MS).unwrap_or(0) % SPINNER.len();
        SPINNER.get(turn).copied().unwrap_or("•")
    }

    fn mark(&self, talk: &Talk) -> &'static str {
        match talk.is_running() {
            true => self.spinner(),
            false if self.theme.plain => "",
            false => "●",
        }
    }

    fn state_of(&self, talk: &Talk) -> (String, Role) {
        if let Some(doing) = &self.joining {
            return (doing.clone(), Role::Warn);
        }
        match talk.wire {
            Wire::Stopped => return (format!("stopped: {} starts it", self.spoken(Action::Send)), Role::Dim),
            Wire::Dead => return (format!("dead: {} starts it", self.spoken(Action::Send)), Role::Error),
            Wire::Again => return ("starting again".to_owned(), Role::Warn),
            Wire::Joined => {}
        }
        let standing = talk.standing();
        if let Some(retry) = &standing.retry {
            let until = retry.told.saturating_add(retry.wait_ms);
            let left = until.saturating_sub(self.now).div_ceil(1_000);
            let tries = format!("{}/{}", retry.failed_attempt, retry.max_attempts);
            return (format!("asked again in {left} s ({tries}): {}", one_line(&retry.error)), Role::Warn);
        }
        let asks = talk.open_asks();
        if asks > 0 {
            let word =
                if asks == 1 { "a question waits".to_owned() } else { format!("{asks} questions wait") };
            return (word, Role::Warn);
        }
        match &standing.status {
            Some(Status::Running) => {
                let doing = match (&standing.detail, &standing.activity) {
                    (Some(detail), _) if !detail.is_empty() => one_line(detail),
                    (_, Some(Activity::Model)) => "thinking".to_owned(),
                    (_, Some(Activity::Tool)) => "a tool runs".to_owned(),
                    (_, Some(activity)) => activity.as_str().to_owned(),
                    (_, None) => "running".to_owned(),
                };
                (doing.chars().take(40).collect(), Role::Accent)
            }
            Some(Status::Paused) => ("paused".to_owned(), Role::Warn),
            Some(Status::Idle) => ("idle".to_owned(), Role::Good),
            Some(other) => (other.as_str().to_owned(), Role::Dim),
            None => ("joining".to_owned(), Role::Dim),
        }
    }
}

/// What may be written, out of the lines that the pod tells its model.
fn scope_of(summary: &str) -> String {
    let mut lines = summary.lines().map(str::trim);
    if lines.next().is_none_or(|first| !first.starts_with("Writable")) {
        return one_line(summary);
    }
    let paths = lines.take_while(|line| line.starts_with("- ")).map(|line| line.trim_start_matches("- "));
    let paths: Vec<&str> = paths.filter(|path| *path != "(none)").collect();
    if paths.is_empty() { "read-only".to_owned() } else { format!("writes {}", paths.join(", ")) }
}

/// `~` for a directory, where it stands as a whole name.
fn shorter(text: &str, home: &str) -> String {
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

/// Who it is and what it does are shown in any case, cut if they must be.
const SURE: usize = 2;
/// Less than this of a word says nothing.
const CUT_LEAST: usize = 4;

/// Words with a gap between them; those that do not fit any more are left out.
pub(super) fn fit(words: Vec<Span<'static>>, width: u16) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut left = usize::from(width);
    for (at, word) in words.into_iter().enumerate() {
        let gap = if at == 0 { 0 } else { 2 };
        let wide = word.width();
        let fits = wide + gap <= left;
        if !fits && (at >= SURE || left < gap + CUT_LEAST) {
            continue;
        }
        if at > 0 {
            spans.push(Span::raw("  "));
        }
        if fits {
            left -= wide + gap;
            spans.push(word);
        } else {
            let room = u16::try_from(left - gap).unwrap_or(width);
            spans.extend(cut(&[Piece::new(Clean::line(&word.content), word.style)], room).spans);
            left = 0;
        }
    }
    Line::from(spans)
}

/// Texts from outside, as one harmless line.
pub(super) fn clean(text: &str) -> String {
    Clean::line(text).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::shorter;

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
            assert_eq!(shorter(text, "/home/mia"), told);
        }
    }
}
