# The second run continues with the context of the first.
user > one
model > first
user > two
reply < run
model > second
context: user one / assistant first / user two / assistant second
pod is idle
