with hooks
kills differ: hooks are asked again after an interruption
hook stop > hang
user > hello
model > Hi.
pod is running
user steer > and more
reply < queued
hook stop > nothing
model > More.
pod is idle
hook stop > hang
user > again
model > Again.
person > cancel
pod is idle
