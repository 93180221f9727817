//! The way outside: one resolution, a check of what came of it, and the dial of exactly that.
//!
//! Invariant: between the check and the dial no name is looked at again (`a_name_is_asked_for_once`), and an address that
//! is not public is never dialled (`a_name_with_a_private_address_is_refused`).

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Host, Kind};

/// The longest that a name may take to be found.
const RESOLVE_WAIT: Duration = Duration::from_secs(10);
/// The longest that one address may take to answer.
const DIAL_WAIT: Duration = Duration::from_secs(10);
/// The most addresses of one name that are tried.
const TRIED: usize = 8;

/// A name being looked up.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Who knows the addresses of names.
pub trait Resolve: Send + Sync {
    fn resolve(&self, name: &str) -> Resolving;
}

/// The resolver of the system.
struct System;

impl Resolve for System {
    fn resolve(&self, name: &str) -> Resolving {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

type Route = dyn Fn(SocketAddr) -> SocketAddr + Send + Sync;

/// The network as it is reached from here.
#[derive(Clone)]
pub struct Outside {
    resolve: Arc<dyn Resolve>,
    /// Where a checked address is really found: elsewhere only in tests.
    route: Option<Arc<Route>>,
}

/// The checked addresses of a host, in the order in which the resolver gave them; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found(Vec<IpAddr>);

/// Why a host cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    #[error("{host} was not found ({why}): look at the spelling of its name")]
    NotFound { host: Host, why: String },
    #[error("{host} has the address {address}, which is {kind}: only public addresses may be reached")]
    Refused { host: Host, address: IpAddr, kind: Kind },
    #[error("no connection to {host} on port {port} ({why}): try again later")]
    NoAnswer { host: Host, port: u16, why: String },
}

impl Outside {
    /// The real one.
    pub fn real() -> Outside {
        Outside { resolve: Arc::new(System), route: None }
    }

    /// One that is played: a checked address is dialled where `route` says. For tests, which have no network; nothing
    /// that a person or a model writes leads here.
    #[doc(hidden)]
    pub fn played(
        resolve: Arc<dyn Resolve>,
        route: impl Fn(SocketAddr) -> SocketAddr + Send + Sync + 'static,
    ) -> Outside {
        Outside { resolve, route: Some(Arc::new(route)) }
    }

    /// The public addresses of a host. With `near` also those of this machine and its networks.
    pub async fn find(&self, host: &Host, near: bool) -> Result<Found, Unreachable> {
        let answer = match host.name() {
            None => host.ip().into_iter().collect(),
            Some(name) => match timeout(RESOLVE_WAIT, self.resolve.resolve(name)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(e)) => return Err(not_found(host, e.to_string())),
                Err(_) => {
                    return Err(not_found(host, format!("no answer in {} s", RESOLVE_WAIT.as_secs())));
                }
            },
        };
        let Some(&first) = answer.first() else {
            return Err(not_found(host, "it has no address".to_owned()));
        };
        let may = |address: &IpAddr| {
            let kind = Kind::of(*address);
            kind == Kind::Public || (near && kind.is_near())
        };
        let found: Vec<IpAddr> = answer.into_iter().filter(may).take(TRIED).collect();
        if found.is_empty() {
            return Err(Unreachable::Refused { host: host.clone(), address: first, kind: Kind::of(first) });
        }
        Ok(Found(found))
    }

    /// A connection to one of the addresses, tried in their order.
    pub async fn dial(&self, host: &Host, found: &Found, port: u16) -> Result<TcpStream, Unreachable> {
        let mut why = String::new();
        for address in self.targets(found, port) {
            why = match timeout(DIAL_WAIT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(e)) => e.to_string(),
                Err(_) => format!("no answer in {} s", DIAL_WAIT.as_secs()),
            };
        }
        Err(Unreachable::NoAnswer { host: host.clone(), port, why })
    }

    /// Where to dial, for who dials with hands of their own.
    pub fn targets(&self, found: &Found, port: u16) -> Vec<SocketAddr> {
        let route = |address: &IpAddr| {
            let address = SocketAddr::new(*address, port);
            self.route.as_ref().map_or(address, |route| route(address))
        };
        found.0.iter().map(route).collect()
    }
}

fn not_found(host: &Host, why: String) -> Unreachable {
    Unreachable::NotFound { host: host.clone(), why }
}
