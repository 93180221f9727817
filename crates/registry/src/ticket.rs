//! Tickets: how a child proves that its parent started it.
//!
//! Here: making one, and what of it may be stored. Elsewhere: who may come with one (`table`), how it travels (`client`).
//! Invariant: the table holds a hash, and no message or log shows the ticket itself (`a_ticket_shows_nothing_of_itself`).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

const TICKET_BYTES: usize = 32;

/// The right to one row of the table, once.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket([u8; TICKET_BYTES]);

impl Ticket {
    /// A new one, from the kernel's randomness.
    pub(crate) fn draw() -> io::Result<Ticket> {
        let mut bytes = [0; TICKET_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Ticket(bytes))
    }

    /// As it travels; for nobody else's eyes.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// What `to_hex` wrote; none if it is anything else.
    pub fn from_hex(text: &str) -> Option<Ticket> {
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
        Some(Ticket(bytes))
    }

    /// What the table keeps of it.
    pub(crate) fn hash(&self) -> String {
        hex(&Sha256::digest(self.0))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

/// The sum by which a damaged table is known, over these parts one after the other.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let sum = parts.iter().fold(Sha256::new(), Sha256::chain_update);
    hex(&sum.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_shows_nothing_of_itself() {
        let ticket = Ticket::draw().unwrap();
        let text = ticket.to_hex();
        assert_eq!(text.len(), 64);
        assert_eq!(Ticket::from_hex(&text), Some(ticket.clone()));
        assert_ne!(ticket, Ticket::draw().unwrap());
        assert!(!format!("{ticket:?}").chars().any(|c| c.is_ascii_digit()), "{ticket:?}");
        assert!(ticket.hash() != text && ticket.hash().len() == 64);
        for bad in ["", "0", &format!("{text}0"), &format!("{text}00"), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(Ticket::from_hex(bad), None, "{bad}");
        }
    }
}
