//! Budgets: what this pod may spend, what it and its children have spent, and what a request may take of the rest.
//!
//! Here: granted, spent and left as the log implies them, what a request reserves, what a child gets, and why a run ends
//! or is refused when nothing is left. Elsewhere: the words (`record::budget`), what models cost (`llm`, through `Boot`).
//! Invariant: granted = spent + held by children + left, computed from the log alone
//! (`what_is_granted_is_spent_held_or_left`, and the tree's simulation in `testkit`).

use minke_record::{Actor, Budget, ErrorCode, Millis, OpenChild, RunResult, Spent, TurnResult};
use serde::Deserialize;
use serde_json::Value;

use crate::Timer;
use crate::family::Held;
use crate::input::Cost;
use crate::pod::{Making, Pod, Stopping};
use crate::state::State;
use crate::step::{Effect, Refusal};

/// The key of `set{budget}`.
pub const KEY: &str = "budget";
/// How the reason begins with which a run ends for its budget; the queue is held after it.
pub(crate) const SPENT: &str = "the budget is spent: ";

/// Whether a reason or an alert of a pod says that nothing is left of its budget.
pub fn is_spent(message: &str) -> bool {
    message.starts_with(SPENT)
}
const RAISE: &str = "`set{budget}` at the root raises it";
const UNKNOWN_PRICE: &str = "nobody knows what this model costs, so a budget in dollars cannot be kept: limit tokens too \
     (budget.tokens), or give its price in models.toml";
/// A reply shorter than this is of no use: what cannot be given so many tokens is not asked.
const LEAST_OUTPUT: u64 = 1_024;
/// What a reply may take if nobody knows how much the model says at most.
const UNKNOWN_OUTPUT: u64 = 8_192;

/// What a parent has written into the mandate beside permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Mandate {
    budget: Option<Budget>,
    depth: u64,
}

impl Mandate {
    /// One that cannot be read lets nothing be spent.
    pub(crate) fn read(written: Option<&Value>) -> Mandate {
        let none = Mandate { budget: Some(Budget { tokens: Some(0), ..Budget::default() }), depth: u64::MAX };
        written.map_or_else(Mandate::default, |written| Mandate::deserialize(written).unwrap_or(none))
    }
}

impl State {
    /// How many pods are above this one.
    pub fn depth(&self) -> u64 {
        self.mandate.depth
    }

    /// What this pod may spend over its whole session: what `set{budget}` says, else the less of manifest and mandate.
    pub fn granted(&self) -> Budget {
        let base = self.manifest.budget.narrowed(&self.mandate.budget.unwrap_or_default());
        let Some(set) = self.facts.budget else { return base };
        Budget {
            usd: set.usd.or(base.usd),
            tokens: set.tokens.or(base.tokens),
            turns: set.turns.or(base.turns),
            wall_s: set.wall_s.or(base.wall_s),
            children: set.children.or(base.children),
        }
    }

    /// What this pod has spent itself; a request without its end counts as what it reserved.
    pub fn own_spent(&self) -> Spent {
        let usage = &self.facts.usage;
        let used = Spent {
            usd: usage.cost_usd,
            tokens: [usage.input, usage.output, usage.cache_read, usage.cache_write]
                .into_iter()
                .fold(0, u64::saturating_add),
            turns: self.facts.requests,
            children: 0,
            unknown_cost: usage.unknown_cost,
        };
        let open = self.facts.open_llm.as_ref().filter(|open| !open.counted);
        let open = open.map(|open| reserved(&open.reserved)).unwrap_or_default();
        used.plus(&self.facts.unended).plus(&open)
    }

    /// What this pod and everything below it has spent, as far as it was read from their logs.
    pub fn spent(&self) -> Spent {
        self.own_spent().plus(&self.facts.children_spent)
    }

    /// What is neither spent nor held by children that live. What is not limited is absent.
    pub fn left(&self) -> Budget {
        let granted = self.granted();
        let spent = self.spent();
        let held =
            if granted.usd.is_some() || granted.tokens.is_some() { self.held() } else { Held::default() };
        Budget {
            usd: granted.usd.map(|usd| (usd - spent.usd - held.usd).max(0.0)),
            tokens: granted.tokens.map(|all| all.saturating_sub(spent.tokens).saturating_sub(held.tokens)),
            turns: granted.turns.map(|all| all.saturating_sub(self.facts.requests)),
            wall_s: granted.wall_s,
            children: granted.children.map(|all| all.saturating_sub(self.facts.children_spent.children)),
        }
    }

    /// When `wall_s` is over.
    pub fn wall_end(&self) -> Option<Millis> {
        let created = self.facts.about.as_ref()?.created;
        self.granted().wall_s.map(|seconds| created.saturating_add(seconds.saturating_mul(1_000)))
    }
}

/// What a reservation counts as.
pub(crate) fn reserved(reserved: &minke_record::Reserved) -> Spent {
    Spent {
        usd: reserved.usd.unwrap_or(0.0),
        tokens: reserved.input.saturating_add(reserved.output),
        ..Spent::default()
    }
}

/// What a request may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Taken {
    pub(crate) output: u64,
    pub(crate) usd: Option<f64>,
}

impl Pod {
    /// What is known of the price of the model that is asked next.
    fn cost(&self) -> Option<&Cost> {
        let route = self.route()?;
        let changed = self.life.cost.iter();
        let known = self.life.boot.as_ref().map(|boot| boot.costs.as_slice()).unwrap_or_default();
        changed.chain(known).find(|cost| cost.route == *route)
    }

    /// What is known of all models that may be asked, for the segment: a replay needs it.
    pub(crate) fn costs(&self) -> Option<Vec<Cost>> {
        let granted = self.state.granted();
        let counts = granted.usd.is_some() || granted.tokens.is_some();
        let known = self.life.boot.as_ref().map(|boot| boot.costs.as_slice()).unwrap_or_default();
        counts.then(|| self.life.cost.iter().chain(known).cloned().collect())
    }

    /// The most that one reply of the next model is let say.
    fn most_output(&self) -> u64 {
        let wanted = self.state.manifest.worker.max_tokens;
        let can = self.cost().and_then(|cost| cost.max_output);
        match (wanted, can) {
            (Some(wanted), Some(can)) => wanted.min(can),
            (one, None) | (None, one) => one.unwrap_or(UNKNOWN_OUTPUT),
        }
    }

    /// What a request with this input may take; `None` if nothing is counted; else why it cannot be made.
    pub(crate) fn take(&self, input: u64) -> Result<Option<Taken>, String> {
        let left = self.state.left();
        if left.tokens.is_none() && left.usd.is_none() {
            return Ok(None);
        }
        let price = self.cost().and_then(|cost| cost.price);
        let most = self.most_output();
        let least = LEAST_OUTPUT.min(most);
        let mut output = most;
        if let Some(tokens) = left.tokens {
            output = output.min(tokens.saturating_sub(input));
            if output < least {
                return Err(format!(
                    "{tokens} tokens are left, and the next request needs {}",
                    input.saturating_add(least)
                ));
            }
        }
        let Some(usd) = left.usd else { return Ok(Some(Taken { output, usd: None })) };
        // Replies may cost what no price foretold: what is spent is spent.
        if usd <= 0.0 && self.state.spent().usd > 0.0 {
            return Err("no dollars are left".to_owned());
        }
        let Some(price) = price else { return Ok(Some(Taken { output, usd: None })) };
        let read = input as f64 * price.input;
        if price.output > 0.0 {
            let room = ((usd - read) / price.output).max(0.0);
            // A float beyond what fits becomes the greatest number: then dollars are not what limits it.
            output = output.min(room as u64);
        }
        if output < least || (price.input > 0.0 && read > usd) {
            let needs = read + least as f64 * price.output;
            return Err(format!("{usd:.4} USD are left, and the next request needs {needs:.4}"));
        }
        Ok(Some(Taken { output, usd: Some(read + output as f64 * price.output) }))
    }

    /// The same for the request that would be made from the context as it is.
    pub(crate) fn may_take(&mut self) -> Result<Option<Taken>, String> {
        let left = self.state.left();
        if left.tokens.is_none() && left.usd.is_none() {
            return Ok(None);
        }
        let State { segment, context, .. } = &mut self.state;
        let input = segment.as_ref().map_or(0, |segment| context.input_tokens(segment));
        self.take(input)
    }

    /// Why the budget lets no run begin now.
    pub(crate) fn broke(&self) -> Option<Refusal> {
        let refuse = |message: String| Some(Refusal::new(ErrorCode::BudgetExceeded, message));
        let granted = self.state.granted();
        if granted.is_empty() {
            return None;
        }
        let left = self.state.left();
        if left.turns == Some(0) {
            return refuse(format!("{SPENT}all its requests are made (budget.turns); {RAISE}"));
        }
        if self.state.wall_end().is_some_and(|end| self.life.now >= end) {
            return refuse(format!("{SPENT}its time is over (budget.wall_s); {RAISE}"));
        }
        if granted.usd.is_some()
            && granted.tokens.is_none()
            && self.cost().and_then(|cost| cost.price).is_none()
        {
            return refuse(UNKNOWN_PRICE.to_owned());
        }
        match self.take(0) {
            Err(why) => refuse(format!("{SPENT}{why}; {RAISE}")),
            Ok(_) => None,
        }
    }

    /// Ends the run because nothing is left.
    pub(crate) fn end_for_budget(&mut self, m: &mut Making, why: &str) {
        self.end_run(m, RunResult::LimitReached, Some(format!("{SPENT}{why}")));
    }

    /// A child's part: what was asked for, else half of what is left; never more than is left.
    pub(crate) fn share(&self, wanted: Option<Budget>) -> Result<Option<Budget>, String> {
        let left = self.state.left();
        let wanted = wanted.unwrap_or_default();
        let over = |key: &str, wanted: String, left: String| {
            format!("`budget.{key}` is {wanted}, and you have {left} left to give")
        };
        if left.children == Some(0) {
            return Err("your budget allows no more spawns (budget.children)".to_owned());
        }
        let tokens = match (wanted.tokens, left.tokens) {
            (Some(wanted), Some(left)) if wanted > left => {
                return Err(over("tokens", wanted.to_string(), left.to_string()));
            }
            (Some(wanted), _) => Some(wanted),
            (None, left) => left.map(|left| left / 2),
        };
        let usd = match (wanted.usd, left.usd) {
            (Some(wanted), Some(left)) if wanted > left => {
                return Err(over("usd", format!("{wanted:.4}"), format!("{left:.4}")));
            }
            (Some(wanted), _) => Some(wanted),
            (None, left) => left.map(|left| left / 2.0),
        };
        if tokens == Some(0) {
            return Err("you have no tokens left to give (budget.tokens)".to_owned());
        }
        if usd.is_some() && tokens.is_none() && self.cost().and_then(|cost| cost.price).is_none() {
            return Err(UNKNOWN_PRICE.to_owned());
        }
        let rest = left.children.map(|left| left.saturating_sub(1));
        let share = Budget {
            usd,
            tokens,
            turns: Budget { turns: wanted.turns, ..Budget::default() }
                .narrowed(&Budget { turns: self.state.granted().turns, ..Budget::default() })
                .turns,
            wall_s: least(wanted.wall_s, self.wall_left()),
            children: least(wanted.children, rest),
        };
        Ok(Some(share).filter(|share| !share.is_empty()))
    }

    /// Seconds until this pod's time is over.
    fn wall_left(&self) -> Option<u64> {
        self.state.wall_end().map(|end| end.saturating_sub(self.life.now) / 1_000)
    }

    /// What a child that is woken may have spent in all when it ends again: what it has, what it had not spent (at most
    /// what is left now), and what those may spend that are its own again when it is back.
    pub(crate) fn share_again(&self, child: &OpenChild) -> Option<Budget> {
        let left = self.state.left();
        let had = child.budget.unwrap_or_default();
        let spent = self.state.spent_by(child.session);
        let theirs = self.state.theirs(child.session);
        let theirs = theirs.fold(Held::default(), |sum, other| sum.plus(&self.state.open_to(other)));
        let tokens = match (had.tokens, left.tokens) {
            (Some(had), left) => {
                let rest = had.saturating_sub(spent.tokens).saturating_sub(theirs.tokens);
                Some(left.map_or(rest, |left| rest.min(left)))
            }
            (None, left) => left.map(|left| left / 2),
        };
        let usd = match (had.usd, left.usd) {
            (Some(had), left) => {
                let rest = (had - spent.usd - theirs.usd).max(0.0);
                Some(left.map_or(rest, |left| rest.min(left)))
            }
            (None, left) => left.map(|left| left / 2.0),
        };
        let all = Budget {
            tokens: tokens.map(|part| part.saturating_add(spent.tokens).saturating_add(theirs.tokens)),
            usd: usd.map(|part| part + spent.usd + theirs.usd),
            ..had
        };
        Some(all).filter(|all| !all.is_empty())
    }

    /// `set{budget}`: raised only at the root; what a child may spend comes out of its parent's share.
    pub(crate) fn may_set_budget(&self, value: &Value, by: &Actor) -> Result<(), Refusal> {
        let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidRequest, message));
        let budget: Budget = match serde_json::from_value(value.clone()) {
            Ok(budget) => budget,
            Err(e) => return refuse(format!("`budget`: {e}")),
        };
        if let Err(why) = minke_manifest::check_budget(&budget) {
            return refuse(why);
        }
        let Some(parent) = self.parent().filter(|parent| by.session != Some(*parent)) else { return Ok(()) };
        let granted = self.state.granted();
        let narrowed = Budget {
            usd: budget.usd.or(granted.usd),
            tokens: budget.tokens.or(granted.tokens),
            turns: budget.turns.or(granted.turns),
            wall_s: budget.wall_s.or(granted.wall_s),
            children: budget.children.or(granted.children),
        };
        if narrowed.narrowed(&granted) == narrowed {
            return Ok(());
        }
        let message = format!(
            "a child's budget comes out of its parent's ({parent}): it can be lowered here and raised only at the root"
        );
        Err(Refusal::new(ErrorCode::Denied, message))
    }

    /// After every step: the end of the time is watched.
    pub(crate) fn watch_wall(&mut self, m: &mut Making) {
        let end = self.state.wall_end().filter(|_| self.life.boot.is_some());
        if self.life.wall == end {
            return;
        }
        self.life.wall = end;
        m.effect(match end {
            Some(at) => Effect::SetTimer { timer: Timer::Wall, at: at.max(m.now) },
            None => Effect::ClearTimer { timer: Timer::Wall },
        });
    }

    /// The time is over: whatever goes on ends.
    pub(crate) fn wall_is_over(&mut self, m: &mut Making) {
        let over = self.state.wall_end().is_some_and(|end| m.now >= end);
        if !over || self.state.facts.run.is_none() || self.life.stopping == Some(Stopping::Now) {
            return;
        }
        self.life.pausing = None;
        self.cut_reply(m);
        self.close_calls(m, "the time of the budget is over");
        self.life.stop_reason = "limit".to_owned();
        self.end_turn(m, TurnResult::Cancelled);
        self.end_for_budget(m, "its time is over (budget.wall_s)");
    }
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
