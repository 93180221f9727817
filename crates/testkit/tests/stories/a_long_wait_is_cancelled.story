# A cancel ends the wait, even after a crash.
kills differ: a cancel abandons a killed run instead of rolling it back
user > tell me
model > fails for 300 s come back later
crash
waits on time
person > cancel
pod is idle
clock + 301 s
pod is idle
user > something else
model > fails for 300 s come back later
waits on time
person > cancel
pod is idle
clock + 301 s
pod is idle
