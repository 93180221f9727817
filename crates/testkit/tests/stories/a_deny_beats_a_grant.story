user > build
model > Sh {"command":"make"}
person > approve_session
ran Sh 1
model > Sh {"command":"make"}
ran Sh 2
person > posture plan
model > Sh {"command":"make"}
ran Sh 2
verdict: posture
model > No more.
pod is idle
