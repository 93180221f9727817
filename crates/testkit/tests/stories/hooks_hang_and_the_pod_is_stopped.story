with hooks
hook Sh > hang
user > build
model > Sh {"command":"make"}
signal
pod is gone
hook Sh > nothing
boot
pod is paused
person > resume
asks: 1
person > approve
ran Sh 1
model > Built.
pod is idle
