with hooks
hook prompt > deny no secrets here
user > my password is hunter2
reply < refused denied
log:
pod is idle
hook prompt > nothing
user > hello
reply < run
model > Hi.
pod is idle
