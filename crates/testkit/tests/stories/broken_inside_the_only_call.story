# The only call of a reply breaks off: it never runs, and the run continues.
user > note it
model > begin Note {"line":"mi
model > fails busy overloaded
alert < dropped
log … llm_end(broken) alert(worker) llm_call
ran Note 0
model > Note {"line":"milk"}
model > Noted.
noted: milk
pod is idle
