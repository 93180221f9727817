with hooks
hook Sh > ask are you sure
user > clean up
model > Sh {"command":"rm -r build"}
offered: approved, approved_for_session, denied, abort
person > approve_rule
reply < refused invalid_request
person > tell yes
reply < refused invalid_request
asks: 1
person > approve
ran Sh 1
verdict: answer
model > Clean.
pod is idle
