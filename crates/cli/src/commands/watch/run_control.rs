//! Arguments and output of `minke pause`, `resume` and `cancel`.

use clap::Args;
use minke_launch::DeliveryOutcome;
use minke_protocol::Detail;
use serde_json::{Value, json};

use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

#[derive(Debug, Args)]
pub(crate) struct RunControlArgs {
    /// A live pod's name, a session's id, or a name that a session had
    pub(crate) name: String,
    /// Reason, stored in the log
    #[arg(long)]
    pub(crate) detail: Option<String>,
}

impl RunControlArgs {
    pub(crate) fn to_detail(&self) -> Detail {
        Detail { detail: self.detail.clone() }
    }
}

pub(crate) fn report_delivered(
    output: &CliOutput,
    word: &str,
    delivered: DeliveryOutcome,
) -> Result<ExitKind, CliError> {
    match delivered {
        DeliveryOutcome::Replied { pod, result } => print_result(output, word, pod.as_str(), result),
        DeliveryOutcome::WrittenOffline { pod, .. } => print_result(output, word, pod.as_str(), json!({})),
    }
}

pub(crate) fn print_result(
    output: &CliOutput,
    word: &str,
    pod: &str,
    result: Value,
) -> Result<ExitKind, CliError> {
    if output.json {
        output.print_json(&json!({ "pod": pod, "result": result }))?;
    } else {
        output.print_note(&format!("{pod}: {word}"));
    }
    Ok(ExitKind::Success)
}
