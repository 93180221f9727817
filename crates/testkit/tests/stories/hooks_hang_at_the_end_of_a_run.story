with hooks
kills differ: a run that was interrupted is asked about anew
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
