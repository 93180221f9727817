# Up to three breaks of any kind in one turn are repaired.
user > tell me
model > begin think: one
model > cut
model > begin Note {"line":"tw
model > cut
model > begin think: three
model > fails busy overloaded
model > At last.
log … llm_end(broken) llm_call llm_end(broken) llm_call llm_end(broken) llm_call assistant_item(text) llm_end(done)
context: user tell me / assistant At last.
pod is idle
