//! Answer approval requests, test the policy, trust a workspace.

pub(crate) mod answer;
pub(crate) mod asks;
pub(crate) mod policy;
pub(crate) mod trust;
