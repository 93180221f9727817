user op=once > hello
reply < run
user op=once > hello
reply < run
model > Hello.
user op=once > hello
reply < run
context: user hello / assistant Hello.
pod is idle
