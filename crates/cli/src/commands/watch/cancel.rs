//! `minke cancel`: cancels a run. Without a live pod, it cancels the run by an offline edit.

use clap::Args;
use minke_client::find_session;
use minke_launch::{Delivery, deliver_method, reject_secrets, write_offline_edit};
use minke_pod::OfflineEdit;
use minke_protocol::Method;
use minke_record::Actor;
use minke_session::StoreError;
use serde_json::json;

use crate::commands::watch::run_control::{RunControlArgs, print_result, report_delivered};
use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Cancel the run of a pod, also a paused one
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    control: RunControlArgs,
}

pub(crate) async fn run(
    args: CancelArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let found = find_session(&home, &args.control.name)?;
    if found.live.is_none() {
        let reason = args.control.detail.clone().unwrap_or_else(|| "cancelled".to_owned());
        reject_secrets(&[&reason], Vec::new(), &context.env)?;
        let abandon = minke_launch::edit_step(OfflineEdit::Abandon { reason }, Actor::from_person("cli"));
        match write_offline_edit(&home, found.session, &*abandon) {
            Ok(()) => return print_result(output, "cancelled", &args.control.name, json!({})),
            // A pod has started meanwhile; it gets the request.
            Err(minke_launch::DeliverError::Store(StoreError::Held { .. })) => {}
            Err(other) => return Err(other.into()),
        }
    }
    let method = Method::Cancel(args.control.to_detail());
    let delivery = Delivery { session: found.session, method, client: client_info(), offline_step: None };
    report_delivered(output, "cancelled", deliver_method(&home, delivery).await?)
}
