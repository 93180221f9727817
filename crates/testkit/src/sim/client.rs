//! A simulated client: sends methods and stores the received events, over a connection that splits and delays
//! data.
//!
//! Its view must be a prefix of the log without gaps or repetitions, with one reply per method. All data is
//! encoded, split anywhere and decoded by the product's codec.

use std::collections::{BTreeMap, VecDeque};

use minke_protocol::{ClientRequest, Event, EventPosition, Frame, LineReader, Method, RequestId};
use minke_record::Position;

use crate::random::SimRandom;

/// Pending bytes at which the pod stops live events for a client and continues from the log.
pub(crate) const MAX_DOWN_BYTES: usize = 16 * 1024;

/// A connection: bytes in transit in both directions, and incomplete lines.
#[derive(Default)]
pub(crate) struct SimConnection {
    pub(crate) up: VecDeque<u8>,
    pub(crate) down: VecDeque<u8>,
    pod_reader: LineReader,
    client_reader: LineReader,
    /// The next entry for this client.
    pub(crate) cursor: u64,
}

impl SimConnection {
    fn take_bytes(bytes: &mut VecDeque<u8>, random: &mut SimRandom) -> Vec<u8> {
        let most = bytes.len().min(if random.one_in(4) { 3 } else { 4_096 });
        let count = 1 + random.below(most.max(1));
        bytes.drain(..count.min(bytes.len())).collect()
    }

    /// Delivers some bytes to the pod and returns the complete requests.
    pub(crate) fn deliver_up(&mut self, chance: &mut SimRandom) -> Result<Vec<ClientRequest>, String> {
        let piece = SimConnection::take_bytes(&mut self.up, chance);
        self.pod_reader.push(&piece);
        let mut requests = Vec::new();
        while let Some(line) = self.pod_reader.next() {
            let line = line.map_err(|fault| format!("the pod could not read a line: {fault:?}"))?;
            let request = ClientRequest::parse(line)
                .map_err(|bad| format!("the pod did not understand `{line}`: {}", bad.refusal.message))?;
            requests.push(request);
        }
        Ok(requests)
    }

    fn deliver_down(&mut self, random: &mut SimRandom) -> Result<Vec<Frame>, String> {
        let piece = SimConnection::take_bytes(&mut self.down, random);
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
pub(crate) struct SimClient {
    pub(crate) node: usize,
    pub(crate) connection: Option<SimConnection>,
    /// The received entries, in order.
    pub(crate) seen_entries: Vec<Position>,
    /// It does not read for a while.
    pub(crate) is_stalled: bool,
    next_id: u64,
    /// Methods without a reply.
    waiting_methods: BTreeMap<u64, Method>,
    /// The newest input, for sending it again.
    pub(crate) last_run: Option<Method>,
}

impl SimClient {
    pub(crate) fn new(node: usize) -> SimClient {
        SimClient { node, ..SimClient::default() }
    }

    /// Connects at the client's last position. `fits` returns whether the log still contains it.
    pub(crate) fn connect_from(&mut self, fits: impl FnOnce(&Position) -> bool) -> bool {
        let kept = self.seen_entries.last().is_none_or(fits);
        if !kept {
            self.seen_entries.clear();
        }
        self.waiting_methods.clear();
        self.connection =
            Some(SimConnection { cursor: self.seen_entries.len() as u64, ..SimConnection::default() });
        kept
    }

    pub(crate) fn send_method(&mut self, method: Method) {
        if matches!(method, Method::Run(_)) {
            self.last_run = Some(method.clone());
        }
        self.next_id += 1;
        self.waiting_methods.insert(self.next_id, method.clone());
        let request = ClientRequest { id: Some(RequestId::from_number(self.next_id)), method };
        if let Some(connection) = &mut self.connection {
            connection.up.extend(request.to_line().as_bytes());
        }
    }

    /// Delivers some bytes to the client.
    pub(crate) fn receive_bytes(&mut self, random: &mut SimRandom) -> Result<(), String> {
        let Some(wire) = &mut self.connection else { return Ok(()) };
        for frame in wire.deliver_down(random)? {
            match (frame.event, frame.position) {
                (Event::Entry(event), _) => {
                    let entry = event.entry;
                    if entry.seq != self.seen_entries.len() as u64 {
                        return Err(format!(
                            "a client at entry {} was sent entry {}",
                            self.seen_entries.len(),
                            entry.seq
                        ));
                    }
                    self.seen_entries.push(Position { seq: entry.seq, h: entry.h });
                }
                (Event::Reply(_), EventPosition::Direct { id: Some(id) }) => {
                    let number: u64 =
                        id.as_json().parse().map_err(|_| format!("a reply to {}", id.as_json()))?;
                    if self.waiting_methods.remove(&number).is_none() {
                        return Err(format!("method {number} was answered twice, or never asked"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
        self.is_stalled = false;
    }
}
