# Two notes write the same file: the second starts after the first has ended.
user > two notes
tools hold
model > Note {"line":"a"}
model > Note {"line":"b"}
ran Note 1
tool > done
ran Note 2
tool > done
model > Both are there.
noted: a, b
context: user two notes / call Note / call Note / result noted / result noted / assistant Both are there.
pod is idle
