//! Net: the network access that Minke grants to commands and web tools, to checked addresses only.
//!
//! Here: classifying addresses, granted hosts, resolving and connecting (`address`), the pod's proxy (`proxy`).
//! Elsewhere: how a sandbox reaches the proxy (`exec`), the web tools (`tools`), the connections to models (`llm`).

pub mod address;
pub mod proxy;
