user > tell me
person > shutdown after_run
reply < ok
user queue > and then?
model > Once upon a time.
pod is gone
boot
pod is running
model > They lived.
pod is idle
context: user tell me / assistant Once upon a time. / user and then? / assistant They lived.
