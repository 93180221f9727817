//! Budgets: what this pod may spend, what it and its children have spent, and what a request may reserve.
//!
//! All values follow from the log. Elsewhere: the types (`record::budget`), the prices of models (`llm`,
//! through `BootInfo`).
//! Invariant: granted = spent + held by children + remaining (`what_is_granted_is_spent_held_or_left`, and
//! the tree simulation in `testkit`).

use minke_record::{Actor, Budget, ErrorCode, Millis, OpenChild, RunResult, Spend, TurnResult};
use serde::Deserialize;
use serde_json::Value;

use crate::PodTimer;
use crate::children::state::HeldBudget;
use crate::engine::{InputHandler, PodEngine, ProcessState};
use crate::environment::Environment;
use crate::exit::StopMode;
use crate::input::ModelCost;
use crate::state::State;
use crate::step::{CommandRefusal, Effect};
use crate::step_builder::StepBuilder;

/// The key of `set{budget}`.
pub const BUDGET_KEY: &str = "budget";
/// Prefix of the end reason of a run whose budget is spent. The queue is held after such an end.
pub(crate) const BUDGET_SPENT_PREFIX: &str = "the budget is spent: ";

/// Returns whether a reason or alert reports a spent budget.
pub fn is_budget_spent(message: &str) -> bool {
    message.starts_with(BUDGET_SPENT_PREFIX)
}
const RAISE_HINT: &str = "`set{budget}` at the root raises it";
const UNKNOWN_PRICE_MESSAGE: &str = "the price of this model is unknown, so a dollar budget cannot apply: also limit tokens \
     (budget.tokens), or set its price in models.toml";
/// Minimum useful output of a reply; a request that cannot reserve it is not sent.
const MIN_OUTPUT_TOKENS: u64 = 1_024;
/// Output limit of a model that does not report its own.
const DEFAULT_OUTPUT_TOKENS: u64 = 8_192;

/// The budget part of a mandate, written by the parent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct BudgetMandate {
    budget: Option<Budget>,
    depth: u64,
}

impl BudgetMandate {
    /// Reads the mandate. An unreadable one allows no spending.
    pub(crate) fn from_mandate(written: Option<&Value>) -> BudgetMandate {
        let none =
            BudgetMandate { budget: Some(Budget { tokens: Some(0), ..Budget::default() }), depth: u64::MAX };
        written.map_or_else(BudgetMandate::default, |written| {
            BudgetMandate::deserialize(written).unwrap_or(none)
        })
    }
}

impl State {
    /// Returns the number of pods above this one.
    pub fn tree_depth(&self) -> u64 {
        self.budget_mandate.depth
    }

    /// Returns the budget of the whole session: `set{budget}`, else the smaller of manifest and mandate.
    pub fn granted_budget(&self) -> Budget {
        let base = self.manifest.budget.smaller_of(&self.budget_mandate.budget.unwrap_or_default());
        let Some(set) = self.facts.budget else { return base };
        Budget {
            usd: set.usd.or(base.usd),
            tokens: set.tokens.or(base.tokens),
            turns: set.turns.or(base.turns),
            wall_s: set.wall_s.or(base.wall_s),
            children: set.children.or(base.children),
        }
    }

    /// Returns this pod's own spending. A request that has not ended counts with its reservation.
    pub fn own_spent(&self) -> Spend {
        let usage = &self.facts.usage;
        let used = Spend {
            usd: usage.cost_usd,
            tokens: [usage.input, usage.output, usage.cache_read, usage.cache_write]
                .into_iter()
                .fold(0, u64::saturating_add),
            turns: self.facts.requests,
            children: 0,
            unknown_cost: usage.unknown_cost,
        };
        let open = self.facts.open_llm.as_ref().filter(|open| !open.counted);
        let open = open.map(|open| reserved_spend(&open.reserved)).unwrap_or_default();
        used.combined_with(&self.facts.unended).combined_with(&open)
    }

    /// Returns the spending of this pod and all descendants, as read from their logs.
    pub fn total_spent(&self) -> Spend {
        self.own_spent().combined_with(&self.facts.children_spent)
    }

    /// Returns the budget that is neither spent nor held by running children. Unlimited values are absent.
    pub fn remaining_budget(&self) -> Budget {
        let granted = self.granted_budget();
        let spent = self.total_spent();
        let held = if granted.usd.is_some() || granted.tokens.is_some() {
            self.held_budget()
        } else {
            HeldBudget::default()
        };
        Budget {
            usd: granted.usd.map(|usd| (usd - spent.usd - held.usd).max(0.0)),
            tokens: granted.tokens.map(|all| all.saturating_sub(spent.tokens).saturating_sub(held.tokens)),
            turns: granted.turns.map(|all| all.saturating_sub(self.facts.requests)),
            wall_s: granted.wall_s,
            children: granted.children.map(|all| all.saturating_sub(self.facts.children_spent.children)),
        }
    }

    /// Returns the time at which `wall_s` is over.
    pub fn wall_deadline(&self) -> Option<Millis> {
        let created = self.facts.about.as_ref()?.created;
        self.granted_budget().wall_s.map(|seconds| created.saturating_add(seconds.saturating_mul(1_000)))
    }
}

/// Converts a reservation into spending.
pub(crate) fn reserved_spend(reserved: &minke_record::Reserved) -> Spend {
    Spend {
        usd: reserved.usd.unwrap_or(0.0),
        tokens: reserved.input.saturating_add(reserved.output),
        ..Spend::default()
    }
}

/// The reservation for one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reservation {
    pub(crate) output_tokens: u64,
    pub(crate) usd: Option<f64>,
}

impl State {
    /// Returns the total budget of a restarted child: its spending, its unspent part (at most the remaining
    /// budget), and the unspent part of the children that it gets back.
    pub(crate) fn restarted_child_budget(&self, child: &OpenChild) -> Option<Budget> {
        let left = self.remaining_budget();
        let had = child.budget.unwrap_or_default();
        let spent = self.spent_by(child.session);
        let adopted = self.children_adopted_from(child.session);
        let theirs =
            adopted.fold(HeldBudget::default(), |sum, other| sum.plus(&self.unspent_budget_of(other)));
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

    /// Checks `set{budget}`. A child can lower its budget; only the root can raise it.
    pub(crate) fn check_budget_change(&self, value: &Value, by: &Actor) -> Result<(), CommandRefusal> {
        let refuse = |message: String| Err(CommandRefusal::new(ErrorCode::InvalidRequest, message));
        let budget: Budget = match serde_json::from_value(value.clone()) {
            Ok(budget) => budget,
            Err(e) => return refuse(format!("`budget`: {e}")),
        };
        if let Err(why) = minke_manifest::validate_budget(&budget) {
            return refuse(why);
        }
        let Some(parent) = self.parent_session().filter(|parent| by.session != Some(*parent)) else {
            return Ok(());
        };
        let granted = self.granted_budget();
        let narrowed = Budget {
            usd: budget.usd.or(granted.usd),
            tokens: budget.tokens.or(granted.tokens),
            turns: budget.turns.or(granted.turns),
            wall_s: budget.wall_s.or(granted.wall_s),
            children: budget.children.or(granted.children),
        };
        if narrowed.smaller_of(&granted) == narrowed {
            return Ok(());
        }
        let message = format!(
            "a child's budget is part of its parent's ({parent}): it can be lowered here and raised only at the root"
        );
        Err(CommandRefusal::new(ErrorCode::Denied, message))
    }
}

impl Environment {
    /// Returns the price and limits of the current model, if known.
    pub(crate) fn model_cost(&self) -> Option<&ModelCost> {
        let route = self.current_route()?;
        let changed = self.changed_cost.iter();
        let known = self.boot.as_ref().map(|boot| boot.costs.as_slice()).unwrap_or_default();
        changed.chain(known).find(|cost| cost.route == *route)
    }

    /// Returns the prices of all usable models for the segment; replay needs them.
    pub(crate) fn known_costs(&self, state: &State) -> Option<Vec<ModelCost>> {
        let granted = state.granted_budget();
        let counts = granted.usd.is_some() || granted.tokens.is_some();
        let known = self.boot.as_ref().map(|boot| boot.costs.as_slice()).unwrap_or_default();
        counts.then(|| self.changed_cost.iter().chain(known).cloned().collect())
    }

    /// Returns the output limit for a reply of the current model.
    pub(crate) fn max_output_tokens(&self, state: &State) -> u64 {
        let wanted = state.manifest.worker.max_tokens;
        let can = self.model_cost().and_then(|cost| cost.max_output);
        match (wanted, can) {
            (Some(wanted), Some(can)) => wanted.min(can),
            (one, None) | (None, one) => one.unwrap_or(DEFAULT_OUTPUT_TOKENS),
        }
    }

    /// Reserves budget for a request with this input. Returns `None` if nothing is limited, or why it does
    /// not fit.
    pub(crate) fn reserve_budget(&self, state: &State, input: u64) -> Result<Option<Reservation>, String> {
        let left = state.remaining_budget();
        if left.tokens.is_none() && left.usd.is_none() {
            return Ok(None);
        }
        let price = self.model_cost().and_then(|cost| cost.price);
        let most = self.max_output_tokens(state);
        let least = MIN_OUTPUT_TOKENS.min(most);
        let mut output_tokens = most;
        if let Some(tokens) = left.tokens {
            output_tokens = output_tokens.min(tokens.saturating_sub(input));
            if output_tokens < least {
                return Err(format!(
                    "{tokens} tokens are left, and the next request needs {}",
                    input.saturating_add(least)
                ));
            }
        }
        let Some(usd) = left.usd else { return Ok(Some(Reservation { output_tokens, usd: None })) };
        // A reply can cost more than its price predicts, so the budget may already be spent.
        if usd <= 0.0 && state.total_spent().usd > 0.0 {
            return Err("no dollars are left".to_owned());
        }
        let Some(price) = price else { return Ok(Some(Reservation { output_tokens, usd: None })) };
        let read = input as f64 * price.input;
        if price.output > 0.0 {
            let room = ((usd - read) / price.output).max(0.0);
            // A float too large for u64 saturates; then dollars are not the limit.
            output_tokens = output_tokens.min(room as u64);
        }
        if output_tokens < least || (price.input > 0.0 && read > usd) {
            let needs = read + least as f64 * price.output;
            return Err(format!("{usd:.4} USD are left, and the next request needs {needs:.4}"));
        }
        Ok(Some(Reservation { output_tokens, usd: Some(read + output_tokens as f64 * price.output) }))
    }

    /// Reserves budget for a request from the current context.
    pub(crate) fn reserve_for_context(&self, state: &mut State) -> Result<Option<Reservation>, String> {
        let left = state.remaining_budget();
        if left.tokens.is_none() && left.usd.is_none() {
            return Ok(None);
        }
        let State { segment, context, .. } = state;
        let input = segment.as_ref().map_or(0, |segment| context.input_tokens(segment));
        self.reserve_budget(state, input)
    }

    /// Returns why the budget allows no new run.
    pub(crate) fn budget_refusal(&self, state: &State) -> Option<CommandRefusal> {
        let refuse = |message: String| Some(CommandRefusal::new(ErrorCode::BudgetExceeded, message));
        let granted = state.granted_budget();
        if granted.is_empty() {
            return None;
        }
        let left = state.remaining_budget();
        if left.turns == Some(0) {
            return refuse(format!("{BUDGET_SPENT_PREFIX}no requests are left (budget.turns); {RAISE_HINT}"));
        }
        if state.wall_deadline().is_some_and(|end| self.now >= end) {
            return refuse(format!(
                "{BUDGET_SPENT_PREFIX}the time limit has passed (budget.wall_s); {RAISE_HINT}"
            ));
        }
        if granted.usd.is_some()
            && granted.tokens.is_none()
            && self.model_cost().and_then(|cost| cost.price).is_none()
        {
            return refuse(UNKNOWN_PRICE_MESSAGE.to_owned());
        }
        match self.reserve_budget(state, 0) {
            Err(why) => refuse(format!("{BUDGET_SPENT_PREFIX}{why}; {RAISE_HINT}")),
            Ok(_) => None,
        }
    }

    /// Returns a child's budget: the requested one, else half of the remaining budget; never more than
    /// remains.
    pub(crate) fn child_budget(
        &self,
        state: &State,
        wanted: Option<Budget>,
    ) -> Result<Option<Budget>, String> {
        let left = state.remaining_budget();
        let wanted = wanted.unwrap_or_default();
        let over = |key: &str, wanted: String, left: String| {
            format!("`budget.{key}` is {wanted}, but only {left} are left")
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
            return Err("you have no tokens left for a child (budget.tokens)".to_owned());
        }
        if usd.is_some() && tokens.is_none() && self.model_cost().and_then(|cost| cost.price).is_none() {
            return Err(UNKNOWN_PRICE_MESSAGE.to_owned());
        }
        let rest = left.children.map(|left| left.saturating_sub(1));
        let share = Budget {
            usd,
            tokens,
            turns: Budget { turns: wanted.turns, ..Budget::default() }
                .smaller_of(&Budget { turns: state.granted_budget().turns, ..Budget::default() })
                .turns,
            wall_s: smaller_limit(wanted.wall_s, self.wall_seconds_left(state)),
            children: smaller_limit(wanted.children, rest),
        };
        Ok(Some(share).filter(|share| !share.is_empty()))
    }

    /// Returns the seconds until `wall_s` is over.
    pub(crate) fn wall_seconds_left(&self, state: &State) -> Option<u64> {
        state.wall_deadline().map(|end| end.saturating_sub(self.now) / 1_000)
    }
}

impl PodEngine {
    /// Ends the run because the budget is spent.
    pub(crate) fn end_run_for_budget(&mut self, step: &mut StepBuilder<'_>, why: &str) {
        self.end_run(step, RunResult::LimitReached, Some(format!("{BUDGET_SPENT_PREFIX}{why}")));
    }
}

impl InputHandler<'_, '_> {
    /// Ends the open run when `wall_s` is over.
    pub(crate) fn end_run_at_wall(&mut self) {
        let over = self.step.state.wall_deadline().is_some_and(|end| self.step.now >= end);
        if !over
            || self.step.state.facts.run.is_none()
            || self.engine.process.exit.stop_mode == Some(StopMode::Now)
        {
            return;
        }
        self.engine.work.run.pause = None;
        self.engine.work.reply.cancel_reply(self.step);
        self.engine.work.calls.close_model_calls(self.step, "the time limit of the budget has passed");
        self.engine.work.reply.stop_reason = "limit".to_owned();
        self.engine.work.reply.end_turn(self.step, TurnResult::Cancelled);
        self.engine.end_run_for_budget(self.step, "the time limit has passed (budget.wall_s)");
    }
}

impl ProcessState {
    /// Updates the `wall_s` timer after a step.
    pub(crate) fn update_wall_timer(&mut self, step: &mut StepBuilder<'_>) {
        let end = step.state.wall_deadline().filter(|_| self.environment.boot.is_some());
        if self.wall_deadline == end {
            return;
        }
        self.wall_deadline = end;
        step.add_effect(match end {
            Some(at) => Effect::SetTimer { timer: PodTimer::BudgetWall, at: at.max(step.now) },
            None => Effect::ClearTimer { timer: PodTimer::BudgetWall },
        });
    }
}

fn smaller_limit(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}
