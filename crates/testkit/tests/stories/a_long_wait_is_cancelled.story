# Nobody has to wait: a cancel ends it, also after a crash.
kills differ: a run that was cut by a kill is abandoned by the cancel, not rolled back
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
