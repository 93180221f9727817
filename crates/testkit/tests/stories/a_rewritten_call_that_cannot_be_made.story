with hooks
hook Note > rewrite {"lime":"green"}
user > note it
model > Note {"line":"milk"}
ran Note 0
model > It did not work.
context: user note it / call Note / result a hook rewrote the arguments… / assistant It did not work.
pod is idle
