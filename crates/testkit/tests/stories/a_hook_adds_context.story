with hooks
hook prompt > context the build is red
user > hello
model > I see.
hook prompt > nothing
hook Read > context this file is generated
user > read
model > Read {"path":"/project/a"}
model > Generated.
context: user hello / system [Hook] the build is red / assistant I see. / user read / call Read / result there is no file /project/a / system [Hook] this file is generated / assistant Generated.
pod is idle
