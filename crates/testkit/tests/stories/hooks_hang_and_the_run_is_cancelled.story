with hooks
hook Sh > hang
user > build
model > Sh {"command":"make"}
person > cancel
pod is idle
hook Sh > nothing
ran Sh 0
user > again
model > Here.
pod is idle
