user > one
model > First.
fork
name: fork
context: user one / assistant First.
user > two
model > Second.
context: user one / assistant First. / user two / assistant Second.
crash
context: user one / assistant First. / user two / assistant Second.
pod is idle
