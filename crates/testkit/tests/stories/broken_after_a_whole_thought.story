# A complete thinking block stays; the incomplete call after it is dropped.
user > note it
model > think: milk, then
model > begin Note {"line":"mi
model > cut
log … assistant_item(thinking) llm_end(broken) alert(worker) system_item(continue) llm_call
ran Note 0
model > Note {"line":"milk"}
model > Noted.
noted: milk
pod is idle
