//! Protects connections: with TLS and the system's certificates, unless they are local.

use std::io;

use postgres::config::{Host, SslMode};
use postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::server_link::LinkError;

/// Connects. `sslmode` of the address is `disable`, `prefer` (the default: TLS if the server offers it) or `require`.
/// With TLS, the system must trust the server's certificate.
pub(crate) fn connect_client(config: &Config) -> Result<Client, LinkError> {
    let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    if local || config.get_ssl_mode() == SslMode::Disable {
        return Ok(config.connect(NoTls)?);
    }
    // Single unreadable certificates do not matter if there are others.
    let (tls, _) = MakeRustlsConnect::with_native_certs().map_err(|error| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("could not read the certificates of this machine: {error:?}"),
        )
    })?;
    Ok(config.connect(tls)?)
}
