//! `--store`: passes the address to this process and its children through the environment.

use std::os::unix::process::CommandExt;
use std::process::Command;

use minke_store_postgres::ADDRESS_ENV;

use crate::error::{CliError, ExitKind};
use crate::output::GlobalOptions;

/// Executes the program again with the variable, if it is not set yet. Returns an error, or `None` if nothing
/// was needed.
pub(crate) fn reexec_with_store(common: &GlobalOptions) -> Option<CliError> {
    let address = common.store.as_ref()?;
    if std::env::var_os(ADDRESS_ENV).is_some_and(|there| there == **address) {
        return None;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => {
            return Some(
                CliError::new(ExitKind::Failed, "could not find the path of this program").with_reason(e),
            );
        }
    };
    let error = Command::new(program).arg0(name).args(arguments).env(ADDRESS_ENV, address).exec();
    Some(CliError::new(ExitKind::Failed, "could not restart with the selected store").with_reason(error))
}
