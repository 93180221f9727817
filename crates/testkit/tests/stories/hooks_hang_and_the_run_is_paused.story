with hooks
hook Sh > hang
user > build
model > Sh {"command":"make"}
asks: 0
activity: tool
person > pause
pod is paused
# The reply is too late for the request before the pause.
hook Sh > deny too late
ran Sh 0
pod is paused
hook Sh > nothing
person > resume
asks: 1
person > approve
ran Sh 1
model > Built.
pod is idle
