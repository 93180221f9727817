//! Messages between clients and pods: methods up; entries, events and replies down.

use super::*;

impl Simulation {
    /// A client connects, disconnects, stalls or sends a method.
    pub(super) fn random_client_action(&mut self, node: usize) -> Result<(), String> {
        let mine: Vec<usize> = (0..CLIENT_COUNT).filter(|at| self.clients[*at].node == node).collect();
        let Some(at) = self.random.pick(&mine).copied() else { return Ok(()) };
        if self.clients[at].connection.is_none() {
            return self.connect_client(node, at);
        }
        match self.random.below(12) {
            0 => self.clients[at].disconnect(),
            1 => self.clients[at].is_stalled = !self.clients[at].is_stalled,
            2 => {
                if let Some(again) = self.clients[at].last_run.clone() {
                    self.nodes[node].record.count_branch("an input was sent twice");
                    self.clients[at].send_method(again);
                }
            }
            _ => {
                self.ops += 1;
                let Some(life) = &self.nodes[node].process else { return Ok(()) };
                let method = methods::random_method(&mut self.random, life.state(), self.ops);
                self.clients[at].send_method(method);
            }
        }
        Ok(())
    }

    pub(super) fn connect_client(&mut self, node: usize, at: usize) -> Result<(), String> {
        let Some(life) = &self.nodes[node].process else { return Ok(()) };
        let Ok(reader) = life.store.open_reader(self.nodes[node].id) else { return Ok(()) };
        let shown = life.shown;
        let fits = |position: &Position| {
            shown.is_some_and(|shown| position.seq <= shown)
                && reader.position_of(position.seq).ok().flatten() == Some(*position)
        };
        let kept = self.clients[at].connect_from(fits);
        // Replies belong to the connection that sent the method.
        self.nodes[node].reply_targets.retain(|_, (client, _)| *client != at);
        if !kept {
            self.nodes[node].record.count_branch("a client restarted its view");
        }
        Ok(())
    }

    /// Moves bytes between clients and pod.
    pub(super) fn move_bytes(&mut self, node: usize) -> Result<(), String> {
        for at in 0..CLIENT_COUNT {
            if self.clients[at].node != node {
                continue;
            }
            let Some(wire) = &mut self.clients[at].connection else { continue };
            if !wire.up.is_empty() {
                for request in wire.deliver_up(&mut self.random)? {
                    self.handle_request(node, at, request)?;
                }
            }
            self.send_entries(node, at);
            if !self.clients[at].is_stalled {
                self.clients[at].receive_bytes(&mut self.random)?;
            }
        }
        Ok(())
    }

    pub(super) fn handle_request(
        &mut self,
        node: usize,
        client: usize,
        request: minke_protocol::ClientRequest,
    ) -> Result<(), String> {
        self.replies += 1;
        let to = ReplyId(self.replies);
        if let Some(id) = request.id.clone() {
            self.nodes[node].reply_targets.insert(to, (client, id));
        }
        let from = Actor::from_person("sim");
        let Some(command) = methods::to_command(request.method) else { return Ok(()) };
        self.trace.add_bytes(format!("{command:?}").as_bytes());
        self.feed_input(node, InputKind::Command(Box::new(PodRequest { from, reply: Some(to), command })))
    }

    /// Sends a client the next visible log entries while its buffer has space.
    pub(super) fn send_entries(&mut self, node: usize, at: usize) {
        let Some(life) = &self.nodes[node].process else { return };
        let Some(wire) = &mut self.clients[at].connection else { return };
        let Some(shown) = life.shown else { return };
        if wire.down.len() >= MAX_DOWN_BYTES {
            self.nodes[node].record.count_branch("a client fell behind");
            return;
        }
        if wire.cursor > shown {
            return;
        }
        let Ok(reader) = life.store.open_reader(self.nodes[node].id) else { return };
        let most = usize::try_from(shown + 1 - wire.cursor).unwrap_or(16).min(16);
        let Ok(page) = reader.read_page(wire.cursor, most, MAX_DOWN_BYTES) else { return };
        for sealed in page.entries {
            if sealed.entry.seq != wire.cursor || sealed.entry.seq > shown {
                return;
            }
            for line in minke_protocol::entry_frames(&sealed.entry, &sealed.line) {
                wire.down.extend(line.as_bytes());
            }
            wire.cursor += 1;
        }
    }

    /// Sends the outputs of the pod since the last call.
    pub(super) fn send_outputs(&mut self, node: usize) {
        let Some(life) = &mut self.nodes[node].process else { return };
        let (outs, shown) = (std::mem::take(&mut life.outputs), life.shown.unwrap_or(0));
        for out in outs {
            match out {
                SimOutput::Text(text) => {
                    let line = Frame::new_live(Event::TextDelta(Delta { text }), shown, None).to_line();
                    for client in self.clients.iter_mut().filter(|client| client.node == node) {
                        if let Some(wire) = client.connection.as_mut().filter(|wire| wire.cursor > shown) {
                            wire.down.extend(line.as_bytes());
                        }
                    }
                }
                SimOutput::Reply(to, result) => {
                    let Some((client, id)) = self.nodes[node].reply_targets.remove(&to) else { continue };
                    let line = minke_protocol::encode_reply(id, methods::reply_data(result));
                    if let Some(wire) = &mut self.clients[client].connection {
                        wire.down.extend(line.as_bytes());
                    }
                }
            }
        }
    }
}
