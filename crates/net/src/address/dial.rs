//! Resolves a name once, checks the addresses, and connects to exactly these.
//!
//! Invariants: no name is resolved again between check and connect (`a_name_is_asked_for_once`); no connection is made
//! to an address that is not public (`a_name_with_a_private_address_is_refused`).

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{AddressKind, Host};

/// The timeout of name resolution.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a connection to one address.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// A pending name resolution.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names to addresses.
pub trait HostResolver: Send + Sync {
    fn resolve(&self, name: &str) -> ResolveFuture;
}

/// The resolver of the operating system.
struct SystemResolver;

impl HostResolver for SystemResolver {
    fn resolve(&self, name: &str) -> ResolveFuture {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

type DialRoute = dyn Fn(SocketAddr) -> SocketAddr + Send + Sync;

/// Resolves hosts and opens connections.
#[derive(Clone)]
pub struct Dialer {
    resolver: Arc<dyn HostResolver>,
    /// Maps a checked address to the address to connect to; differs only in tests.
    route: Option<Arc<DialRoute>>,
}

/// The checked addresses of a host, in the order of the resolver; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedAddresses(Vec<IpAddr>);

/// Why a host could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("{host} was not found ({why}): check the spelling")]
    NotFound { host: Host, why: String },
    #[error("{host} has the address {address}, which is {kind}: only public addresses may be reached")]
    Refused { host: Host, address: IpAddr, kind: AddressKind },
    #[error("could not connect to {host} on port {port} ({why}): try again later")]
    NoAnswer { host: Host, port: u16, why: String },
}

impl Dialer {
    /// Uses the system resolver and real addresses.
    pub fn with_system_resolver() -> Dialer {
        Dialer { resolver: Arc::new(SystemResolver), route: None }
    }

    /// Uses the given resolver, and connects to the address that `route` returns. For tests, which have no network; no
    /// setting selects it.
    #[doc(hidden)]
    pub fn with_test_route(
        resolver: Arc<dyn HostResolver>,
        route: impl Fn(SocketAddr) -> SocketAddr + Send + Sync + 'static,
    ) -> Dialer {
        Dialer { resolver, route: Some(Arc::new(route)) }
    }

    /// Returns the public addresses of a host. With `near` also those of this machine and its networks.
    pub async fn resolve_host(&self, host: &Host, near: bool) -> Result<ResolvedAddresses, DialError> {
        let answer = match host.name() {
            None => host.ip().into_iter().collect(),
            Some(name) => match timeout(RESOLVE_TIMEOUT, self.resolver.resolve(name)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(e)) => return Err(host_not_found(host, e.to_string())),
                Err(_) => {
                    return Err(host_not_found(
                        host,
                        format!("no answer in {} s", RESOLVE_TIMEOUT.as_secs()),
                    ));
                }
            },
        };
        let Some(&first) = answer.first() else {
            return Err(host_not_found(host, "it has no address".to_owned()));
        };
        let may = |address: &IpAddr| {
            let kind = AddressKind::classify(*address);
            kind == AddressKind::Public || (near && kind.is_local_network())
        };
        let found: Vec<IpAddr> = answer.into_iter().filter(may).take(MAX_ADDRESSES).collect();
        if found.is_empty() {
            return Err(DialError::Refused {
                host: host.clone(),
                address: first,
                kind: AddressKind::classify(first),
            });
        }
        Ok(ResolvedAddresses(found))
    }

    /// Connects to the first address that accepts.
    pub async fn connect_to(
        &self,
        host: &Host,
        found: &ResolvedAddresses,
        port: u16,
    ) -> Result<TcpStream, DialError> {
        let mut why = String::new();
        for address in self.socket_addresses(found, port) {
            why = match timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(e)) => e.to_string(),
                Err(_) => format!("no answer in {} s", DIAL_TIMEOUT.as_secs()),
            };
        }
        Err(DialError::NoAnswer { host: host.clone(), port, why })
    }

    /// Returns the addresses for callers that open the connection themselves.
    pub fn socket_addresses(&self, found: &ResolvedAddresses, port: u16) -> Vec<SocketAddr> {
        let route = |address: &IpAddr| {
            let address = SocketAddr::new(*address, port);
            self.route.as_ref().map_or(address, |route| route(address))
        };
        found.0.iter().map(route).collect()
    }
}

fn host_not_found(host: &Host, why: String) -> DialError {
    DialError::NotFound { host: host.clone(), why }
}
