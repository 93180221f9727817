with hooks
hook prompt > hang
user > hello
pod is idle
person > cancel
reply < ok
hook prompt > nothing
log:
pod is idle
