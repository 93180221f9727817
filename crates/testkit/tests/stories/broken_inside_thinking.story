# Partial thinking is dropped, and the request is repeated without it.
user > tell me
model > begin think: the user wants
model > cut
alert < continued
log … llm_end(broken) alert(worker) llm_call
context: user tell me
model > think: the user wants a story
model > Once upon a time.
context: user tell me / thinking the user wants a story / assistant Once upon a time.
pod is idle
