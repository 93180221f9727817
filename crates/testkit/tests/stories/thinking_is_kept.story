user > think about it
model > think: it is late
model > Good night.
log … assistant_item(thinking) assistant_item(text) run_completed(finished)
context: user think about it / thinking it is late / assistant Good night.
