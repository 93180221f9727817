//! Tickets: prove that a child was started by its parent.
//!
//! Here: creating a ticket and its stored hash. Elsewhere: the check of a ticket (`table`), its transport (`launch`).
//! Invariant: the table contains a hash, and no message or log contains the ticket itself
//! (`a_ticket_shows_nothing_of_itself`).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

const TICKET_BYTES: usize = 32;

/// The right to one row of the table, valid once.
#[derive(Clone, PartialEq, Eq)]
pub struct ScopeTicket([u8; TICKET_BYTES]);

impl ScopeTicket {
    /// Creates a ticket from the kernel's random numbers.
    pub(crate) fn generate() -> io::Result<ScopeTicket> {
        let mut bytes = [0; TICKET_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(ScopeTicket(bytes))
    }

    /// Returns the ticket as text for its transport. It is a secret.
    pub fn to_hex(&self) -> String {
        to_hex_text(&self.0)
    }

    /// Parses the output of `to_hex`; `None` for any other text.
    pub fn from_hex(text: &str) -> Option<ScopeTicket> {
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits = digits?;
        if digits.len() != 2 * TICKET_BYTES {
            return None;
        }
        let mut bytes = [0; TICKET_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Some(ScopeTicket(bytes))
    }

    /// Returns the hash that the table stores.
    pub(crate) fn ticket_hash(&self) -> String {
        to_hex_text(&Sha256::digest(self.0))
    }
}

impl fmt::Debug for ScopeTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

/// Returns the checksum of these parts, by which damage of a table is detected.
pub(crate) fn hash_parts(parts: &[&[u8]]) -> String {
    let sum = parts.iter().fold(Sha256::new(), Sha256::chain_update);
    to_hex_text(&sum.finalize())
}

fn to_hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_shows_nothing_of_itself() {
        let ticket = ScopeTicket::generate().unwrap();
        let text = ticket.to_hex();
        assert_eq!(text.len(), 64);
        assert_eq!(ScopeTicket::from_hex(&text), Some(ticket.clone()));
        assert_ne!(ticket, ScopeTicket::generate().unwrap());
        assert!(!format!("{ticket:?}").chars().any(|c| c.is_ascii_digit()), "{ticket:?}");
        assert!(ticket.ticket_hash() != text && ticket.ticket_hash().len() == 64);
        for bad in ["", "0", &format!("{text}0"), &format!("{text}00"), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(ScopeTicket::from_hex(bad), None, "{bad}");
        }
    }
}
