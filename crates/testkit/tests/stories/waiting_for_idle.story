user > tell me
person > wait idle
reply < nothing
model > Told.
reply < reached
user > more
person > wait idle
clock + 6 s
reply < late
model > Told.
pod is idle
