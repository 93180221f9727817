//! Launch: declares sessions, creates them, edits them without a pod, and starts and reaches their pods.
//!
//! Here: the manifest from files and options (`declare`), the first step (`create`), offline edits (`offline`),
//! delivery to a session with or without a pod (`deliver`), the process of a pod (`process`). Elsewhere: the
//! entries (`pod`), the connection and the search for a session (`client`), the boot of the pod (`driver`).

mod clock;
mod create;
mod declare;
mod deliver;
mod environment;
mod error;
mod inherit;
mod offline;
mod process;
mod references;
mod scope_conflict;
mod secret_check;

pub use clock::{new_ids, now_millis, random_seed};
pub use create::{
    BroadRootPolicy, NewPod, WorkLocation, create_session, preview_session, scope_for_cwd, working_directory,
};
pub use declare::budget::parse_budget;
pub use declare::config::{change_config, config_error, config_rows, config_values, unchanged_config_error};
pub use declare::models::{
    MODEL_VARIABLE, canonical_model, default_model, manifest_model, model_catalog, search_key_variable,
    secret_variables,
};
pub use declare::profiles::{load_profiles, profile_error};
pub use declare::settings::{declare_pod, is_trusted};
pub use deliver::{
    DeliverError, Delivery, DeliveryOutcome, ReachablePod, SessionChange, change_session, client_info,
    deliver_method, reach_pod, wake_session,
};
pub use environment::{LaunchEnv, clones_dir, find_workspace};
pub use error::{SetupError, SetupRefusal, SetupRefusalKind};
pub use inherit::take_inherited_fd;
pub use offline::{
    OfflineChange, OfflineReply, OfflineStep, edit_step, edit_step_at, edit_step_with_reply, newest_session,
    offline_writer, queue_step, write_edits, write_offline_edit,
};
pub use process::{
    LaunchError, LaunchedPod, PodLaunch, PodLifetime, PodReady, PodStartFailure, ReadyLine, launch_pod,
};
pub use references::ReferenceScope;
pub use scope_conflict::{WriteScopeHolder, request_scope, request_session_scope};
pub use secret_check::reject_secrets;
