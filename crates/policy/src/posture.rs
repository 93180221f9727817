//! Postures: the decision on an action that no rule decides.

use serde::{Deserialize, Serialize};

/// The decision on an action that no rule decides, from the strictest to the least strict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Posture {
    Plan,
    Deny,
    Ask,
    #[default]
    Auto,
    Full,
}

impl Posture {
    pub fn as_str(self) -> &'static str {
        match self {
            Posture::Plan => "plan",
            Posture::Deny => "deny",
            Posture::Ask => "ask",
            Posture::Auto => "auto",
            Posture::Full => "full",
        }
    }
}

impl std::str::FromStr for Posture {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "plan" => Ok(Posture::Plan),
            "deny" => Ok(Posture::Deny),
            "ask" => Ok(Posture::Ask),
            "auto" => Ok(Posture::Auto),
            "full" => Ok(Posture::Full),
            other => Err(format!("`{other}` is not a posture: use plan, deny, ask, auto or full")),
        }
    }
}
