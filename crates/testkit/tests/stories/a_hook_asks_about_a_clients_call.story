with hooks
kills differ: a client repeats a call whose reply was lost
hook Note > ask really
person > call Note {"line":"milk"}
asks: 1
person > approve
noted: milk
hook Note > deny never
person > call Note {"line":"eggs"}
noted: milk
verdict: hook
hook Note > rewrite {"line":"oats"}
person > call Note {"line":"ham"}
noted: milk, oats
pod is idle
