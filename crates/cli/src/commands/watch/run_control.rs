//! `minke pause`, `resume`, `cancel`: controls the run of one pod.

use clap::Args;
use minke_client::find_session;
use minke_launch::{Delivery, DeliveryOutcome, deliver_method, reject_secrets, write_offline_edit};
use minke_pod::OfflineEdit;
use minke_protocol::{Detail, Method};
use minke_record::Actor;
use minke_session::StoreError;
use serde_json::{Value, json};

use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

#[derive(Debug, Args)]
pub(crate) struct RunControlArgs {
    /// A live pod's name, a session's id, or a name that a session had
    name: String,
    /// Reason, stored in the log
    #[arg(long)]
    detail: Option<String>,
}

impl RunControlArgs {
    fn to_detail(&self) -> Detail {
        Detail { detail: self.detail.clone() }
    }
}

/// Pauses the run of a live pod.
pub(crate) async fn pause_run(
    args: RunControlArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let found = find_session(&home, &args.name)?;
    if found.live.is_none() {
        return Err(CliError::new(
            ExitKind::Failed,
            format!("no pod is live on session s_{}", found.session),
        )
        .with_code("not_running")
        .with_reason("no run is active, so there is nothing to pause")
        .with_hint(format!("`minke resume {}` continues an interrupted run", args.name)));
    }
    let method = Method::Pause(args.to_detail());
    let delivery = Delivery { session: found.session, method, client: client_info(), offline_step: None };
    report_delivered(output, "pausing", deliver_method(&home, delivery).await?)
}

/// Resumes a run. Starts the pod if it sleeps.
pub(crate) async fn resume_run(
    args: RunControlArgs,
    context: &CliContext,
    screen: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let session = find_session(&home, &args.name)?.session;
    crate::scope_conflict::release_session_scope(&home, session).await?;
    let method = Method::Resume(args.to_detail());
    let delivery = Delivery { session, method, client: client_info(), offline_step: None };
    report_delivered(screen, "resumed", deliver_method(&home, delivery).await?)
}

/// Cancels a run. Without a live pod, cancels it by an offline edit.
pub(crate) async fn cancel_run(
    args: RunControlArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let found = find_session(&home, &args.name)?;
    if found.live.is_none() {
        let reason = args.detail.clone().unwrap_or_else(|| "cancelled".to_owned());
        reject_secrets(&[&reason], Vec::new(), &context.env)?;
        let abandon = minke_launch::edit_step(OfflineEdit::Abandon { reason }, Actor::from_person("cli"));
        match write_offline_edit(&home, found.session, &*abandon) {
            Ok(()) => return print_result(output, "cancelled", &args.name, json!({})),
            // A pod has started meanwhile; it gets the request.
            Err(minke_launch::DeliverError::Store(StoreError::Held { .. })) => {}
            Err(other) => return Err(other.into()),
        }
    }
    let method = Method::Cancel(args.to_detail());
    let delivery = Delivery { session: found.session, method, client: client_info(), offline_step: None };
    report_delivered(output, "cancelled", deliver_method(&home, delivery).await?)
}

fn report_delivered(
    screen: &CliOutput,
    word: &str,
    delivered: DeliveryOutcome,
) -> Result<ExitKind, CliError> {
    match delivered {
        DeliveryOutcome::Replied { pod, result } => print_result(screen, word, pod.as_str(), result),
        DeliveryOutcome::WrittenOffline { pod, .. } => print_result(screen, word, pod.as_str(), json!({})),
    }
}

fn print_result(output: &CliOutput, word: &str, pod: &str, result: Value) -> Result<ExitKind, CliError> {
    if output.json {
        output.print_json(&json!({ "pod": pod, "result": result }))?;
    } else {
        output.print_note(&format!("{pod}: {word}"));
    }
    Ok(ExitKind::Success)
}
