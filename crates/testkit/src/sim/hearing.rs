//! Clients and pods hear each other: methods up, entries, news and replies down.

use super::*;

impl Sim {
    /// A client connects, hangs up, stalls, or says something.
    pub(super) fn client_acts(&mut self, node: usize) -> Result<(), String> {
        let mine: Vec<usize> = (0..CLIENTS).filter(|at| self.clients[*at].node == node).collect();
        let Some(at) = self.chance.pick(&mine).copied() else { return Ok(()) };
        if self.clients[at].wire.is_none() {
            return self.connect(node, at);
        }
        match self.chance.below(12) {
            0 => self.clients[at].hangs_up(),
            1 => self.clients[at].stalls = !self.clients[at].stalls,
            2 => {
                if let Some(again) = self.clients[at].last_run.clone() {
                    self.nodes[node].ground.meet("an input was sent twice");
                    self.clients[at].send(again);
                }
            }
            _ => {
                self.ops += 1;
                let Some(life) = &self.nodes[node].life else { return Ok(()) };
                let method = methods::method(&mut self.chance, life.state(), self.ops);
                self.clients[at].send(method);
            }
        }
        Ok(())
    }

    pub(super) fn connect(&mut self, node: usize, at: usize) -> Result<(), String> {
        let Some(life) = &self.nodes[node].life else { return Ok(()) };
        let Ok(reader) = life.store.reader(self.nodes[node].id) else { return Ok(()) };
        let shown = life.shown;
        let fits = |position: &Position| {
            shown.is_some_and(|shown| position.seq <= shown)
                && reader.position(position.seq).ok().flatten() == Some(*position)
        };
        let kept = self.clients[at].connect(fits);
        // Replies belong to the connection that asked.
        self.nodes[node].askers.retain(|_, (client, _)| *client != at);
        if !kept {
            self.nodes[node].ground.meet("a client began anew");
        }
        Ok(())
    }

    /// Bytes move: from clients to the pod, from the pod to clients.
    pub(super) fn wires(&mut self, node: usize) -> Result<(), String> {
        for at in 0..CLIENTS {
            if self.clients[at].node != node {
                continue;
            }
            let Some(wire) = &mut self.clients[at].wire else { continue };
            if !wire.up.is_empty() {
                for request in wire.deliver_up(&mut self.chance)? {
                    self.heard(node, at, request)?;
                }
            }
            self.pump(node, at);
            if !self.clients[at].stalls {
                self.clients[at].hear(&mut self.chance)?;
            }
        }
        Ok(())
    }

    pub(super) fn heard(
        &mut self,
        node: usize,
        client: usize,
        request: minke_protocol::Request,
    ) -> Result<(), String> {
        self.replies += 1;
        let to = ReplyTo(self.replies);
        if let Some(id) = request.id.clone() {
            self.nodes[node].askers.insert(to, (client, id));
        }
        let from = Actor::person("sim");
        let Some(order) = methods::order(request.method) else { return Ok(()) };
        self.trace.add(format!("{order:?}").as_bytes());
        self.feed(node, What::Order(Box::new(PodRequest { from, reply: Some(to), order })))
    }

    /// Sends a client the next entries of the log that may be shown, as long as it has room.
    pub(super) fn pump(&mut self, node: usize, at: usize) {
        let Some(life) = &self.nodes[node].life else { return };
        let Some(wire) = &mut self.clients[at].wire else { return };
        let Some(shown) = life.shown else { return };
        if wire.down.len() >= DOWN_BYTES {
            self.nodes[node].ground.meet("a client fell behind");
            return;
        }
        if wire.cursor > shown {
            return;
        }
        let Ok(reader) = life.store.reader(self.nodes[node].id) else { return };
        let most = usize::try_from(shown + 1 - wire.cursor).unwrap_or(16).min(16);
        let Ok(page) = reader.page(wire.cursor, most, DOWN_BYTES) else { return };
        for sealed in page.entries {
            if sealed.entry.seq != wire.cursor || sealed.entry.seq > shown {
                return;
            }
            for line in minke_protocol::frames(&sealed.entry, &sealed.line) {
                wire.down.extend(line.as_bytes());
            }
            wire.cursor += 1;
        }
    }

    /// What the pod has let out since the last look.
    pub(super) fn send_out(&mut self, node: usize) {
        let Some(life) = &mut self.nodes[node].life else { return };
        let (outs, shown) = (std::mem::take(&mut life.outs), life.shown.unwrap_or(0));
        for out in outs {
            match out {
                Out::Text(text) => {
                    let line = Frame::live(Event::TextDelta(Delta { text }), shown, None).line();
                    for client in self.clients.iter_mut().filter(|client| client.node == node) {
                        if let Some(wire) = client.wire.as_mut().filter(|wire| wire.cursor > shown) {
                            wire.down.extend(line.as_bytes());
                        }
                    }
                }
                Out::Reply(to, result) => {
                    let Some((client, id)) = self.nodes[node].askers.remove(&to) else { continue };
                    let line = minke_protocol::reply(id, methods::data(result));
                    if let Some(wire) = &mut self.clients[client].wire {
                        wire.down.extend(line.as_bytes());
                    }
                }
            }
        }
    }
}
