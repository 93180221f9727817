//! `permissions`: what the pod may do without a question.
//!
//! Here: the keys. Elsewhere: what postures and rules mean (`policy`), the other files with rules (`driver`).

use minke_policy::{Posture, Rule, RuleSet};
use minke_record::Judgement;
use serde_json::{Value, json};

use crate::form::{Count, Field, Flag, Form, List, Refused, one_of, typed};
use crate::key::section;

section! {
    /// What the pod may do without a question.
    PermissionsSection at "permissions" {
        /// What becomes of an action that no rule decides; if absent `auto` where the fence holds everything inside the
        /// scope, else `ask`.
        posture: Option<Posture> = None, PostureWord, Override, Nothing, true;
        /// What becomes of everything that no rule of the person decides: the least specific rule of that layer.
        default_action: Option<Judgement> = None, ActionWord, Override, Nothing, true;
        /// Rules of the person.
        rule: Vec<Rule> = Vec::new(), List<RuleForm>, Concatenate, Stricter, true;
        /// Seconds after which a question that nobody answered is denied; absent = never.
        ask_expires_s: Option<u64> = None, Count, Override, Nothing, true;
        /// This pod may answer what its children ask, where its own policy would not ask.
        may_answer: bool = false, Flag, Override, Nothing, true;
    }
    besides {
        /// Rules from the file of the workspace, which ask or deny: a layer of their own, or they could loosen.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        workspace_rule: Vec<Rule>;
        /// Every rule that holds, of all layers, as it was last found; nobody writes this but the pod itself.
        #[serde(skip_serializing_if = "no_rules")]
        rules: RuleSet;
    }
}

fn no_rules(rules: &RuleSet) -> bool {
    rules.rules.is_empty()
}

impl Field for Vec<Rule> {
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
        let read = typed::<Rule>(value)?;
        let rule: Rule = serde_json::from_value(read.clone()).map_err(|e| Some(e.to_string()))?;
        if let Judgement::Other(word) = &rule.action {
            return Err(Some(format!("its action is `{word}`: there are `allow`, `ask` and `deny`")));
        }
        rule.check().map_err(Some)?;
        Ok(read)
    }
}
