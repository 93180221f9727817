with hooks
with posture full
hook Sh > ask are you sure
user > build
model > Sh {"command":"make"}
asks: 1
offered: approved, approved_for_session, denied, abort
waits on ask
person > approve
ran Sh 1
verdict: answer
model > Built.
pod is idle
