# An incomplete call is dropped and never runs.
user > note it
model > Let me see.
model > begin Note {"line":"mi
model > cut
log … assistant_item(text) llm_end(broken) system_item(continue) llm_call
ran Note 0
model > Note {"line":"milk"}
model > Noted.
noted: milk
pod is idle
