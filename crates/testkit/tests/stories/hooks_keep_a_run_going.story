with hooks
kills differ: a run that was interrupted is asked about anew
hook stop > deny the tests fail
user > fix it
model > Fixed.

model > Now it is.
pod is idle
context: user fix it / assistant Fixed. / …the tests fail] / assistant Now it is.
