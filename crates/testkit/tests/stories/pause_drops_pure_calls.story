# A pure call is dropped by the pause and run again by the resume.
user > read it
tools hold
model > Read {"path":"/project/none"}
person > pause
pod is paused
tools go
person > resume
ran Read 2
model > It is not there.
pod is idle
