with fence A
with posture ask
user > push twice
model > Sh {"command":"git push origin main"}
asks: 1
person > approve_session
log … answer(approved_for_session) grant tool_dispatch(Sh) tool_result(done)
grants: 1
verdict: answer
model > Sh {"command":"git push"}
# What the shown rule covers is not asked about any more, something else is.
asks: 0
ran Sh 2
verdict: grant
model > Sh {"command":"git fetch"}
asks: 1
person > deny not that
ran Sh 2
model > Pushed.
crash
user > once more
model > Sh {"command":"git push"}
ran Sh 3
model > Pushed again.
pod is idle
