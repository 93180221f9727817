with hooks
kills differ: hooks are asked again after an interruption
hook stop > deny the tests fail
user > fix it
model > Fixed.

model > Now it is.
pod is idle
context: user fix it / assistant Fixed. / …the tests fail] / assistant Now it is.
