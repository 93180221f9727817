# The partial text stays, and the model continues it.
user > tell me
model > begin Once upon
model > cut
alert < continued
log … assistant_item(text) llm_end(broken) alert(worker) system_item(continue) llm_call
context: user tell me / assistant Once upon / system [The reply above was interrupted…
model > a time.
context: user tell me / assistant Once upon / system [The reply… / assistant a time.
pod is idle
