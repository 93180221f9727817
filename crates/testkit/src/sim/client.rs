//! One client of the simulation: it sends methods and keeps what it sees, over a wire that splits and stalls.
//!
//! Here: its view, which must be a prefix of the log without gap or repetition, and its replies, one for each method.
//! Everything that crosses the wire is really encoded, cut anywhere, and decoded by the product's codec.

use std::collections::{BTreeMap, VecDeque};

use minke_protocol::{Event, Frame, Id, LineReader, Method, Place, Request};
use minke_record::Position;

use crate::chance::Chance;

/// Bytes that wait for a client before the pod stops sending it live and goes on from the log.
pub(crate) const DOWN_BYTES: usize = 16 * 1024;

/// A connection: bytes on their way in both directions, and what each end has of an unfinished line.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) up: VecDeque<u8>,
    pub(crate) down: VecDeque<u8>,
    pod_reader: LineReader,
    client_reader: LineReader,
    /// The next entry that this client is to see.
    pub(crate) cursor: u64,
}

impl Wire {
    fn take(bytes: &mut VecDeque<u8>, chance: &mut Chance) -> Vec<u8> {
        let most = bytes.len().min(if chance.one_in(4) { 3 } else { 4_096 });
        let count = 1 + chance.below(most.max(1));
        bytes.drain(..count.min(bytes.len())).collect()
    }

    /// Some bytes reach the pod; the requests that are whole now.
    pub(crate) fn deliver_up(&mut self, chance: &mut Chance) -> Result<Vec<Request>, String> {
        let piece = Wire::take(&mut self.up, chance);
        self.pod_reader.push(&piece);
        let mut requests = Vec::new();
        while let Some(line) = self.pod_reader.next() {
            let line = line.map_err(|fault| format!("the pod could not read a line: {fault:?}"))?;
            let request = Request::parse(line)
                .map_err(|bad| format!("the pod did not understand `{line}`: {}", bad.refusal.message))?;
            requests.push(request);
        }
        Ok(requests)
    }

    fn deliver_down(&mut self, chance: &mut Chance) -> Result<Vec<Frame>, String> {
        let piece = Wire::take(&mut self.down, chance);
        self.client_reader.push(&piece);
        let mut frames = Vec::new();
        while let Some(line) = self.client_reader.next() {
            let line = line.map_err(|fault| format!("a client could not read a line: {fault:?}"))?;
            frames.push(Frame::parse(line).map_err(|bad| format!("`{line}` is no frame: {}", bad.why))?);
        }
        Ok(frames)
    }
}

/// A client of one pod.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) node: usize,
    pub(crate) wire: Option<Wire>,
    /// The entries that it has seen, in order.
    pub(crate) view: Vec<Position>,
    /// It does not read for a while.
    pub(crate) stalls: bool,
    next_id: u64,
    /// Methods without their reply.
    waiting: BTreeMap<u64, Method>,
    /// The newest input, to be sent once more.
    pub(crate) last_run: Option<Method>,
}

impl Client {
    pub(crate) fn new(node: usize) -> Client {
        Client { node, ..Client::default() }
    }

    /// Connects: it says where it stands. `fits` says whether the log still has that place.
    pub(crate) fn connect(&mut self, fits: impl FnOnce(&Position) -> bool) -> bool {
        let kept = self.view.last().is_none_or(fits);
        if !kept {
            self.view.clear();
        }
        self.waiting.clear();
        self.wire = Some(Wire { cursor: self.view.len() as u64, ..Wire::default() });
        kept
    }

    pub(crate) fn send(&mut self, method: Method) {
        if matches!(method, Method::Run(_)) {
            self.last_run = Some(method.clone());
        }
        self.next_id += 1;
        self.waiting.insert(self.next_id, method.clone());
        let request = Request { id: Some(Id::number(self.next_id)), method };
        if let Some(wire) = &mut self.wire {
            wire.up.extend(request.line().as_bytes());
        }
    }

    /// Some bytes reach the client.
    pub(crate) fn hear(&mut self, chance: &mut Chance) -> Result<(), String> {
        let Some(wire) = &mut self.wire else { return Ok(()) };
        for frame in wire.deliver_down(chance)? {
            match (frame.event, frame.place) {
                (Event::Entry(event), _) => {
                    let entry = event.entry;
                    if entry.seq != self.view.len() as u64 {
                        return Err(format!(
                            "a client at entry {} was sent entry {}",
                            self.view.len(),
                            entry.seq
                        ));
                    }
                    self.view.push(Position { seq: entry.seq, h: entry.h });
                }
                (Event::Reply(_), Place::One { id: Some(id) }) => {
                    let number: u64 = id.json().parse().map_err(|_| format!("a reply to {}", id.json()))?;
                    if self.waiting.remove(&number).is_none() {
                        return Err(format!("method {number} was answered twice, or never asked"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn hangs_up(&mut self) {
        self.wire = None;
        self.stalls = false;
    }
}
