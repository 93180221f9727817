with sandbox namespaces
with posture ask
user > push
model > Sh {"command":"cargo test"}
signal
visit > approve_rule
rules added: 0
boot
rules added: 1
ran Sh 1
model > Pushed.
pod is idle
