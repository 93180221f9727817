# A rule cannot answer a hook's ask: the grant covers exactly this call.
with hooks
hook Sh > ask are you sure
user > push twice
model > Sh {"command":"git push"}
person > approve_session
grants: 1
model > Sh {"command":"git push"}
asks: 0
ran Sh 2
verdict: grant
model > Sh {"command":"git push -f"}
asks: 1
person > deny no
ran Sh 2
model > Pushed.
pod is idle
