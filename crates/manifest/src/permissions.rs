//! `permissions`: the actions that need no approval.
//!
//! Elsewhere: postures and rules (`policy`), the other rule files (`driver`).

use minke_policy::{PolicyRule, Posture, RuleSet};
use minke_record::Judgement;
use serde_json::{Value, json};

use crate::form::{Count, Field, FlagForm, Form, ListForm, Refused, one_of, typed};
use crate::key::section;

section! {
    /// The actions that need no approval.
    PermissionsSection at "permissions" {
        /// The posture for actions without a rule; the default is `auto` if the sandbox limits everything to
        /// the scope, else `ask`.
        posture: Option<Posture> = None, PostureWord, Override, Nothing, true;
        /// The action where no user rule matches: the least specific rule of the user layer.
        default_action: Option<Judgement> = None, ActionWord, Override, Nothing, true;
        /// Rules of the user.
        rule: Vec<PolicyRule> = Vec::new(), ListForm<RuleForm>, Concatenate, Stricter, true;
        /// Seconds after which an unanswered ask is denied; absent = never.
        ask_expires_s: Option<u64> = None, Count, Override, Nothing, true;
        /// Whether this pod may answer asks of its children about actions that its own policy allows.
        may_answer: bool = false, FlagForm, Override, Nothing, true;
    }
    besides {
        /// Rules of the workspace's file, which ask or deny. A separate layer, so that they cannot loosen.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        workspace_rule: Vec<PolicyRule>;
        /// The current rules of all layers; set by the pod itself.
        #[serde(skip_serializing_if = "no_rules")]
        rules: RuleSet;
    }
}

fn no_rules(rules: &RuleSet) -> bool {
    rules.rules.is_empty()
}

impl Field for Vec<PolicyRule> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

one_of!(PostureWord reads Posture: "plan", "deny", "ask", "auto", "full");
one_of!(ActionWord reads Judgement: "allow", "ask", "deny");

/// One rule.
pub(crate) struct RuleForm;

impl Form for RuleForm {
    fn word() -> String {
        "a rule such as { action = \"deny\", tool = \"WebFetch\" }".to_owned()
    }

    fn schema() -> Value {
        let text = json!({ "type": "string" });
        let texts = json!({ "type": "array", "items": text });
        json!({
            "type": "object",
            "properties": {
                "action": { "enum": ["allow", "ask", "deny"] },
                "tool": text, "command": text, "path": text, "host": text, "match": texts, "not_match": texts,
            },
            "required": ["action"],
            "additionalProperties": false,
        })
    }

    fn read(value: &Value) -> Result<Value, Refused> {
        let read = typed::<PolicyRule>(value)?;
        let rule: PolicyRule = serde_json::from_value(read.clone()).map_err(|e| Some(e.to_string()))?;
        if let Judgement::Other(word) = &rule.action {
            return Err(Some(format!("its action is `{word}`: expected `allow`, `ask` or `deny`")));
        }
        rule.validate().map_err(Some)?;
        Ok(read)
    }
}
