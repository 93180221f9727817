//! How a connection is protected on its way: by TLS with the system's certificates, unless it never leaves the machine.

use std::io;

use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::link::Trouble;

/// `sslmode` of the address says how much is asked for: `disable`, `prefer` (the default: if the server offers it) or
/// `require`. A server that is reached by TLS must have a certificate that the system trusts.
pub(crate) fn connect(config: &Config) -> Result<Client, Trouble> {
    let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    if local || config.get_ssl_mode() == SslMode::Disable {
        return Ok(config.connect(NoTls)?);
    }
    // Single ones that could not be read are of no account as long as there are others.
    let (tls, _) = MakeRustlsConnect::with_native_certs().map_err(|why| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the certificates of this machine cannot be read: {why:?}"),
        )
    })?;
    Ok(config.connect(tls)?)
}
